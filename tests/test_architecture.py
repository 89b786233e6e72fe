"""The architecture page says what the import contracts and the source say, and its checker notices when it does not."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    module = import_module("architecture")
    module.layers.cache_clear()
    return module


def test_the_page_and_its_pictures_are_current(tool: ModuleType) -> None:
    stale = [path.name for path, text in tool.outputs().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"{stale}: run tools/architecture.py"


def test_every_package_is_in_the_page(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "background" / "architecture.md").read_text(encoding="utf-8")
    for name in (*tool.packages(), *tool.parts()):
        assert f"\n| `{name}` |" in page
    assert {"measurement", "studio", "errors"} <= set(tool.packages())
    assert {"prediction/composed", "scenario/paths"} <= set(tool.parts())


def test_imports_are_those_of_the_source(tool: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "import os\nimport surecast.errors\nfrom surecast.scenario import build\nfrom surecast import report\n"
        "def late():\n    from surecast.client.sync import X\n"
    )
    assert sorted(tool.imported_by(file)) == ["client", "errors", "report", "scenario"]
    assert tool.imports("errors") == []
    assert {"prediction", "simulation", "protocol"}.isdisjoint(tool.imports("report"))


def source_tree(folder: Path) -> Path:
    for name in ("alpha", "beta"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f'"""The {name} package."""\n')
    return folder


def test_a_package_in_no_layer_is_refused(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "SOURCE", source_tree(tmp_path))
    monkeypatch.setattr(tool, "layers", lambda: [["alpha"]])
    with pytest.raises(SystemExit, match="`layers` does not name beta"):
        tool.check_layers()
    monkeypatch.setattr(tool, "layers", lambda: [["alpha", "beta", "gamma"]])
    with pytest.raises(SystemExit, match="names gamma, which do not exist"):
        tool.check_layers()


def test_a_package_without_a_docstring_is_refused(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    (source_tree(tmp_path) / "alpha" / "__init__.py").write_text("")
    with pytest.raises(SystemExit, match=r"alpha/__init__\.py: has no docstring"):
        tool.meaning(tmp_path / "alpha")


def test_a_file_of_the_way_that_is_gone_is_refused(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = sys.modules["architecture_pictures"]
    stage = pictures.Stage("x", (pictures.Step(("broker/gone.py",), "Does it."),))
    monkeypatch.setattr(tool, "SINGLE", (stage,))
    with pytest.raises(SystemExit, match=r"src/surecast has no broker/gone\.py"):
        tool.check_files()


def test_a_page_without_the_comments_is_refused(tool: ModuleType) -> None:
    with pytest.raises(SystemExit, match="comments around 'packages' are missing"):
        tool.with_region("# Architecture\n", "packages", "text")


@pytest.mark.parametrize("picture", ["packages.svg", "publication.svg"])
def test_pictures_are_whole_and_fetch_nothing(picture: str) -> None:
    text = (ROOT / "docs" / "images" / picture).read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    height = float(root.attrib["height"])
    rows = [float(node.attrib["y"]) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len(rows) > 20
    assert max(rows) < height
    assert "href" not in text
    assert "@import" not in text
