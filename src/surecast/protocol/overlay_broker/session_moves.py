"""Sessions that move: a client that connects to another broker of an overlay finds its session there.

The map of homes is the request: the broker at which a client connects enters itself as the home, and whoever has an
older part of the session sends it there, now or when it is back. So what was kept apart by a failure comes together
in the end, whoever failed. docs/background/overlay.md tells how, and what each side has on disk.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Final

from surecast.errors import PeerError
from surecast.protocol.broker import BrokerCore, Connection
from surecast.protocol.broker.session import Session, session_key
from surecast.protocol.broker.session_transfer import SessionPiece, SessionTransfers
from surecast.protocol.mqtt import Connect, ReasonCode
from surecast.protocol.overlay.event_bodies import BatchedMessage, MessageRun
from surecast.protocol.overlay.overlay_frames import EventBatch
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import HOME_TOPICS
from surecast.protocol.overlay_broker.move_frames import SessionOffer, SessionStatus, read_frame, write_frame
from surecast.protocol.overlay_broker.session_homes import SessionHomes
from surecast.protocol.overlay_broker.session_parts import AGAIN_S, ArrivingPart, SessionPart, SessionParts
from surecast.protocol.overlay_broker.session_seen import SessionSeen

__all__ = ["SessionMoves"]

_PIECE_BYTES: Final = 256 << 10
_PIECES_MAX: Final = 4
_AGAIN_MAX_S: Final = 60.0
_NOTHING: Final = SessionPiece(0, 0, ())


@dataclass(slots=True)
class _Waiting:
    """A client that waits for its session."""

    connection: Connection
    source: str
    until_s: float
    asked: int
    """The transfer that was stopped because the client came back; 0 if there was none."""
    is_whole: bool
    """Whether what is left here is a session that can go on: nobody else can have served its client."""
    again_s: float = inf


class SessionMoves:
    """Moves the sessions of one broker. `wait_s` is how long a client waits for a broker that sends nothing, and
    `linger_s` how long the old broker goes on taking messages for a session that has left."""

    def __init__(self, node: OverlayNode, homes: SessionHomes, core: BrokerCore):
        self.moved_in = 0
        """Sessions that have come here, whole."""
        self.moved_out = 0
        """Sessions that have gone to other brokers, whole."""
        self.begun_anew = 0
        """Clients that began anew, because the broker with their session could not be reached."""
        self.messages_in = 0
        """Messages that have come with sessions."""
        self.repeated = 0
        """Of these, messages that the session had already."""
        self._node = node
        self._homes = homes
        self._core = core
        self._wait_s, self._linger_s = node.settings.move_wait_s, node.settings.move_linger_s
        self._transfers = SessionTransfers(core)
        self._parts = SessionParts(core, node.name, node.incarnation)
        self._waiting: dict[str, _Waiting] = {}
        self._admitted: Connection | None = None
        self._anew: dict[str, float] = {}
        self._unsure: dict[str, bool] = {}
        """The keys of sessions that were on their way here when the broker died, before it knew anything of them."""
        self._out: list[tuple[str, int, SessionOffer | SessionStatus]] = []

    # Clients

    def waits(self, connection: Connection, connect: Connect, now: float) -> bool:
        """Returns whether a client that connects has to wait for its session, which is at another broker."""
        if not connect.client_id or connection is self._admitted:
            return False
        key = session_key(connection.user, connect.client_id)
        before = self._supersede(key, now)
        session, part = self._core.sessions.by_key.get(key), self._parts.get(key)
        leaving = part.leaving if part is not None else None
        home = self._homes.home_of(key)
        if connect.clean_start:
            if part is not None and leaving is not None:
                self._stay(key, part)
            if home and home != self._node.name:
                self._homes.claim(key, now, is_clean=True)
            return False
        if before is None and session is not None and leaving is None:
            if session.renewed:  # its client has not heard of it
                self._transfers.renew(session, now)
            return False
        is_unsure = self._unsure.pop(key, False)
        source = leaving.target if leaving is not None else home or (self._node.name if is_unsure else "")
        if before is None and not source:
            return False
        self._homes.claimed[key] = None
        self._homes.claim(key, now)
        asked = leaving.transfer if leaving is not None else 0
        is_whole = leaving is not None and not (leaving.is_ready or leaving.has_lent)
        if part is not None and leaving is not None:
            self._stay(key, part)
        if before is not None:  # the same client has waited already
            source, asked, is_whole = before.source, before.asked, before.is_whole
        waiting = self._waiting[key] = _Waiting(connection, source, now + self._wait_s, asked, is_whole)
        if not self._node.is_in_reach(source, HOME_TOPICS):
            self._give_up(key, waiting, now)
            return False
        self._ask(key, waiting, now)
        return True

    def _supersede(self, key: str, now: float) -> _Waiting | None:
        """A later connection of a client, here or elsewhere, takes the place of one that waits, which is returned."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._homes.claimed.pop(key, None)
            self._core.refuse(waiting.connection, now, ReasonCode.SERVER_BUSY)
        return waiting

    def _ask(self, key: str, waiting: _Waiting, now: float) -> None:
        """Asks the broker to which a part was on its way whether it has any of it: the client has come back."""
        waiting.again_s = now + AGAIN_S if waiting.asked else inf
        if waiting.asked:
            offer = SessionOffer(waiting.asked, key, "", False, 0, now, "back", None, (), (), _NOTHING)
            self._out.append((waiting.source, 0, offer))

    def _give_up(self, key: str, waiting: _Waiting, now: float) -> None:
        """Serves a client without what another broker has."""
        del self._waiting[key]
        self._homes.claimed.pop(key, None)
        if not waiting.is_whole:
            self._begin_anew(key, now)

    def _begin_anew(self, key: str, now: float) -> None:
        """The session cannot come now: its client begins anew, and what comes later is added."""
        self.begun_anew += 1
        session = self._core.sessions.by_key.get(key)
        self._anew[key] = now if session is None else -inf
        if session is not None:
            self._transfers.renew(session, now)

    def _admit(self, key: str, now: float) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._homes.claimed.pop(key, None)
            session = self._core.sessions.by_key.get(key)
            if session is not None and session.renewed:  # its client has not heard of it
                self._transfers.renew(session, now)
            self._serve(key, waiting, now)

    def _serve(self, key: str, waiting: _Waiting, now: float) -> None:
        self._admitted = connection = waiting.connection
        self._core.admit(connection, connection.user, now)
        self._admitted = None
        if connection.session is not None:
            self._homes.admitted[key] = connection

    # Sessions of this broker

    @property
    def on_their_way(self) -> int:
        """The number of sessions that are leaving for another broker."""
        return len(self._parts.leaving)

    @property
    def waiting(self) -> int:
        """The number of clients that wait for their sessions."""
        return len(self._waiting)

    def target_of(self, key: str) -> str:
        """Returns the broker to which a session is going; nothing where it stays."""
        part = self._parts.get(key)
        return part.leaving.target if part is not None and part.leaving is not None else ""

    def has_left(self, key: str) -> bool:
        """Returns whether a session has gone to another broker, and only what is late for it comes here."""
        part = self._parts.get(key)
        return part is not None and part.leaving is not None and part.leaving.is_ready

    def note(self, keys: dict[str, None], now: float) -> None:
        """Looks at sessions that have begun, ended or were connected to."""
        for key in keys:
            session, part = self._core.sessions.by_key.get(key), self._parts.get(key)
            since_s = self._anew.pop(key, None)
            if session is None or not session.persistent:
                if part is not None and not part.arriving:
                    self._parts.forget(key)
                continue
            if part is not None and session.connection is not None:
                part.came_s = inf
            if part is None or since_s is not None:
                arriving = part.arriving if part is not None else {}
                part = self._parts[key] = self._parts.new(arriving)
                if since_s is not None:
                    session.renewed = not session.subscriptions
                    self._parts.watch(key, part)
                    if isinstance(session.seen, SessionSeen):
                        session.seen.since_s = since_s

    def leave(self, key: str, home: str, is_clean: bool, now: float) -> None:
        """A session of this broker is at home elsewhere: it goes there, or is over where it began anew. A connection
        that still waits for it is refused, as its client has connected elsewhere since."""
        has_waited = self._supersede(key, now) is not None
        session = self._core.sessions.by_key.get(key)
        if session is None:
            if has_waited:
                self._homes.disown(key)
            return
        if is_clean:
            self._core.end_session(key, now)
            return
        part = self._parts.get(key)
        if part is not None and part.leaving is not None and part.leaving.target == home:
            return
        if session.connection is not None:
            self._core.disconnect(session.connection, ReasonCode.SESSION_TAKEN_OVER, now)
        if self._core.sessions.by_key.get(key) is not session:
            return
        self._core.wills.cancel(session)
        session.ends_at = inf
        if part is None:
            part = self._parts[key] = self._parts.new()
        self._parts.leave(key, part, home)

    def _stay(self, key: str, part: SessionPart) -> None:
        """Keeps what is left of a part: its client has come back. Another broker may have some of it."""
        part.leaving = None
        self._parts.leaving.pop(key, None)
        self._parts.watch(key, part)

    # Other brokers

    def receive(self, batch: EventBatch, now: float) -> None:
        """Takes what another broker says; what is none is left alone."""
        sender = batch.first.origin
        if not isinstance(batch.body, MessageRun):
            return
        for message in batch.body.messages():
            try:
                frame = read_frame(message.payload)
            except PeerError:
                continue
            if isinstance(frame, SessionStatus):
                self._take_status(sender, frame, now)
            elif frame.step == "back":
                has_any = frame.key in self._core.sessions.by_key
                self._out.append((sender, 0, SessionStatus(frame.transfer, frame.key, 0, has_any, 0, False, False)))
            else:
                with suppress(PeerError, struct.error, ValueError, LookupError):  # records that are none
                    self._take_offer(sender, frame, frame.sent_s - batch.published_s, now)

    def _take_offer(self, sender: str, offer: SessionOffer, ahead_s: float, now: float) -> None:
        key = offer.key
        waiting = self._waiting.get(key)
        if waiting is not None and sender != waiting.source != self._node.name:
            return  # first the part that has served the client last, which knows what it had; others say it again
        part = self._parts.get(key)
        arriving = part.arriving.get(sender) if part is not None else None
        if part is None or arriving is None or arriving.transfer != offer.transfer:
            if offer.head is None:
                self._answer(sender, offer, None)
                return
            part, arriving = self._begin(sender, offer, now)
        session = self._core.sessions.by_key.get(key)
        piece = offer.piece
        if piece.rows and piece.after == arriving.applied:
            self._put_in(session, part, offer, ahead_s, now)
            arriving.applied = piece.until
        if piece.until <= arriving.applied:
            if offer.step in ("ready", "close") and not arriving.is_ready:
                arriving.is_ready = True
                self.moved_in += 1
                self._admit(key, now)
            arriving.is_closed = arriving.is_closed or offer.step == "close"
        if key in self._waiting:
            self._waiting[key].until_s = now + self._wait_s
        if arriving.is_closed and all(each.is_closed for each in part.arriving.values()):
            part.is_watched = False
            self._parts.watched.pop(key, None)
        self._parts.changed[key] = None
        self._answer(sender, offer, arriving)
        if arriving.is_closed and session is None:
            self._parts.forget(key)

    def _begin(self, sender: str, offer: SessionOffer, now: float) -> tuple[SessionPart, ArrivingPart]:
        """A part begins to come: the first one brings the session, others only their messages."""
        assert offer.head is not None
        key = offer.key
        part = self._parts.get(key)
        session = self._core.sessions.by_key.get(key)
        if session is None:
            session = self._transfers.make(offer.head, now)
            session.renewed = offer.is_renewed
            part = self._parts[key] = SessionPart(offer.epoch, arriving=part.arriving if part is not None else {})
            part.came_s = offer.connected
        elif part is None:
            part = self._parts[key] = self._parts.new()
        elif part.epoch != offer.epoch and session.connection is None and part.came_s < offer.connected:
            self._transfers.renew(session, now)  # an older part has come before this one
            self._transfers.subscribe(session, offer.head)
            session.renewed, part.epoch, part.came_s = offer.is_renewed, offer.epoch, offer.connected
        elif part.epoch == offer.epoch and session.connection is None:
            session.received.update(offer.head.received)
            for identifier in offer.head.received:
                self._core.journal.received(session, identifier)
        assert part is not None
        if isinstance(session.seen, SessionSeen):
            session.seen.is_elsewhere(offer.had, offer.done)
            if session.queued and offer.done:
                self._transfers.take_out_done(session, session.seen.is_done, now)
        self._parts.watch(key, part)
        self._homes.arrived(key, offer.connected, now)
        arriving = part.arriving[sender] = ArrivingPart(offer.transfer)
        return part, arriving

    def _put_in(
        self, session: Session | None, part: SessionPart, offer: SessionOffer, ahead_s: float, now: float
    ) -> None:
        count = len(offer.piece.rows)
        self.messages_in += count
        if session is None:  # it has ended meanwhile
            self._core.sessions.past.matched += count
            self._core.sessions.past.drop("session-ended", count)
            return
        self.repeated += self._transfers.put_in(
            session, offer.piece, ahead_s, now, keeps_flight=part.epoch == offer.epoch,
            is_behind=part.leaving is not None,
        )  # fmt: skip

    def _answer(self, sender: str, offer: SessionOffer, arriving: ArrivingPart | None) -> None:
        has_head = arriving is not None
        applied, is_ready, is_closed = (
            (arriving.applied, arriving.is_ready, arriving.is_closed) if arriving is not None else (0, False, False)
        )
        for tree in range(len(self._node.plan.trees)) if offer.head is not None else (0,):
            status = SessionStatus(offer.transfer, offer.key, tree, has_head, applied, is_ready, is_closed)
            self._out.append((sender, tree, status))

    def _take_status(self, sender: str, status: SessionStatus, now: float) -> None:
        key = status.key
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.asked == status.transfer and waiting.source == sender:
            if not status.has_head:
                self._admit(key, now)
            return
        part, session = self._parts.get(key), self._core.sessions.by_key.get(key)
        leaving = part.leaving if part is not None else None
        if part is None or session is None or leaving is None or leaving.transfer != status.transfer:
            return
        if not status.has_head:  # it has lost its disk
            self._parts.leave(key, part, leaving.target)
            return
        leaving.trees.add(status.tree)
        leaving.said = leaving.said or "head"
        if status.applied > leaving.acked:
            leaving.acked = status.applied
            leaving.has_lent |= self._transfers.take_out(session, status.applied, now)
        while leaving.sent and leaving.sent[0] <= leaving.acked:
            leaving.sent.popleft()
        leaving.pause_s = AGAIN_S
        leaving.again_s = now + AGAIN_S
        if status.is_ready and not leaving.is_ready:
            leaving.is_ready = True
            leaving.closes_s = now + self._linger_s
        if status.is_closed and not session.queued:
            self.moved_out += 1
            self._parts.forget(key)
            self._core.sessions.end(session, now)

    def _pump(self, key: str, now: float) -> None:
        """Sends what is due of a session that leaves."""
        part, session = self._parts[key], self._core.sessions.by_key.get(key)
        leaving = part.leaving
        if session is None or leaving is None:
            self._parts.leaving.pop(key, None)
            return
        if now >= leaving.again_s and leaving.is_open:
            leaving.sent.clear()
            leaving.again_s = now + leaving.pause_s
            leaving.pause_s = min(2 * leaving.pause_s, _AGAIN_MAX_S)
            self._say(key, session, part, "piece", _NOTHING, now, has_head=True)
            return
        if not leaving.said:
            return  # the head is on its way
        while len(leaving.sent) < _PIECES_MAX:
            after = leaving.sent[-1] if leaving.sent else leaving.acked
            piece = self._transfers.queued(session, after, _PIECE_BYTES)
            if not piece.rows:
                break
            leaving.sent.append(piece.until)
            self._say(key, session, part, "piece", piece, now)
        if leaving.sent or session.queued or len(leaving.trees) < len(self._node.plan.trees):
            return
        step = "close" if now >= leaving.closes_s else "ready"
        if leaving.said != step:
            leaving.said = step
            empty = SessionPiece(leaving.acked, leaving.acked, ())
            self._say(key, session, part, step, empty, now)

    def _say(
        self, key: str, session: Session, part: SessionPart, step: str, piece: SessionPiece, now: float,
        *, has_head: bool = False,
    ) -> None:  # fmt: skip
        leaving = part.leaving
        assert leaving is not None
        if has_head:
            leaving.said = ""
            leaving.trees.clear()
        seen = session.seen
        queued = [*session.inflight.values(), *session.waiting] if has_head else []
        offer = SessionOffer(
            leaving.transfer, key, part.epoch, session.renewed, self._homes.connected_at(key), now, step,  # type: ignore[arg-type]
            self._transfers.head_of(session) if has_head else None,
            *((*seen.elsewhere, *seen.had), seen.done_besides(queued))
            if has_head and isinstance(seen, SessionSeen) else ((), ()), piece,
        )  # fmt: skip
        self._out.append((leaving.target, 0, offer))

    # Turns

    def settle(self, now: float) -> None:
        """Sends what is due to other brokers, behind what the sessions want; to be called at the end of a turn."""
        for key in list(self._parts.leaving):
            self._pump(key, now)
        out, self._out = self._out, []
        for broker, tree, frame in out:
            body = MessageRun.of([BatchedMessage(False, inf, b"", write_frame(frame))])
            self._node.send_to(broker, tree, body, now)
        self._parts.write()

    def next_timer(self) -> float:
        """Returns when `tick` has to be called next."""
        times = [min(each.until_s, each.again_s) for each in self._waiting.values()]
        for key in self._parts.leaving:
            if (leaving := self._parts[key].leaving) is not None:
                closes_s = leaving.closes_s if leaving.said == "ready" else inf
                times.append(min(leaving.again_s if leaving.is_open else inf, closes_s))
        return min(times, default=inf)

    def tick(self, now: float) -> None:
        """Does what is due: who has waited for too long begins anew."""
        for key, waiting in list(self._waiting.items()):
            if waiting.connection.is_closed():
                self._admit(key, now)
            elif now >= waiting.until_s:
                self._give_up(key, waiting, now)
                self._serve(key, waiting, now)
            elif now >= waiting.again_s:
                self._ask(key, waiting, now)

    # A start

    def start(self, homes: Mapping[str, str], now: float) -> None:
        """Looks where sessions are at home, after a start."""
        sessions = self._core.sessions.by_key
        for key, home in homes.items():
            if home == self._node.name and key not in sessions:
                self._unsure[key] = True
            elif home != self._node.name and key in sessions:
                self.leave(key, home, False, now)

    def restore(self, records: Mapping[str, bytes]) -> None:
        """Takes back what was on disk, when the core has its sessions."""
        self._parts.restore(records)
