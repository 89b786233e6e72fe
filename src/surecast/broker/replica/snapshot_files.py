"""Snapshots of a replica in files, each written by a child process, while the replica goes on.

A child that is forked has the whole state as it is at that instant, and nobody changes it there: it needs no locks, and
the replica stands still only while the kernel copies the page tables, some milliseconds for a gigabyte. The child lets
go of every socket and file but its own two at once, so that clients notice when the replica dies, and the folder is not
locked any longer than the replica lives. It ends when it is done, when it cannot go on, and when its parent is gone.

A file counts only once the records of the replica name it: until then a crash leaves the snapshot before. Files that no
record names are removed.
"""

from __future__ import annotations

import gc
import os
import signal
import struct
import warnings
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NoReturn

from surecast.broker.segment_file import read_all
from surecast.broker.store_base import StoreError
from surecast.protocol.paxos.journal import SnapshotReference

__all__ = ["SnapshotFile", "SnapshotFiles"]

_PREFIX: Final = "snapshot-"
_WRITE_BYTES: Final = 1 << 20
_DONE: Final = struct.Struct(">Q16s")
_DIGEST_BYTES: Final = 16
_NICE: Final = 5  # the replica itself comes first
_OPEN_MAX: Final = 1 << 20


class SnapshotFile:
    """A snapshot in a file that is open; it can be read even when the file has lost its name."""

    def __init__(self, file: int, name: str, reference: SnapshotReference):
        self.reference = reference
        self.name = name
        self._file = file

    def read(self, at: int, size: int) -> bytes:
        """Returns so many bytes from a place on."""
        try:
            return read_all(self._file, size, at)
        except OSError as error:
            raise StoreError(f"{self.name}: {error.strerror}") from error

    def __del__(self) -> None:
        os.close(self._file)


class SnapshotFiles:
    """The snapshots of a replica in the folder of its store; without a folder they are in memory.

    `syncs`: a snapshot is on the disk before it counts.
    """

    def __init__(self, folder: Path | None, syncs: bool):
        self._folder = folder
        self._syncs = syncs
        self._last = 0
        self._child = 0
        self._pipe = -1
        self._said = b""
        self._loop: AbstractEventLoop | None = None

    @property
    def is_writing(self) -> bool:
        """Returns whether a child writes a snapshot."""
        return bool(self._child)

    def open(self, reference: SnapshotReference) -> SnapshotFile:
        """Opens the one that the records of the replica name, when it starts again."""
        assert self._folder is not None, "records that outlive a process are in a folder"
        path = self._path(reference.number)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"{path}: the snapshot that the store names cannot be read: {error.strerror}") from error
        self._last = reference.number
        return SnapshotFile(file, str(path), reference)

    def tidy(self) -> None:
        """Removes all files but that of the last snapshot."""
        if self._folder is None:
            return
        for path in self._folder.glob(f"{_PREFIX}*"):
            if path != self._path(self._last):
                with suppress(OSError):
                    path.unlink()

    def begin(
        self,
        loop: AbstractEventLoop,
        slot: int,
        pieces: Iterator[bytes],
        done: Callable[[SnapshotFile | str], None],
    ) -> None:
        """Has a child write the snapshot of an instance; OSError where there can be none.

        `pieces` are read in the child. `done` gets the file, or why there is none, in a later turn of the loop. The
        records that name the last snapshot must be durable: the one before it is removed.
        """
        self.tidy()
        number = self._last + 1
        path = self._path(number) if self._folder is not None else None
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        file = _unnamed() if path is None else os.open(path, flags, 0o600)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        try:
            child = _fork(lambda: self._write(file, writer, pieces, parent))
        except BaseException:
            for each in (file, reader):
                os.close(each)
            raise
        finally:
            os.close(writer)
        self._child, self._pipe, self._said, self._loop = child, reader, b"", loop
        name = str(path or "snapshot in memory")
        loop.add_reader(reader, self._heard, file, name, slot, number, done)

    def stop(self) -> None:
        """Ends a child that still writes."""
        if self._child:
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            self._take_status()

    def _path(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{_PREFIX}{number:010d}"

    def _heard(self, file: int, name: str, slot: int, number: int, done: Callable[[SnapshotFile | str], None]) -> None:
        """The child says how it went, or is dead."""
        if part := os.read(self._pipe, 4096):
            self._said += part
            return  # until it has ended: to wait for that here would take as long as its memory is large
        said, status = self._said, self._take_status()
        if len(said) == _DONE.size:
            size, digest = _DONE.unpack(said)
            self._last = number
            done(SnapshotFile(file, name, SnapshotReference(slot, number, size, digest)))
            return
        os.close(file)
        done(f"{name}: {said.decode(errors='replace') or _how(status)}")

    def _take_status(self) -> int:
        """Lets go of the pipe and of the child; returns how it ended."""
        assert self._loop is not None
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        child, self._child, self._pipe = self._child, 0, -1
        try:
            return os.waitpid(child, 0)[1]
        except ChildProcessError:  # the system takes the status of children itself where SIGCHLD is ignored
            return 0

    def _write(self, file: int, writer: int, pieces: Iterable[bytes], parent: int) -> None:
        """Does the work of the child."""
        _let_go({file, writer})
        try:
            digest, size = sha256(), 0
            for part in _larger(pieces):
                digest.update(part)
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(file, rest) :]
                size += len(part)
                if os.getppid() != parent:
                    return
            if self._syncs:
                os.fsync(file)
                if self._folder is not None:
                    os.fsync(os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY))
            answer = _DONE.pack(size, digest.digest()[:_DIGEST_BYTES])
        except OSError as error:
            answer = (error.strerror or repr(error)).encode()
        except BaseException as error:
            answer = repr(error).encode()[:1000]
        os.write(writer, answer)


def _unnamed() -> int:
    """Returns a file without a name, in memory where the system offers that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("surecast-snapshot")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _larger(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the same bytes in parts that are worth a write."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size >= _WRITE_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join(parts)


def _fork(work: Callable[[], None]) -> int:
    """Returns the number of a child that does some work and ends; no handler of a signal runs in it."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child takes none of their locks
            child = os.fork()
        if not child:
            _do_and_end(work)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return child


def _do_and_end(work: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        gc.disable()  # a collection would touch, and so copy, the whole memory
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.nice(_NICE)
        work()
        status = 0
    finally:
        os._exit(status)


def _let_go(kept: set[int]) -> None:
    """Closes every file and socket but these; what is printed goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in {0, 1, 2} - kept:
        os.dup2(nowhere, standard)
    at = 3
    for each in (*sorted(kept), min(os.sysconf("SC_OPEN_MAX"), _OPEN_MAX)):
        os.closerange(at, each)
        at = max(at, each + 1)


def _how(status: int) -> str:
    """Returns how a process ended, in words."""
    if os.WIFSIGNALED(status):
        return f"the process that wrote it was ended by signal {os.WTERMSIG(status)}"
    return f"the process that wrote it ended with status {os.waitstatus_to_exitcode(status)}"
