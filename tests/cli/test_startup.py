"""The command line answers at once: what is slow to import is imported only by the command that needs it."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE_S

HEAVY = ("scipy", "numba", "pandas", "pyspark", "matplotlib", "plotly", "networkx", "pyarrow", "numpy")
COMMANDS = (["--version"], ["--help"], ["scenario", "--help"], ["scenario", "check", "--help"], ["compare", "--help"])
CODE = """
import sys
from surecast.cli import main
for command in {commands!r}:
    sys.argv = ["surecast", *command]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, (command, stop.code)
    print(command, sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)
"""


def test_help_loads_nothing_heavy() -> None:
    code = CODE.format(commands=COMMANDS, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout.count("Usage: surecast") == len(COMMANDS) - 1
    assert done.stderr.splitlines() == [f"{command} []" for command in COMMANDS]


def test_the_package_itself_is_light() -> None:
    code = f"import sys, surecast; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout.strip() == "[]"
