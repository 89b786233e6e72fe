"""The parts of sessions that a broker has, and those that are on their way to it or from it; with their records."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.session_transfer import FRONT
from surecast.protocol.overlay_broker.move_frames import ArrivingRow, PartRow, read_part, write_part
from surecast.protocol.overlay_broker.session_seen import SessionSeen

__all__ = ["AGAIN_S", "PART_KEY", "ArrivingPart", "LeavingPart", "SessionPart", "SessionParts"]

PART_KEY: Final = b"ox"
"""Records of parts of sessions begin with this, and then have the key of the session."""
AGAIN_S: Final = 3.0


@dataclass(slots=True)
class ArrivingPart:
    """A part that another broker sends here: how far it has come."""

    transfer: int
    applied: int = 0
    is_ready: bool = False
    is_closed: bool = False


@dataclass(slots=True)
class LeavingPart:
    """Where a part goes. `trees` are those over which the receiver has answered, `sent` the ends of the pieces on their
    way. It `has_lent` identifiers of what was in flight. When nothing is heard it begins again from `acked` on."""

    target: str
    transfer: int
    acked: int = 0
    sent: deque[int] = field(default_factory=deque)
    said: str = ""
    trees: set[int] = field(default_factory=set)
    is_ready: bool = False
    has_lent: bool = False
    closes_s: float = inf
    again_s: float = -inf
    pause_s: float = AGAIN_S

    @property
    def is_open(self) -> bool:
        """Returns whether an answer is due."""
        return bool(not self.is_ready or self.sent or self.said == "close")


@dataclass(slots=True)
class SessionPart:
    """A broker's knowledge of its part of a session. `epoch` names what the client takes for one session. `came_s` is
    when its client had connected before it came here, in microseconds; infinite where the client was served here."""

    epoch: str
    is_watched: bool = False
    arriving: dict[str, ArrivingPart] = field(default_factory=dict)
    came_s: float = inf
    leaving: LeavingPart | None = None


class SessionParts:
    """The parts of sessions of one broker, by the keys of the sessions. `changed` are to be written."""

    def __init__(self, core: BrokerCore, name: str, incarnation: int):
        self.leaving: dict[str, None] = {}
        """The keys of those that go elsewhere."""
        self.watched: dict[str, None] = {}
        """The keys of those of which other parts may come: what they have had is on disk."""
        self.changed: dict[str, None] = {}
        self._core = core
        self._name = name
        self._incarnation = incarnation
        self._parts: dict[str, SessionPart] = {}
        self._number = 0

    def __getitem__(self, key: str) -> SessionPart:
        return self._parts[key]

    def __setitem__(self, key: str, part: SessionPart) -> None:
        self._parts[key] = part
        self.changed[key] = None

    def get(self, key: str) -> SessionPart | None:
        """Returns what is known of a part; None where there is nothing to know."""
        return self._parts.get(key)

    def new(self, arriving: dict[str, ArrivingPart] | None = None) -> SessionPart:
        """Returns a part of a session that begins here."""
        return SessionPart(f"{self._name}/{self._incarnation}/{self._take_number()}", arriving=arriving or {})

    def leave(self, key: str, part: SessionPart, target: str) -> None:
        """A part goes to another broker, by a number unlike any other of this broker."""
        part.leaving = LeavingPart(target, (self._incarnation << 20) + self._take_number() & (1 << 64) - 1)
        self.leaving[key] = self.changed[key] = None

    def watch(self, key: str, part: SessionPart) -> None:
        """Another part may come."""
        part.is_watched = True
        self.watched[key] = self.changed[key] = None

    def forget(self, key: str) -> None:
        """A part is no more."""
        del self._parts[key]
        self.leaving.pop(key, None)
        self.watched.pop(key, None)
        self.changed[key] = None

    def _take_number(self) -> int:
        self._number += 1
        return self._number

    def write(self) -> None:
        """Gives the journal what has changed."""
        records: list[tuple[bytes, bytes | None]] = []
        sessions = self._core.sessions.by_key
        for key in (*self.watched, *self.leaving):
            seen = sessions[key].seen if key in sessions else None
            if isinstance(seen, SessionSeen) and seen.is_changed:
                self.changed[key] = None
        for key in self.changed:
            part = self._parts.get(key)
            records.append((PART_KEY + key.encode(), None if part is None else self._record(key, part)))
        self.changed.clear()
        if records:
            self._core.journal.others(records)

    def _record(self, key: str, part: SessionPart) -> bytes:
        session = self._core.sessions.by_key.get(key)
        seen = session.seen if session is not None and isinstance(session.seen, SessionSeen) else SessionSeen()
        seen.is_changed = False
        keeps = part.is_watched or part.leaving is not None
        leaving = part.leaving or LeavingPart("", 0)
        arriving = tuple(
            ArrivingRow(sender, each.transfer, each.applied, each.is_ready, each.is_closed)
            for sender, each in part.arriving.items()
        )
        return write_part(
            PartRow(
                part.epoch,
                session is not None and session.renewed,
                seen.since_s,
                part.is_watched,
                *((seen.had, seen.elsewhere, seen.done) if keeps else ((), (), ())),
                arriving,
                leaving.target,
                leaving.transfer,
            )
        )

    def restore(self, records: Mapping[str, bytes]) -> None:
        """Takes back what was on disk, when the core has its sessions."""
        sessions = self._core.sessions.by_key
        for key, data in records.items():
            row, session = read_part(data), sessions.get(key)
            if session is None and not row.arriving:
                self.changed[key] = None
                continue
            part = self._parts[key] = SessionPart(row.epoch, row.is_watched)
            for sender, transfer, applied, is_ready, is_closed in row.arriving:
                part.arriving[sender] = ArrivingPart(transfer, applied, is_ready, is_closed)
            if part.is_watched:
                self.watched[key] = None
            if session is None:
                continue
            if row.target:
                self.leave(key, part, row.target)
                session.ends_at = inf
            if any(not each.is_ready for each in part.arriving.values()):
                session.next_sequence = max(session.next_sequence, FRONT)
            session.renewed = row.is_renewed and not session.subscriptions
            if isinstance(session.seen, SessionSeen):
                session.seen.restore(row.had, row.elsewhere, row.done, row.since_s)
        for session in sessions.values():
            seen = session.seen
            if isinstance(seen, SessionSeen):
                for delivery in (*session.inflight.values(), *session.waiting):
                    seen.has(delivery.message)
