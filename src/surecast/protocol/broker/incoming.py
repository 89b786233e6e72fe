"""Messages from clients: who may publish, where they go, how they are acknowledged (MQTT 5.0, sections 3.3, 4.3)."""

from __future__ import annotations

from collections.abc import Callable

from surecast.errors import PeerError
from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.message import Message
from surecast.protocol.broker.message_expiry import interval_of, lifetime_of
from surecast.protocol.broker.observer import Counters, Observer
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.requests import PROPERTY, RequestError, Requests, request_of
from surecast.protocol.broker.retained import Retained
from surecast.protocol.broker.routes import Route, Routes
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.short_ways import ShortWays, refuses
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.mqtt import NO_PROPERTIES, Publish, ReasonCode, passed_on_properties

__all__ = ["Authorise", "Incoming", "ViolationError"]

Authorise = Callable[[str, str, str, str], bool]
"""Tells whether a user, with a client identifier, may `publish` to a topic, `subscribe` to a filter, or `receive` on a
topic; the last is asked only where deliveries are checked."""

_ALLOWED_MAX = 10_000
_ALLOWED_TOPIC_MAX = 256
_MEANINGS_MAX = 1_000
_MEANING_BYTES_MAX = 256


class ViolationError(PeerError):
    """What a client did that its connection does not survive."""

    def __init__(self, reason: ReasonCode, message: str):
        super().__init__(message)
        self.reason = reason


