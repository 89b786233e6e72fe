"""Messages of an MQTT subscription in files that the pipeline reads; each is acknowledged when it is on disk.

A subscription cannot be read twice, so its messages are kept in segments, named by the position of their first byte in
the spool: `spool-00000000000000000000.zap`. A message is acknowledged after its segment is synced. One that was not
acknowledged the broker sends again, so nothing is lost; of what is in the spool twice then, the pipeline counts each
event once.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from surecast.client import Client, LostError, ReceivedMessage
from surecast.errors import ConfigurationError
from surecast.pipeline.run_manifest import read_manifest
from surecast.protocol.mqtt import SubscriptionRequest

__all__ = ["Spool", "SpoolReport", "spool_subscription"]

SEGMENT_BYTES: Final = 64 << 20
_BATCH_MAX: Final = 1000
_GATHER_S: Final = 0.02
_RETRY_S: Final = 1.0
_PREFIX: Final = "spool-"
_SUFFIX: Final = ".zap"


@dataclass(slots=True)
class SpoolReport:
    """The counts of what went into a spool."""

    messages: int = 0
    resent: int = 0
    """Messages that the broker marked as sent before; some of them may be in the spool twice."""
    lines: int = 0
    connections: int = 0


class Spool:
    """The segments of a folder; only one process may write to it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Spool(Path(folder)) as spool:
    ...     spool.append([b"a\\nb", b"c\\n"])
    ...     spool.segments()[0].read_text()
    3
    'a\\nb\\nc\\n'
    """

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._segment_bytes = folder, segment_bytes
        self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConfigurationError(f"--out {folder}: another process writes to this spool") from None
        self.position = 0
        """Bytes so far, over all segments."""
        if segments := self.segments():
            _repair(segments[-1])
            first = int(segments[-1].name.removeprefix(_PREFIX).removesuffix(_SUFFIX))
            self.position = first + segments[-1].stat().st_size
        self._file = self._open()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
        os.close(self._lock)

    def segments(self) -> list[Path]:
        """Returns the files of the spool, the oldest first."""
        return sorted(self.folder.glob(f"{_PREFIX}*{_SUFFIX}"))

    def append(self, payloads: Sequence[bytes]) -> int:
        """Writes the lines of messages and syncs them; returns how many lines they are."""
        data = b"".join(payload if payload.endswith(b"\n") else payload + b"\n" for payload in payloads if payload)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fsync(self._file)
        self.position += len(data)
        if os.fstat(self._file).st_size >= self._segment_bytes:
            os.close(self._file)
            self._file = self._open()
        return data.count(b"\n")

    def forget(self, tables: Path) -> int:
        """Removes segments, except the last, of which the last finished run of a folder of tables has read all; returns
        how many."""
        manifest = read_manifest(tables)
        offsets = manifest.offsets if manifest is not None else None
        done = [p for p in self.segments()[:-1] if offsets and offsets.get(str(p.absolute()), -1) >= p.stat().st_size]
        for path in done:
            path.unlink()
        return len(done)

    def _open(self) -> int:
        path = self.folder / f"{_PREFIX}{self.position:020d}{_SUFFIX}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return file


def _repair(segment: Path) -> None:
    """Cuts off a line that a crash left without its end: its message was not acknowledged."""
    with segment.open("r+b") as file:
        data = file.read()
        if data and not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)
            os.fsync(file.fileno())


async def spool_subscription(
    connect: Callable[[], Client],
    topics: Sequence[str],
    spool: Spool,
    report: SpoolReport,
    *,
    tables: Path | None = None,
    count: int | None = None,
    told: Callable[[str], None] = lambda text: None,
) -> None:
    """Writes what a subscription receives to a spool, until `count` messages have come; reconnects when the connection
    is lost. With `tables`, segments that its runs have read are removed."""
    while count is None or report.messages < count:
        try:
            async with connect() as client:
                report.connections += 1
                reasons = await client.subscribe(*(SubscriptionRequest(topic, 1) for topic in topics))
                if refused := [topic for topic, reason in zip(topics, reasons, strict=True) if reason >= 0x80]:
                    raise ConfigurationError(f"--topic {', '.join(refused)}: the broker refuses the subscription")
                while count is None or report.messages < count:
                    left = _BATCH_MAX if count is None else min(_BATCH_MAX, count - report.messages)
                    batch = await _gathered(client, left)
                    segments = spool.segments()[-1]
                    report.lines += await asyncio.to_thread(spool.append, [message.payload for message in batch])
                    report.messages += len(batch)
                    report.resent += sum(message.dup for message in batch)
                    for message in batch:
                        await client.acknowledge(message)
                    if tables is not None and spool.segments()[-1] != segments:
                        spool.forget(tables)
        except LostError as error:
            told(f"{error}; connecting again")
            await asyncio.sleep(_RETRY_S)


async def _gathered(client: Client, limit: int) -> list[ReceivedMessage]:
    """Returns the next message, and those that come right after it."""
    batch = [await client.message(is_acknowledged=False)]
    try:
        async with asyncio.timeout(_GATHER_S):
            while len(batch) < limit:
                batch.append(await client.message(is_acknowledged=False))
    except (TimeoutError, LostError):
        pass
    return batch
