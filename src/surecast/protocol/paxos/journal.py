"""The durable state of a replica as keys and values, the shape that every store of the broker keeps.

    Pi              who it is: number, token, and the founding members
    Pl              its incarnations: how often it started, and the numbers drawn at the last starts, the newest first
    Pm REPLICA      what it remembers of another replica: its last start, and the highest that it said it has stored
    Px              why it must not start again
    Pp              the ballot it promised
    Pv SLOT BALLOT  its vote on an instance: the value
    Pk SLOT         the ballot for which it closed an instance to fast votes
    Pc              how far it knows instances to be chosen, and its hash of effects there; its votes up to there are
                    for the chosen values
    Ps              its snapshot: the instance, the number of pieces
    Pd PIECE        a piece of the snapshot
    Pf              in place of both: which file of the shell has the snapshot, its instance, size and digest

Numbers have eight bytes. One turn's changes are committed together or not at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from surecast.errors import ConfigurationError
from surecast.protocol.codec import U16, U32, U64, Layout, bytes_of, numbers
from surecast.protocol.paxos.incarnations import HistoryError, Seen

__all__ = ["Journal", "Record", "Restored", "SnapshotReference", "read_records", "refusal"]

Record = tuple[bytes, bytes | None]

_NUMBER: Final = struct.Struct(">Q")
_VOTE: Final = struct.Struct(">2sQQ")
_PIECE_BYTES: Final = 1 << 20


class _Identity(NamedTuple):
    replica: int
    token: int
    members: tuple[int, ...]


class _Incarnations(NamedTuple):
    incarnation: int
    starts: tuple[int, ...]


class _Snapshot(NamedTuple):
    slot: int
    pieces: int


class SnapshotReference(NamedTuple):
    """The name of a snapshot in a file: its instance, the number of the file, its size and digest."""

    slot: int
    number: int
    size: int
    digest: bytes


_IDENTITY: Final = Layout("paxos identity", _Identity, replica=U16, token=U64, members=numbers(U16, None))
_INCARNATIONS: Final = Layout("paxos incarnations", _Incarnations, incarnation=U64, starts=numbers(U64, None))
_SEEN: Final = Layout("paxos replica", Seen, incarnation=U64, start=U64, promised=U64, voted=U64)
_SNAPSHOT: Final = Layout("paxos snapshot", _Snapshot, slot=U64, pieces=U32)
_FILE: Final = Layout("paxos snapshot file", SnapshotReference, slot=U64, number=U64, size=U64, digest=bytes_of(16))
_WHO: Final = frozenset((b"Pi", b"Pl", b"Pm", b"Px"))


def refusal(error: HistoryError) -> Record:
    """The record that keeps a replica from starting again."""
    return b"Px", str(error).encode()


class Journal:
    """Collects the changes of a turn, in order.

    >>> journal = Journal()
    >>> journal.promise(6)
    >>> journal.take()
    [(b'Pp', b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x06')]
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._pieces = 0
        self._has_file = False

    def take(self) -> list[Record]:
        """The changes since the last call."""
        records, self.records = self.records, []
        return records

    def identity(self, replica: int, token: int, members: Iterable[int]) -> None:
        """Writes who this replica is."""
        self.records.append((b"Pi", _IDENTITY.encode(_Identity(replica, token, tuple(members)))))

    def incarnations(self, incarnation: int, starts: Sequence[int]) -> None:
        """Writes how often this replica started, and the numbers drawn at the last starts."""
        self.records.append((b"Pl", _INCARNATIONS.encode(_Incarnations(incarnation, tuple(starts)))))

    def seen(self, replica: int, seen: Seen) -> None:
        """Writes what is remembered of another replica."""
        self.records.append((b"Pm" + replica.to_bytes(2, "big"), _SEEN.encode(seen)))

    def promise(self, ballot: int) -> None:
        """Writes the promise."""
        self.records.append((b"Pp", _NUMBER.pack(ballot)))

    def vote(self, slot: int, ballot: int, value: bytes) -> None:
        """Writes a vote. The ballot is part of the key, so that the value need not be copied."""
        self.records.append((_VOTE.pack(b"Pv", slot, ballot), value))

    def close(self, slot: int, ballot: int) -> None:
        """Writes that an instance is closed to fast votes of a ballot."""
        self.records.append((b"Pk" + _NUMBER.pack(slot), _NUMBER.pack(ballot)))

    def forget_vote(self, slot: int, ballot: int) -> None:
        """Deletes a vote."""
        self.records.append((_VOTE.pack(b"Pv", slot, ballot), None))

    def forget_close(self, slot: int) -> None:
        """Deletes a closing."""
        self.records.append((b"Pk" + _NUMBER.pack(slot), None))

    def chosen(self, slot: int, effects: bytes) -> None:
        """Writes how far instances are known to be chosen, and what hash of effects they led to."""
        self.records.append((b"Pc", _NUMBER.pack(slot) + effects))

    def snapshot(self, slot: int, data: bytes) -> None:
        """Writes a snapshot over the earlier one, in pieces that a store takes easily."""
        pieces = [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]
        self.records += [(b"Pd" + _NUMBER.pack(number), piece) for number, piece in enumerate(pieces)]
        self.records += [(b"Pd" + _NUMBER.pack(number), None) for number in range(len(pieces), self._pieces)]
        self.records.append((b"Ps", _SNAPSHOT.encode(_Snapshot(slot, len(pieces)))))
        if self._has_file:
            self.records.append((b"Pf", None))
        self._pieces, self._has_file = len(pieces), False

    def snapshot_file(self, reference: SnapshotReference) -> None:
        """Writes which file has the snapshot, in place of the earlier one."""
        self.records += [(b"Pd" + _NUMBER.pack(number), None) for number in range(self._pieces)]
        self.records += [(b"Ps", None), (b"Pf", _FILE.encode(reference))]
        self._pieces, self._has_file = 0, True

    def resume(self, pieces: int, has_file: bool) -> None:
        """Tells how many pieces the stored snapshot has, or that it is in a file."""
        self._pieces, self._has_file = pieces, has_file


@dataclass(slots=True)
class Restored:
    """The state that was read back."""

    replica: int = 0
    token: int = 0
    incarnation: int = 0
    starts: tuple[int, ...] = ()
    seen: dict[int, Seen] = field(default_factory=dict)
    members: tuple[int, ...] = ()
    promised: int = 0
    votes: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    closed: dict[int, int] = field(default_factory=dict)
    chosen: int = 0
    effects: bytes = b""
    snapshot_slot: int = 0
    pieces: int = 0
    snapshot: bytes = b""
    file: SnapshotReference | None = None
    """Where the snapshot is, if not in pieces."""

    @property
    def voted(self) -> int:
        """The last instance that was voted on or applied."""
        return max(self.snapshot_slot, max(self.votes, default=0))

    def check(self, replica: int, token: int, members: tuple[int, ...], founds: bool) -> None:
        """ConfigurationError where this is not the state of a replica, or one that it must not begin with."""
        if self.replica and self.replica != replica:
            raise ConfigurationError(
                f"paxos store: it belongs to replica {self.replica}, not {replica}; give each replica its own store"
            )
        if token == 0 and replica not in members:
            raise ConfigurationError(
                f"paxos replica {replica}: not among the founders {list(members)}; a replica that joins has a token"
            )
        if token == 0 and not self.replica and not founds:
            raise ConfigurationError(
                f"paxos replica {replica}: its store is empty, but the group was founded before; replace the replica"
            )


def _read_identity(found: Restored, key: bytes, value: bytes) -> None:
    """Reads who a replica is, and whom it has seen."""
    kind = key[:2]
    if kind == b"Pi":
        found.replica, found.token, found.members = _IDENTITY.decode(value)
    elif kind == b"Pl":
        found.incarnation, found.starts = _INCARNATIONS.decode(value)
    elif kind == b"Pm":
        found.seen[int.from_bytes(key[2:], "big")] = _SEEN.decode(value)
    else:
        raise HistoryError(value.decode())


def read_records(records: Iterable[tuple[bytes, bytes]]) -> Restored:
    """Reads the durable state; keys of others in the same store are passed over.

    HistoryError where the group has refused this replica before: started often enough, it would count as a new one.
    """
    found = Restored()
    parts: dict[int, bytes] = {}
    for key, value in records:
        kind = key[:2]
        if kind in _WHO:
            _read_identity(found, key, value)
        elif kind == b"Pp":
            (found.promised,) = _NUMBER.unpack(value)
        elif kind == b"Pv":
            _, slot, ballot = _VOTE.unpack(key)
            found.votes[slot] = (ballot, value)
        elif kind == b"Pk":
            (found.closed[int.from_bytes(key[2:], "big")],) = _NUMBER.unpack(value)
        elif kind == b"Pc":
            (found.chosen,), found.effects = _NUMBER.unpack_from(value), value[_NUMBER.size :]
        elif kind == b"Ps":
            found.snapshot_slot, found.pieces = _SNAPSHOT.decode(value)
        elif kind == b"Pf":
            found.file = _FILE.decode(value)
            found.snapshot_slot = found.file.slot
        elif kind == b"Pd":
            parts[int.from_bytes(key[2:], "big")] = value
    if found.replica and not found.incarnation:
        raise ConfigurationError(
            "paxos store: it was written by an earlier version of surecast; back the group up with that one, and "
            "restore the backup into a new group"
        )
    if any(number not in parts for number in range(found.pieces)):
        raise ConfigurationError(
            f"paxos store: the snapshot at {found.snapshot_slot} has {found.pieces} pieces, but only "
            f"{sorted(parts)} are there; start with an empty store as a new replica with a new number"
        )
    found.snapshot = b"".join(parts[number] for number in range(found.pieces))
    return found
