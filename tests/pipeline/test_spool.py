"""A subscription in files: acknowledged when it is on disk, so that kills lose nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S
from tests.pipeline.network import live_broker

from surecast.client import LostError, ReceivedMessage, SyncGroupClient
from surecast.errors import ConfigurationError
from surecast.pipeline.spool import Spool, SpoolReport, spool_subscription


def lines_of(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("spool-*.zap")) for line in path.read_text().splitlines()]


class Subscription:
    """A connection that has some messages and is lost after them."""

    def __init__(self, payloads: list[bytes]):
        self.messages = [ReceivedMessage("zap/events/1", data, 1, packet_id=n) for n, data in enumerate(payloads, 1)]
        self.acknowledged: list[int] = []
        self.on_disk: list[int] = []
        self.folder = Path()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def subscribe(self, *_: object) -> list[int]:
        return [1]

    async def message(self, *, is_acknowledged: bool) -> ReceivedMessage:
        assert not is_acknowledged
        if not self.messages:
            raise LostError("gone")
        return self.messages.pop(0)

    async def acknowledge(self, message: ReceivedMessage) -> None:
        self.acknowledged.append(message.packet_id)
        self.on_disk.append(len(lines_of(self.folder)))


def test_messages_are_acknowledged_once_they_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subscription: Any = Subscription([b"a\nb", b"", b"c\n"])
    subscription.folder = tmp_path
    with Spool(tmp_path) as spool:
        asyncio.run(spool_subscription(lambda: subscription, ["t"], spool, report := SpoolReport(), count=3))
        assert (lines_of(tmp_path), report.messages, report.lines) == (["a", "b", "c"], 3, 3)
        assert (subscription.acknowledged, subscription.on_disk) == ([1, 2, 3], [3, 3, 3])

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        subscription = Subscription([b"d"])
        with pytest.raises(OSError, match="No space"):
            asyncio.run(spool_subscription(lambda: subscription, ["t"], spool, SpoolReport(), count=1))
        assert subscription.acknowledged == []


def test_segments_go_on_where_a_crash_stopped_them(tmp_path: Path) -> None:
    with Spool(tmp_path, segment_bytes=5) as spool:
        spool.append([b"aa", b"bb"])
        spool.append([b"cc"])
        with pytest.raises(ConfigurationError, match="another process writes to this spool"):
            Spool(tmp_path)
    names = [f"spool-{position:020d}.zap" for position in (0, 6)]
    assert [path.name for path in spool.segments()] == names
    with (tmp_path / names[1]).open("ab") as file:
        file.write(b"tor")
    with Spool(tmp_path) as spool:
        spool.append([b"dd"])
    assert lines_of(tmp_path) == ["aa", "bb", "cc", "dd"]
    assert [path.name for path in spool.segments()] == [*names, f"spool-{9:020d}.zap"]


def test_kills_of_the_spool_lose_nothing(tmp_path: Path) -> None:
    """With a broker process; the spool is killed while messages flow, and finds the rest in its session."""
    out, count = tmp_path / "spool", 300
    with live_broker(tmp_path) as live:
        host, _, port = live.address.rpartition(":")
        command = [sys.executable, "-m", "surecast", "pipeline", "spool", "-h", host, "-p", port, "-i", "spool"]
        command += ["--out", str(out)]

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

        def wait_for(lines: int) -> None:
            deadline_s = time.monotonic() + PATIENCE_S
            while len({*lines_of(out)}) < lines:
                assert time.monotonic() < deadline_s, f"{len({*lines_of(out)})} lines of {lines}"
                time.sleep(0.02)

        process = start()
        try:
            with SyncGroupClient([live.address], client_id="boxes") as client:
                while not lines_of(out):  # until it has subscribed
                    client.publish("zap/events/0", b"first\n", qos=1)
                    time.sleep(0.05)
                for number in range(count):
                    client.publish("zap/events/1", b"event %d\n" % number, qos=1)
                    if number in (40, 170):
                        wait_for(number // 2)
                        process.kill()
                        process.communicate()
                        if number == 170:
                            time.sleep(0.1)  # some come while nobody spools
                        process = start()
            wait_for(count + 1)
        finally:
            process.kill()
            process.communicate()
    found = Counter(lines_of(out))
    assert found.keys() - {"first"} == {f"event {number}" for number in range(count)}
