"""SUBSCRIBE and UNSUBSCRIBE: who may, what is kept, and which retained messages follow (MQTT 5.0, section 3.8)."""

from __future__ import annotations

from dataclasses import replace

from surecast.errors import ConfigurationError
from surecast.protocol.broker.broker_settings import BrokerSettings
from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.content import ATTRIBUTE_NAME_MAX
from surecast.protocol.broker.fan_out import Target
from surecast.protocol.broker.incoming import Authorise, ViolationError
from surecast.protocol.broker.observer import Counters, Observer
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.quotas import shape_of
from surecast.protocol.broker.retained import Retained
from surecast.protocol.broker.routes import Routes
from surecast.protocol.broker.session import Session, Subscription
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.filters import Filter, parse
from surecast.protocol.mqtt import (
    NO_PROPERTIES,
    V5,
    V31,
    V311,
    Properties,
    ReasonCode,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    encode,
    parse_shared,
)
from surecast.protocol.mqtt import SubscriptionRequest as Request
from surecast.protocol.mqtt.topics import TopicError

__all__ = ["Subscribing"]

_CONTENT = "filter"
_CONTENT_MAX = 10_000
_CONSTRAINTS_MAX = 100
_NEW_ONLY = 1
_NEVER = 2


class Subscribing:
    """Keeps the subscriptions of sessions."""

    def __init__(
        self,
        settings: BrokerSettings,
        journal: Journal,
        routes: Routes,
        outgoing: Outgoing,
        retained: Retained,
        counters: Counters,
        observer: Observer | None,
        authorise: Authorise,
    ):
        self.settings = settings
        self._journal = journal
        self._routes = routes
        self._outgoing = outgoing
        self._retained = retained
        self._counters = counters
        self._observer = observer
        self._authorise = authorise

    def subscribe(
        self,
        connection: Connection,
        session: Session,
        packet: Subscribe,
        now: float,
        explained: Properties = NO_PROPERTIES,
    ) -> None:
        """Takes a SUBSCRIBE: first the answer, with what is to be explained in it, then the retained messages."""
        try:
            content, text = _content_filter(packet.properties)
        except ConfigurationError as error:
            reasons = (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,) * len(packet.subscriptions)
            self._answer(connection, Suback(packet.packet_id, reasons), f"filter: {error}")
            return
        identifier = packet.properties.subscription_ids[0] if packet.properties.subscription_ids else 0
        reasons_given: list[ReasonCode] = []
        wanted: list[Subscription] = []
        for request in packet.subscriptions:
            reason, retained_for = self._one(connection, session, request, identifier, content, text, now)
            reasons_given.append(reason)
            if retained_for is not None:
                wanted.append(retained_for)
        if connection.connect is not None and connection.connect.version == V31:
            # It has no code for a failure; as with Mosquitto, the client is told that all is well, and gets nothing.
            reasons_given = [ReasonCode(request.qos) for request in packet.subscriptions]
        self._answer(connection, Suback(packet.packet_id, tuple(reasons_given)), explained=explained)
        if wanted and len(self._retained):
            self._send_retained(connection, session, wanted, now)

    def refuse(self, connection: Connection, packet: Subscribe, reason: ReasonCode, explained: Properties) -> None:
        """Refuses all of a SUBSCRIBE, and says why."""
        self._answer(connection, Suback(packet.packet_id, (reason,) * len(packet.subscriptions)), explained=explained)

    def _send_retained(self, connection: Connection, session: Session, wanted: list[Subscription], now: float) -> None:
        """Sends the retained messages of new subscriptions; those of QoS 0 as far as a connection may be behind.

        What counts is what was written at this time, not what is still unsent: the replicas of a broker must agree.
        """
        limit, unsent = self.settings.unsent_bytes_max, connection.burst_bytes if connection.burst_at == now else 0
        for subscription in wanted:
            target = Target(session, [subscription])
            for message in self._retained.matching(subscription.filter, now):
                is_permitted = self._routes.permits(session, message.topic)
                if is_permitted and self._routes.contents.wants(subscription, message):
                    self._outgoing.send_retained(target, message, now, unsent > limit)
                    unsent += message.size
        connection.burst_at, connection.burst_bytes = now, unsent

    def unsubscribe(self, connection: Connection, session: Session, packet: Unsubscribe, now: float) -> None:
        """Takes an UNSUBSCRIBE."""
        reasons = tuple(
            ReasonCode.SUCCESS if self.remove(session, key, "client", now) else ReasonCode.NO_SUBSCRIPTION_EXISTED
            for key in packet.filters
        )
        self._answer(connection, Unsuback(packet.packet_id, reasons))

    def remove(self, session: Session, key: str, reason: str, now: float) -> bool:
        """Ends one subscription; False if there was none."""
        subscription = self._routes.remove(session, key)
        if subscription is None:
            return False
        if session.persistent:
            self._journal.forget_subscription(session, subscription)
        if self._observer is not None:
            self._observer.unsubscribed(session, subscription, reason, now)
        return True

    def _one(
        self,
        connection: Connection,
        session: Session,
        request: Request,
        identifier: int,
        content: Filter | None,
        text: str,
        now: float,
    ) -> tuple[ReasonCode, Subscription | None]:
        """The reason code of one filter, and the subscription if retained messages are to follow."""
        try:
            share, topic_filter = parse_shared(request.filter) or ("", request.filter)
        except TopicError:
            # In MQTT 5.0 such a packet is an error; for 3.1.1 shared subscriptions are a gift, and a bad one fails.
            return ReasonCode.TOPIC_FILTER_INVALID, None
        if not self._authorise(connection.user, session.client, "subscribe", topic_filter):
            self._counters.unauthorised += 1
            return ReasonCode.NOT_AUTHORIZED, None
        if limit := self._limit_for(session, request.filter, topic_filter, share):
            self._counters.limited[limit] += 1
            return ReasonCode.QUOTA_EXCEEDED, None
        if content is not None and not self._has_room(session, request.filter, content):
            self._counters.limited["filter_constraints"] += 1
            return ReasonCode.QUOTA_EXCEEDED, None
        subscription = Subscription(
            topic_filter, request.qos, request.no_local, request.retain_as_published, identifier, share, content, text
        )
        new = self._routes.add(session, subscription)
        if session.persistent:
            self._journal.subscription(session, subscription)
        if self._observer is not None:
            self._observer.subscribed(session, subscription, now)
        handling = request.retain_handling
        follows = not share and handling != _NEVER and (new or handling != _NEW_ONLY)
        return ReasonCode(request.qos), subscription if follows else None

    def _has_room(self, session: Session, key: str, content: Filter) -> bool:
        """Returns whether a session may have one more content filter, in place of the one it has under this key."""
        before = session.subscriptions.get(key)
        freed = len(before.content.constraints) if before is not None and before.content is not None else 0
        wanted = session.filter_constraints - freed + len(content.constraints)
        return wanted <= self.settings.filter_constraints_max

    def _limit_for(self, session: Session, key: str, topic_filter: str, share: str) -> str:
        """Returns the limit that a subscription would break, empty if there is room."""
        if key in session.subscriptions:
            return ""
        if len(session.subscriptions) >= session.limits.subscriptions_max:
            return "subscriptions"
        shape = shape_of(topic_filter, share)
        if shape and shape not in session.shapes and len(session.shapes) >= self.settings.filter_shapes_max:
            return "filter_shapes"
        return self._routes.quotas.full_for_subscription(session)

    @staticmethod
    def _answer(
        connection: Connection, packet: Suback | Unsuback, text: str = "", explained: Properties = NO_PROPERTIES
    ) -> None:
        """Sends an answer, with an explanation where the client wants one and takes a packet as large."""
        version, limit = V5 if connection.version_5 else V311, connection.packet_bytes_max
        data = encode(packet, version)
        if len(data) > limit:
            raise ViolationError(ReasonCode.PACKET_TOO_LARGE, "the answer is larger than the client's largest packet")
        if text:
            explained = Properties(reason_string=text[:1_000])
        if explained and connection.explains and version == V5:
            longer = encode(replace(packet, properties=explained), version)
            data = longer if len(longer) <= limit else data
        connection.out.append(data)


def _content_filter(properties: Properties) -> tuple[Filter | None, str]:
    """The content filter in the user properties of a SUBSCRIBE, and its text; several must all hold."""
    texts = [value for name, value in properties.user if name == _CONTENT]
    if not texts:
        return None, ""
    text = " and ".join(texts)
    if len(text) > _CONTENT_MAX:
        raise ConfigurationError(f"{len(text)} characters; at most {_CONTENT_MAX} are taken")
    content = parse(text)
    if len(content.constraints) > _CONSTRAINTS_MAX:
        raise ConfigurationError(f"{len(content.constraints)} attributes; at most {_CONSTRAINTS_MAX} are taken")
    longest = max((len(name) for name, _ in content.constraints), default=0)
    if longest > ATTRIBUTE_NAME_MAX:
        raise ConfigurationError(f"the name of an attribute has {longest} characters, at most {ATTRIBUTE_NAME_MAX}")
    return content, text
