"""Real replicas that are killed and stopped under load. `tools/replica_kills.py` does it for as long as wanted."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "replica_kills.py"


def test_killed_and_stopped_replicas_keep_all_promises() -> None:
    options = ["--seconds", "5", "--leader-kills", "3", "--seed", "4", "--interval", "0.3", "--clients", "3"]
    done = subprocess.run([sys.executable, TOOL, *options], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all promises kept\n")
    assert len(re.findall(r"killed \d \(the leader\)", done.stdout)) >= 3


def test_the_checks_notice_what_they_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOL.parent))
    make = import_module("replica_kills").History

    def check(
        counts: list[tuple[float, float, int]], final: int, changes: list[tuple[bytes, bytes]], end: bytes
    ) -> None:
        make(increments={0: counts}, changes=changes).check({0: final}, end)

    good = [(0.0, 1.0, 1), (0.5, 2.0, 3), (0.5, 2.0, 2)]
    check(good, 3, [(b"0", b"a"), (b"a", b"b")], b"b")
    for counts, final, why in (
        ([*good, (3.0, 4.0, 3)], 4, "answered twice"),
        (good, 2, "2 after 3 answered"),
        (good, 4, "4 after 3 answered"),
        ([(0.0, 1.0, 2), (1.5, 2.0, 1)], 2, "began after 2"),
    ):
        with pytest.raises(AssertionError, match=why):
            check(counts, final, [], b"0")
    for changes, end, why in (
        ([(b"0", b"a"), (b"0", b"b")], b"b", "changed twice"),
        ([(b"0", b"a"), (b"x", b"b")], b"a", "not in the chain"),
        ([(b"0", b"a")], b"0", "the last change was to"),
    ):
        with pytest.raises(AssertionError, match=why):
            check(good, 3, changes, end)
