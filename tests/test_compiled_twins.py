"""The compiled twins that CONTRIBUTING.md lists: both exist, as does the test that sets them against each other."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SECTION = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("### Compiled twins")[1].split("\n## ")[0]
ROWS = [line.replace("`", "").strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| `")]


def test_twins_are_listed() -> None:
    assert len(ROWS) >= 4


@pytest.mark.parametrize(("plain", "compiled", "test"), ROWS)
def test_both_twins_exist_and_a_test_sets_them_against_each_other(plain: str, compiled: str, test: str) -> None:
    for twin in (plain, compiled):
        assert (ROOT / "src" / "surecast" / twin).exists(), twin
    modules = [twin.rstrip("/").split("/")[-1].removesuffix(".py") for twin in (plain, compiled)]
    assert len(set(modules)) == 2
    assert "compiled" in compiled or "kernel" in compiled
    assert (ROOT / test).is_file(), test


@pytest.mark.parametrize("folder", ["simulation/coding", "simulation/reliability"])
def test_what_is_compiled_beside_a_protocol_simulation_says_so(folder: str) -> None:
    """A module with compiled functions has the word in its name or in that of its folder."""
    for path in (ROOT / "src" / "surecast" / folder).rglob("*.py"):
        if "import njit" in path.read_text(encoding="utf-8"):
            assert "compiled" in path.relative_to(ROOT / "src" / "surecast").as_posix(), path
