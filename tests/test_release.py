"""Releases: one version, notes from the changelog, whole archives. `make release-check` tries the archives."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import surecast

ROOT = Path(__file__).parent.parent
GROUPS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
CHANGELOG = """# Changelog

## Unreleased

### Added

- Something new.

## 0.2.0 - 2027-03-01

### Fixed

- A leak.

## [0.1.0] - 2027-01-31

### Added

- All of it.
"""


@pytest.fixture(scope="module")
def release() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "tools"))
    yield import_module("release")
    sys.path.remove(str(ROOT / "tools"))


def test_the_version_is_written_in_one_place(release: ModuleType) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "surecast.__version__"}
    assert release.current_version() == surecast.__version__


@pytest.mark.parametrize("line", ["__version__ = '1.0'", "__version__ = '1.0.0-beta'", "__version__ = 3"])
def test_a_version_that_no_release_could_have_is_refused(
    release: ModuleType, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src" / "surecast").mkdir(parents=True)
    (tmp_path / "src" / "surecast" / "__init__.py").write_text(line)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="write three numbers, such as"):
        release.current_version()


def test_notes_are_the_section_of_the_version_or_what_is_unreleased(release: ModuleType) -> None:
    assert release.release_notes(CHANGELOG, "0.2.0") == "# Surecast 0.2.0\n\n### Fixed\n\n- A leak.\n"
    assert release.release_notes(CHANGELOG, "0.1.0") == "# Surecast 0.1.0\n\n### Added\n\n- All of it.\n"
    assert release.release_notes(CHANGELOG, "0.3.0") == "# Surecast 0.3.0\n\n### Added\n\n- Something new.\n"


def test_a_release_without_notes_is_refused(release: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"nothing to say of 0\.3\.0; write it under '## Unreleased'"):
        release.release_notes("# Changelog\n\n## Unreleased\n\n### Added\n\n## 0.2.0\n\n- A leak.\n", "0.3.0")


def test_the_changelog_has_its_form(release: ModuleType) -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = [heading[1] for heading in release.SECTION.finditer(text)]
    assert sections[0] == "Unreleased"
    assert all(release.VERSION.fullmatch(version) for version in sections[1:])
    assert {line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")} <= GROUPS
    assert release.release_notes(text, surecast.__version__)


def test_an_archive_that_lacks_a_file_or_has_a_cache_is_refused(release: ModuleType) -> None:
    wheel = Path("surecast-0.1.0-py3-none-any.whl")
    with pytest.raises(SystemExit, match=r"lacks surecast/py\.typed"):
        release.check_contents(wheel, {"surecast/__init__.py"}, ("surecast/py.typed",))
    with pytest.raises(SystemExit, match="which belong to no release"):
        release.check_contents(wheel, {"a", "tests/__pycache__/x.pyc"}, ("a",))
    release.check_contents(wheel, {"a", "b"}, ("a",))
