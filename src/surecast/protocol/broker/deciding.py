"""SUBSCRIBE with a response target: the answer waits for a decision, and says how the target will be kept.

The subscription begins with its answer, a few milliseconds after it was asked for. Everything else that the client
sends meanwhile is handled as usual.
"""

from __future__ import annotations

import json
from typing import Final

from surecast.errors import ConfigurationError
from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.incoming import Incoming
from surecast.protocol.broker.message import text_field
from surecast.protocol.broker.observer import Observer
from surecast.protocol.broker.response_target import WITHDRAWN, Decision, ResponseTarget, answer_of, target_in
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.sessions import Sessions
from surecast.protocol.broker.subscribing import Subscribing
from surecast.protocol.broker.target_state import TargetState
from surecast.protocol.broker.targets import Targets
from surecast.protocol.mqtt import V5, PacketDecoder, Properties, Publish, ReasonCode, Subscribe, encode

__all__ = ["TARGET_TOPIC", "Deciding"]

TARGET_TOPIC: Final = "$SURECAST/targets"
"""The topic of notices that a target can no longer be met, or can again."""
_NO_SESSION: Final = "a response target needs a session that outlives its connection: ask for a session expiry"


class Deciding:
    """Takes targets from SUBSCRIBE packets, and decisions from whoever computes them."""

    def __init__(
        self,
        targets: Targets,
        sessions: Sessions,
        connections: dict[int, Connection],
        subscribing: Subscribing,
        incoming: Incoming,
        dirty: set[Connection],
        observer: Observer | None,
    ):
        self._targets = targets
        self._sessions = sessions
        self._connections = connections
        self._subscribing = subscribing
        self._incoming = incoming
        self._dirty = dirty
        self._observer = observer

    def takes(self, connection: Connection, session: Session, packet: Subscribe, now: float) -> bool:
        """Returns True if a SUBSCRIBE has something to say of a target, and will be answered, or is."""
        if not packet.properties.user:
            return False
        try:
            target = target_in(packet.properties)
        except ConfigurationError as error:
            explained = Properties(reason_string=str(error)[:1_000])
            self._subscribing.refuse(connection, packet, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, explained)
            return True
        if target is None:
            return False
        if target != WITHDRAWN:
            self._ask(connection, session, packet, target, now)
        else:
            self._targets.forget(session)
            self._sessions.apply_decision(session)
            self._subscribing.subscribe(connection, session, packet, now)
        return True

    def _ask(
        self, connection: Connection, session: Session, packet: Subscribe, target: ResponseTarget, now: float
    ) -> None:
        if session.monitor is None:
            explained = Properties(reason_string=_NO_SESSION)
            if target.is_required:
                self._subscribing.refuse(connection, packet, ReasonCode.QUOTA_EXCEEDED, explained)
            else:
                self._subscribing.subscribe(connection, session, packet, now, explained)
            return
        state = session.target
        if state is not None and state.packet:
            # Another one that still waits is answered with what is known: its target is out of date.
            self._answer(session, state, now)
        if state is not None and state.is_own and state.target == target and state.decided == state.revision:
            self._reply(connection, session, packet, state, now)
            return
        state = self._targets.set(session, target, now)
        state.connection, state.packet = connection.number, encode(packet, V5)

    def decide(self, key: str, revision: int, decision: Decision, now: float) -> None:
        """A decision has come: it holds from now on, and whoever waits for it is answered."""
        session = self._sessions.by_key.get(key)
        if session is None:
            return
        before = session.target
        was_met = before.decision.is_met if before is not None and before.decided else None
        state = self._targets.decide(session, revision, decision)
        if state is None:
            return
        self._sessions.apply_decision(session)
        if self._observer is not None:
            self._observer.decided(session, state, now)
        if state.packet:
            self._answer(session, state, now)
        if decision.is_met is not (True if was_met is None else was_met) and session.target is state:
            self._tell(session, state, now)

    def _answer(self, session: Session, state: TargetState, now: float) -> None:
        """Handles the SUBSCRIBE that waits, if its connection is still there."""
        connection, data = self._connections.get(state.connection), state.packet
        state.connection, state.packet = 0, b""
        if connection is None or connection.session is not session:
            return
        (packet,) = PacketDecoder(len(data), version=V5).feed(data)
        assert isinstance(packet, Subscribe)
        self._reply(connection, session, packet, state, now)

    def _reply(
        self, connection: Connection, session: Session, packet: Subscribe, state: TargetState, now: float
    ) -> None:
        self._dirty.add(connection)
        decision = state.decision
        explained = Properties(reason_string=decision.reason[:1_000] or None, user=answer_of(decision))
        if state.target.is_required and not decision.is_met:
            self._targets.forget(session)
            self._sessions.apply_decision(session)
            self._subscribing.refuse(connection, packet, ReasonCode.QUOTA_EXCEEDED, explained)
        else:
            self._subscribing.subscribe(connection, session, packet, now, explained)

    def _tell(self, session: Session, state: TargetState, now: float) -> None:
        """Publishes that a target cannot be met any more, or can be again."""
        decision = state.decision
        notice = {
            "client": session.client,
            "user": session.user or None,
            "target": state.target.text,
            "met": decision.is_met,
            "policy": decision.policy,
            "parameter": decision.parameter,
            "reason": decision.reason or None,
        }
        packet = Publish(TARGET_TOPIC, json.dumps(notice).encode(), 1)
        message = self._incoming.message(packet, TARGET_TOPIC, text_field(TARGET_TOPIC), "", now)
        self._incoming.take(message, now)
