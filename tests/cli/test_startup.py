"""The command line answers at once: what is slow to import is imported only by the command that needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.patience import PATIENCE_S

HEAVY = ("scipy", "numba", "pandas", "pyspark", "matplotlib", "plotly", "networkx", "pyarrow", "numpy")
CODE = """
import sys
sys.argv = ["surecast", *{arguments!r}]
from surecast.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["scenario", "--help"], ["scenario", "check", "--help"], ["compare", "--help"]],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = CODE.format(arguments=arguments, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert "surecast" in done.stdout
    assert done.stderr.strip() == "[]"


def test_the_package_itself_is_light() -> None:
    code = f"import sys, surecast; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout.strip() == "[]"