class Incoming(ShortWays):
    """Takes messages over from clients and gives them to the sessions that want them."""

    def __init__(
        self,
        journal: Journal,
        routes: Routes,
        outgoing: Outgoing,
        retained: Retained,
        requests: Requests,
        dirty: set[Connection],
        counters: Counters,
        observer: Observer | None,
        authorise: Authorise,
    ):
        super().__init__(routes, outgoing, dirty, counters, observer)
        self._journal = journal
        self._retained = retained
        self._requests = requests
        self._authorise = authorise
        self._meanings: dict[bytes, tuple[bytes, float, float]] = {}
        self.next_number = 1

    def publish(self, connection: Connection, session: Session, packet: Publish, now: float) -> None:
        """Takes a PUBLISH; everything that can go wrong is an acknowledgement or a violation."""
        self._counters.published += 1
        qos = packet.qos
        if (
            qos < 2
            and not packet.retain
            and packet.properties is NO_PROPERTIES
            and self._observer is None
            and connection.allowed.get(packet.topic)
        ):
            route = self._routes.find(packet.topic)
            if qos == 0 and not route.taps:
                self._pass_on(connection, session, route, packet, now)
                return
            if qos and route.plain and packet.raw and not packet.dup:
                self._hand_on(connection, session, route, packet, now)
                return
        topic = self._topic(connection, packet)
        if qos == 2 and self._was_received(connection, session, packet.packet_id):
            self._answer(connection, 0x50, packet.packet_id, ReasonCode.SUCCESS)
            return
        if packet.properties.user:
            reason = self._publish_once(connection, session, packet, topic, now)
        else:
            reason = self._publish(connection, session, packet, topic, now)
        if qos == 1:
            self._answer(connection, 0x40, packet.packet_id, reason)
        elif qos == 2:
            if reason < 0x80 or not connection.version_5:
                session.received.add(packet.packet_id)
                if session.persistent:
                    self._journal.received(session, packet.packet_id)
            self._answer(connection, 0x50, packet.packet_id, reason)

    def _publish(self, connection: Connection, session: Session, packet: Publish, topic: str, now: float) -> ReasonCode:
        if not self._may_publish(connection, session, topic):
            return ReasonCode.NOT_AUTHORIZED
        route = self._routes.find(topic)
        return self.take(self.message(packet, topic, route.topic_field, session.key, now), now, route)

    def _publish_once(
        self, connection: Connection, session: Session, packet: Publish, topic: str, now: float
    ) -> ReasonCode:
        """Publishes a message, unless it is a request that was here before: then its first outcome is told again."""
        try:
            request = request_of(packet.properties)
            known = self._requests.outcome(connection.user, request) if request is not None else None
        except RequestError as error:
            self._counters.notice(f"{session.client}: {error}")
            return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        if known is not None:
            return known
        reason = self._publish(connection, session, packet, topic, now)
        if request is not None and reason != ReasonCode.NOT_AUTHORIZED:
            self._requests.keep(connection.user, request, reason, packet.qos, now)
        return reason

    def _was_received(self, connection: Connection, session: Session, identifier: int) -> bool:
        """Whether a QoS 2 message is a repetition. MQTT 3.1.1 limits what is open by its identifiers alone."""
        if identifier in session.received:
            return True
        limit = connection.limits.receive_maximum
        if connection.version_5 and len(session.received) >= limit:
            raise ViolationError(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, f"more than {limit} QoS 2 messages are open")
        return False

    def release(self, connection: Connection, session: Session, identifier: int) -> None:
        """A client is done with a QoS 2 message (PUBREL)."""
        known = identifier in session.received
        if known:
            session.received.discard(identifier)
            if session.persistent:
                self._journal.forget_received(session, identifier)
        reason = ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self._answer(connection, 0x70, identifier, reason)

    def message(self, packet: Publish, topic: str, topic_field: bytes, publisher: str, now: float) -> Message:
        """The message of a packet."""
        number = self.next_number
        self.next_number = number + 1
        if packet.properties is NO_PROPERTIES:
            return Message(
                number,
                topic,
                topic_field,
                packet.payload,
                packet.qos,
                packet.retain,
                published_at=now,
                publisher=publisher,
            )
        passed_on, lifetime_s, interval_s = self._meanings.get(packet.raw_properties) or self._meaning(packet)
        return Message(
            number,
            topic,
            topic_field,
            packet.payload,
            packet.qos,
            packet.retain,
            passed_on,
            now + lifetime_s,
            now,
            publisher,
            now + interval_s,
        )

    def _meaning(self, packet: Publish) -> tuple[bytes, float, float]:
        """What properties mean for a message: what is passed on, how long it may wait, and its expiry interval."""
        given = packet.properties
        meaning = (passed_on_properties(packet, PROPERTY), lifetime_of(given), interval_of(given))
        if 0 < len(packet.raw_properties) <= _MEANING_BYTES_MAX:
            if len(self._meanings) >= _MEANINGS_MAX:
                self._meanings.clear()
            self._meanings[packet.raw_properties] = meaning
        return meaning

    def take(self, message: Message, now: float, route: Route | None = None) -> ReasonCode:
        """Retains a message if it asks for it, and routes it; the reason is what its publisher is told."""
        retained = message.retain
        if retained:
            if limit := self._retained.limit_for(message):
                self._counters.limited[limit] += 1
                return ReasonCode.QUOTA_EXCEEDED
            self._retained.store(message)
        if route is None:
            route = self._routes.find(message.topic)
        receivers = route.targets if route.plain else route.receivers(message, self._wants)
        if self._observer is not None:
            self._observer.published(message, len(receivers), now)
        deliver = self._outgoing.deliver
        kept = 0
        for target in receivers:
            kept += deliver(target, message, now)
        for tap in route.taps:
            tap(message)
        if not receivers and not route.taps:
            return ReasonCode.NO_MATCHING_SUBSCRIBERS
        if not kept and not retained and refuses(receivers):
            return ReasonCode.QUOTA_EXCEEDED
        return ReasonCode.SUCCESS

    def _topic(self, connection: Connection, packet: Publish) -> str:
        """The topic, after topic aliases (MQTT 5.0, section 3.3.2.3.4)."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet.topic
        if alias > connection.known_aliases_max:
            raise ViolationError(
                ReasonCode.TOPIC_ALIAS_INVALID,
                f"topic alias {alias} is used; at most {connection.known_aliases_max} are allowed",
            )
        if packet.topic:
            connection.known_aliases[alias] = packet.topic
            return packet.topic
        known = connection.known_aliases.get(alias)
        if known is None:
            raise ViolationError(ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} was never given a topic")
        return known

    def _may_publish(self, connection: Connection, session: Session, topic: str) -> bool:
        allowed = connection.allowed.get(topic)
        if allowed is None:
            allowed = not topic.startswith("$") and self._authorise(connection.user, session.client, "publish", topic)
            if len(topic) <= _ALLOWED_TOPIC_MAX:
                if len(connection.allowed) >= _ALLOWED_MAX:
                    connection.allowed.clear()
                connection.allowed[topic] = allowed
        if not allowed:
            self._counters.unauthorised += 1
        return allowed
