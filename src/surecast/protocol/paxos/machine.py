"""The replicated state: the application, the replies to its clients, the membership, the time and the running hash."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from surecast.errors import PeerError
from surecast.protocol.codec import REST, U32, U64, Layout, bytes_of
from surecast.protocol.paxos.handler import Context, Handler, InPieces, InPlace, WithEffects
from surecast.protocol.paxos.log_values import COUNT, REQUEST, SEGMENT, STAMP_BYTES, Segment, names_of, stamp_of
from surecast.protocol.paxos.membership import CONFIGURATION_CLIENT, Membership
from surecast.protocol.paxos.paxos_settings import PaxosSettings
from surecast.protocol.paxos.replies import ReplyCache

__all__ = ["CHECKPOINT_EVERY", "VERIFY", "Answer", "Machine", "Observer"]

Answer = tuple[int, int, bytes | None]
"""A client, its sequence number and the reply; None where the request is too old to be told new from old."""

Observer = Callable[[int, bytes, bytes], None]
"""Told of every applied instance: its number, its value, and the running hash after it."""

VERIFY: Final = b"verify"
"""The command of the configuration client by which every replica hashes its whole state, at the same instance."""

CHECKPOINT_EVERY: Final = 16
_CHECKPOINTS_MAX: Final = 512

_LINK: Final = struct.Struct(">16sIQ")
_EXPIRE_EVERY: Final = 256


class _Snapshot(NamedTuple):
    applied: int
    time_us: int
    hash: bytes
    effects: bytes
    membership_bytes: int
    replies_bytes: int
    parts: bytes


_SNAPSHOT: Final = Layout(
    "paxos snapshot",
    _Snapshot,
    applied=U64,
    time_us=U64,
    hash=bytes_of(16),
    effects=bytes_of(16),
    membership_bytes=U32,
    replies_bytes=U32,
    parts=REST,
)


class Machine:
    """Applies chosen values in order. Two machines that applied the same values are equal in every respect.

    `hash` runs over the values, and `effects` over what the handler says, every `CHECKPOINT_EVERY` instances, that it
    made of them; `checkpoints` are the last of these by instance. `verified` is the last instance at which the whole
    state was hashed, and that hash.

    >>> from surecast.protocol.paxos.log_values import join_segments, make_segment
    >>> from surecast.protocol.paxos.example_store import ExampleStore, incr
    >>> machine = Machine(ExampleStore(), Membership.founding([1], 10), PaxosSettings())
    >>> value = join_segments(5, [make_segment(1, 1, [(7, 1, incr(b"k"))])])
    >>> machine.apply(value, replica=1)
    [(1, 1, [(7, 1, b'+1')])]
    >>> machine.apply(value, replica=1), machine.applied
    ([(1, 1, [(7, 1, b'+1')])], 2)
    """

    def __init__(
        self, handler: Handler, membership: Membership, settings: PaxosSettings, observer: Observer | None = None
    ):
        self.handler = handler
        self._execute_in = handler.execute_in if isinstance(handler, InPlace) else self._execute_copy
        self.observer = observer
        self.membership = membership
        self.cache = ReplyCache(settings.reply_window, settings.clients_max, int(settings.client_expiry_s * 1e6))
        self.context = Context()
        self.applied = 0
        self.hash = bytes(16)
        self.effects = bytes(16)
        self.checkpoints: dict[int, bytes] = {}
        self.verified = (0, b"")
        self._effects_of = handler.effects if isinstance(handler, WithEffects) else None
        self._verifies = False
        self.hashes: dict[int, bytes] = {}  # the running hash of values at the checkpoints

    def apply(self, value: bytes, replica: int) -> list[tuple[int, int, list[Answer] | None]]:
        """Applies the next value: its segments by origin and number, with the answers where `replica` is the origin."""
        self.applied = slot = self.applied + 1
        self.hash = sha256(_LINK.pack(self.hash, crc32(value), len(value))).digest()[:16]
        context = self.context
        context.slot = slot
        # Whoever proposed may have had a slow clock; the time of the log never goes back.
        if value and (stamp_us := stamp_of(value)) > context.time_us:
            context.time_us = stamp_us
        done: list[tuple[int, int, list[Answer] | None]] = []
        at, end = STAMP_BYTES, len(value)
        while at < end:  # as `segments_of`, without a generator
            origin, number, size = SEGMENT.unpack_from(value, at)
            at += SEGMENT.size
            done.append((origin, number, self._execute(value, at, context, origin == replica)))
            at += size
        if slot % _EXPIRE_EVERY == 0:
            self.cache.expire(context.time_us)
        if len(self.membership.configurations) > 1:
            self.membership.passed(slot)
        if slot % CHECKPOINT_EVERY == 0:
            if self._effects_of is not None:
                self.effects = sha256(self.effects + self._effects_of(slot)).digest()[:16]
            self._checkpoint(slot)
        if self._verifies:
            self._verify(slot)
        if self.observer is not None:
            self.observer(slot, value, self.hash)
        return done

    def _verify(self, slot: int) -> None:
        """Hashes the whole state, and makes it an effect, so that it is compared as all others are."""
        self._verifies = False
        whole = sha256()
        for piece in self.pieces():
            whole.update(piece)
        self.verified = (slot, whole.digest()[:16])
        self.effects = sha256(self.effects + self.verified[1]).digest()[:16]
        self._checkpoint(slot)

    def _checkpoint(self, slot: int) -> None:
        for table, value in ((self.checkpoints, self.effects), (self.hashes, self.hash)):
            table[slot] = value
            if len(table) > _CHECKPOINTS_MAX:
                del table[next(iter(table))]

    def _configure(self, slot: int, command: bytes) -> bytes:
        """Applies a command of the configuration client."""
        if command != VERIFY:
            return self.membership.execute(slot, command)
        self._verifies = True
        return b"+%d" % slot

    def _execute(self, value: bytes, at: int, context: Context, wanted: bool) -> list[Answer] | None:
        """P2S Algorithm 1, lines 23 to 25: a new request is applied, an old one answered from the queue."""
        execute, cache, time_us = self._execute_in, self.cache, context.time_us
        window, sessions = cache.window, cache.sessions
        answers: list[Answer] = []
        (count,) = COUNT.unpack_from(value, at)
        row = at + COUNT.size
        end = row + count * REQUEST.size
        for _ in range(count):  # as `walk`, without a generator
            client, sequence, size = REQUEST.unpack_from(value, row)
            row += REQUEST.size
            begin, end = end, end + size
            session = sessions.get(client)
            if session is None:
                if client == CONFIGURATION_CLIENT:
                    answers.append((client, sequence, self._configure(context.slot, value[begin:end])))
                    continue
                session = cache.session(client)
            session.last_us = time_us
            reply: bytes | None
            if sequence == session.highest + 1:  # the usual case; what `Session.add` does, without calling it
                reply = session.replies[sequence] = execute(value, begin, end, context)
                session.highest = sequence
                if sequence - window > session.floor:
                    session.floor = sequence - window
                    session.replies.pop(session.floor, None)
            else:
                reply = session.replies.get(sequence)
                if reply is None and sequence > session.floor:
                    reply = execute(value, begin, end, context)
                    session.add(sequence, reply, window)
            if wanted:
                answers.append((client, sequence, reply))
        return answers if wanted else None

    def _execute_copy(self, data: bytes, begin: int, end: int, context: Context) -> bytes:
        return self.handler.execute(data[begin:end], context)

    def cached(self, segment: Segment) -> list[Answer] | None:
        """The answers to the requests of a segment that were all applied before; None as soon as one may be new."""
        answers: list[Answer] = []
        sessions, data = self.cache.sessions, segment.pieces[0]
        if len(data) > SEGMENT.size + COUNT.size:
            client, sequence, _ = REQUEST.unpack_from(data, SEGMENT.size + COUNT.size)
            if (session := sessions.get(client)) is None or sequence > session.highest:
                return None  # most are new
        for client, sequence, _ in names_of(data, SEGMENT.size):
            session = sessions.get(client)
            reply = None if session is None else session.replies.get(sequence)
            if session is None or (reply is None and sequence > session.floor):
                return None
            answers.append((client, sequence, reply))
        return answers

    def encode(self) -> bytes:
        """A snapshot of everything; equal machines give equal bytes."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Yields a snapshot piece by piece; the machine must not change meanwhile."""
        membership, replies, handler = self.membership.encode(), self.cache.encode(), self.handler
        sizes = len(membership), len(replies)
        parts = membership + replies
        yield _SNAPSHOT.encode(_Snapshot(self.applied, self.context.time_us, self.hash, self.effects, *sizes, parts))
        if isinstance(handler, InPieces):
            yield from handler.snapshot_pieces()
        else:
            yield handler.snapshot()

    def decode(self, data: bytes) -> None:
        """Replaces everything by a snapshot."""
        applied, time_us, running, effects, membership, replies, parts = _SNAPSHOT.decode(data)
        if len(parts) < membership + replies:
            raise PeerError(f"paxos snapshot: it ends after {len(parts)} bytes of {membership + replies}")
        self.membership.become(parts[:membership])
        self.cache.decode(parts[membership : membership + replies])
        self.handler.restore(parts[membership + replies :])
        self.applied, self.hash, self.effects = applied, running, effects
        self.hashes = {applied: running}
        self.checkpoints = {}
        self._verifies = False
        self.context.slot, self.context.time_us = applied, time_us
