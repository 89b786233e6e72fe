"""`tools/fault_store_damage.py` on real processes, shortly: nothing is lost in silence, and its verdict can fail."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.broker.group.conftest import load_tool

from surecast.broker.segment_file import scan
from surecast.broker.segment_load import LogReader

UNCHECKED = """
from surecast.broker.segment_load import LogReader
LogReader._check_ends = lambda log, names: None
from surecast.cli import main
main()
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return load_tool("fault_store_damage")


def halve(store: Path, *_: object) -> Path:
    """Cuts the log in the middle of its last file, so that more is gone than a commit that was not confirmed.

    A file that was just begun has too little for that, and goes as a whole.
    """
    for file in sorted(store.glob("segment-*.log"), reverse=True):
        content = scan(file.read_bytes())
        if content is not None and len(content.entries) > 5:
            file.write_bytes(file.read_bytes()[: content.entries[len(content.entries) // 2].end - 9])
            return file
        file.unlink()
    raise AssertionError("no file has enough commits")


@pytest.mark.parametrize("kind", ["broker", "replica"])
def test_damage_is_refused_by_name_and_a_crash_is_not(
    tool: ModuleType, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tool.DAMAGES, "cut", halve)
    killed = asyncio.run(tool.kill_under_load(tool.Service(kind, tmp_path / kind), 1))
    draw = tool.random.Random(1)
    results = {name: asyncio.run(tool.trial(killed, name, draw, killed.earlier, tmp_path)) for name in ("cut", "torn")}
    assert results == {"cut": "refused by name", "torn": "nothing lost"}


def test_every_damage_to_the_store_of_a_broker(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed, other = (
        asyncio.run(tool.kill_under_load(tool.Service("broker", tmp_path / name), 2)) for name in ("own", "other")
    )
    foreign = other.service.store(other.service.folder)
    draw, results = tool.random.Random(2), tool.Counter()
    for name in tool.DAMAGES:
        for _ in range(8):
            results["opened", name, tool.open_trial(killed, name, draw, foreign, tmp_path)] += 1
    assert tool.report(results) == 0
    assert results["opened", "cut", "refused by name"] > 4
    assert results["opened", "torn", "nothing lost"] == 8
    assert capsys.readouterr().out.startswith("ok: 72 trials")


def test_the_verdict_fails_where_the_mark_is_not_looked_at(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = tool.Service("broker", tmp_path / "broker", (sys.executable, "-c", UNCHECKED))
    killed = asyncio.run(tool.kill_under_load(service, 3))
    monkeypatch.setattr(LogReader, "_check_ends", lambda log, names: None)
    monkeypatch.setitem(tool.DAMAGES, "cut", halve)
    draw, results = tool.random.Random(3), tool.Counter()
    results["opened", "cut", tool.open_trial(killed, "cut", draw, killed.earlier, tmp_path)] += 1
    assert results["opened", "cut", "silently lost"]
    assert tool.report(results) == 1
    assert asyncio.run(tool.trial(killed, "cut", draw, killed.earlier, tmp_path)) == "silently lost"
