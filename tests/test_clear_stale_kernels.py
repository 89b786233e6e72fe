"""Compiled kernels are removed where something changed that their machine code was made from, and only there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

Clear = Callable[[], set[str]]

FILES = {
    "kernels.py": "from numba import njit\n",
    "numbers.py": "from surecast.units import DAY_S\nWEEK_S = 7 * DAY_S\n",
    "units.py": "DAY_S = 86400\n",
    "system.py": "class System: ...\n",
    "inner.py": "from surecast.kernels import njit\n@njit(cache=True)\ndef add(x): return x\n",
    "outer.py": """from surecast.kernels import njit
from surecast.inner import add as plus
from surecast import numbers
from surecast.system import System
LONG_S = 2 * numbers.WEEK_S
@njit(cache=True)
def twice(x): return plus(x) + LONG_S
def answer(system: System): return twice(System().size)
""",
}


@pytest.fixture
def clear(tmp_path: Path) -> Iterator[Clear]:
    """Makes compiled kernels where there are none, clears those that are stale, and returns what is gone."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
    tool = import_module("clear_stale_kernels")
    cache = tmp_path / "src" / "surecast" / "__pycache__"
    cache.mkdir(parents=True)
    for name, text in FILES.items():
        (cache.parent / name).write_text(text)

    def run() -> set[str]:
        names = ("inner.add-3.py311.nbi", "inner.add-3.py311.1.nbc", "outer.twice-6.py311.nbi", "outer.pyc")
        for name in names:
            (cache / name).touch()
        tool._needed.cache_clear()
        tool.clear(tmp_path / "src", tmp_path / "stamp")
        return {name.partition("-")[0] for name in names if not (cache / name).exists()}

    yield run
    sys.path.remove(str(Path(__file__).parent.parent / "tools"))


def test_kernels_of_which_nothing_is_known_go_and_stay_afterwards(clear: Clear) -> None:
    assert clear() == {"inner.add", "outer.twice"}
    assert clear() == set()


@pytest.mark.parametrize(
    ("changed", "gone"),
    [
        ("inner.py", {"inner.add", "outer.twice"}),
        ("outer.py", {"outer.twice"}),
        ("units.py", {"outer.twice"}),  # a constant, by another module
        ("kernels.py", {"inner.add", "outer.twice"}),
        ("system.py", set()),  # used by an ordinary function alone
    ],
)
def test_a_change_removes_the_kernels_that_use_it(clear: Clear, tmp_path: Path, changed: str, gone: set[str]) -> None:
    clear()
    file = tmp_path / "src" / "surecast" / changed
    file.write_text(file.read_text() + "# another line\n")
    assert clear() == gone


def test_a_stamp_that_cannot_be_read_says_nothing(clear: Clear, tmp_path: Path) -> None:
    clear()
    (tmp_path / "stamp").write_text("0123abcd")
    assert clear() == {"inner.add", "outer.twice"}
