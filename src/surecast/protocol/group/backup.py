"""The state of a group in a file, and its way into a new group.

A backup is what a replica's machine gives as a snapshot, behind a line that says what it is and a line of JSON about
it. It goes into a new group through the log, in parts, so that all replicas begin with the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from surecast.errors import ConfigurationError
from surecast.protocol.codec import REST, U32, Layout, bytes_of, many, sized

__all__ = ["PARTS", "Backup", "Parts", "pack_backup", "parts_of", "read_backup"]

_TITLE: Final = b"surecast group backup "
_FIRST: Final = _TITLE + b"2\n"
PART_BYTES: Final = 256 << 10


class _Part(NamedTuple):
    digest: bytes
    at: int
    parts: int
    content: bytes


_PART: Final = Layout("part of a backup", _Part, digest=bytes_of(32), at=U32, parts=U32, content=REST)


@dataclass(frozen=True, slots=True)
class Backup:
    """The header of a backup: the group and the replica it is of, how much of the log it has, and the time of
    the log then."""

    group: str
    replica: int
    applied: int
    hash: str
    time_us: int
    version: str


def pack_backup(about: Backup, state: bytes) -> bytes:
    """The content of a file.

    >>> about = Backup("plant", 1, 7, "ab", 0, "1.0")
    >>> read_backup(pack_backup(about, b"state")) == (about, b"state")
    True
    """
    fields = {**asdict(about), "bytes": len(state), "sha256": hashlib.sha256(state).hexdigest()}
    return _FIRST + json.dumps(fields).encode() + b"\n" + state


def read_backup(data: bytes, file: str = "backup") -> tuple[Backup, bytes]:
    """Returns what `pack_backup` packed; ConfigurationError where the file is no backup, or is damaged.

    >>> read_backup(b"something else", "a.bak")
    Traceback (most recent call last):
        ...
    surecast.errors.ConfigurationError: a.bak: this is no backup of a group; surecast cluster backup writes one
    """
    if data.startswith(_TITLE) and not data.startswith(_FIRST):
        raise ConfigurationError(
            f"{file}: this backup was written by another version of surecast; restore it with that one, run it until "
            "its queues are empty, and begin a new group with this one"
        )
    if not data.startswith(_FIRST):
        raise ConfigurationError(f"{file}: this is no backup of a group; surecast cluster backup writes one")
    line, _, state = data[len(_FIRST) :].partition(b"\n")
    try:
        fields = json.loads(line)
        size, digest = int(fields.pop("bytes")), str(fields.pop("sha256"))
        about = Backup(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigurationError(f"{file}: the second line of this backup cannot be read: {error!r}") from None
    if len(state) != size or hashlib.sha256(state).hexdigest() != digest:
        raise ConfigurationError(f"{file}: this backup is damaged: {len(state)} of {size} bytes; take another one")
    return about, state


def parts_of(state: bytes) -> Iterator[bytes]:
    """A state as the data of RESTORE items.

    >>> parts = Parts()
    >>> [parts.take(part) for part in parts_of(b"state")]
    [b'state']
    """
    digest = hashlib.sha256(state).digest()
    count = max(1, -(-len(state) // PART_BYTES))
    for at in range(count):
        yield _PART.encode(_Part(digest, at, count, state[at * PART_BYTES : (at + 1) * PART_BYTES]))


class Parts:
    """The parts that have come of a backup, and the outcome of the last whole one: part of the replicated state.

    `digest` is that of the backup in flight, or of the last one. `outcome` is empty while it is in flight; then it
    begins with `+` for one that was taken, and with `!` and the reason for one that was not. `detail` is what this
    replica knows beyond that: words of libraries differ between versions, so they are no part of the state.
    """

    def __init__(self, digest: bytes = b"", outcome: bytes = b"", parts: Iterable[bytes] = ()) -> None:
        self.digest = digest
        self.outcome = outcome
        self.detail = ""
        self.parts = list(parts)

    def take(self, data: bytes) -> bytes | None:
        """Takes a part; the whole state once it is there. The first part of a backup begins anew."""
        digest, at, count, content = _PART.decode(data)
        if at == 0:
            self.digest, self.outcome, self.parts = digest, b"", []
        if digest != self.digest or at != len(self.parts) or self.outcome:
            return None
        self.parts.append(content)
        if len(self.parts) < count:
            return None
        whole, self.parts = b"".join(self.parts), []
        if hashlib.sha256(whole).digest() != digest:
            self.outcome = b"!its parts do not have its check sum"
            return None
        return whole


PARTS: Final = Layout("parts of a backup", Parts, digest=sized(), outcome=sized(), parts=many(sized()))
