"""Messages from clients: who may publish, where they go, how they are acknowledged (MQTT 5.0, sections 3.3, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from surecast.errors import PeerError
from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.fan_out import FanOut, Group, Target
from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.broker.message import EventName, Message
from surecast.protocol.broker.message_batch import MessageBatch
from surecast.protocol.broker.message_expiry import Meanings
from surecast.protocol.broker.observer import Counters, Observer
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.requests import RequestError, Requests, request_of
from surecast.protocol.broker.retained import Retained
from surecast.protocol.broker.routes import Route, Routes
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.mqtt import NO_PROPERTIES, Publish, PublishBatch, ReasonCode

__all__ = ["PLAIN", "PLAIN_QOS_1", "Authorise", "Incoming", "ViolationError"]

Authorise = Callable[[str, str, str, str], bool]
"""Tells whether a user, with a client identifier, may `publish` to a topic, `subscribe` to a filter, or `receive` on a
topic; the last is asked only where deliveries are checked."""

PLAIN_QOS_1 = 0x32
PLAIN = (0x30, PLAIN_QOS_1)
"""The first bytes of messages of QoS 0 and 1 that are neither retained nor sent again."""
_ALLOWED_MAX = 10_000
_ALLOWED_TOPIC_MAX = 256


class ViolationError(PeerError):
    """A client broke the protocol, and its connection is closed for it."""

    def __init__(self, reason: ReasonCode, message: str):
        super().__init__(message)
        self.reason = reason


class Incoming:
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
        traffic: LocalTraffic | None = None,
    ):
        self._traffic = traffic
        self._routes = routes
        self._outgoing = outgoing
        self._dirty = dirty
        self._counters = counters
        self._observer = observer
        self._wants = routes.contents.wants
        self._journal = journal
        self._retained = retained
        self._requests = requests
        self._authorise = authorise
        self._meanings = Meanings()
        self.next_number = 1
        self.rejects = False
        """True if some session may have the overflow rule `reject`."""

    def publish(self, connection: Connection, session: Session, packet: Publish, now: float) -> None:
        """Takes a PUBLISH; everything that can go wrong is an acknowledgement or a violation."""
        self._counters.published += 1
        qos = packet.qos
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

    def publish_batch(self, connection: Connection, session: Session, batch: PublishBatch, now: float) -> None:
        """Takes messages without properties of one client; those that the same subscribers get are one piece."""
        first_byte, count = batch.first_byte, batch.count
        self._counters.packets_in += count - 1
        qos = 1 if first_byte == PLAIN_QOS_1 else 0
        if first_byte not in PLAIN or self._observer is not None or (qos and self.rejects):
            self._publish_singles(connection, session, batch, now)
            return
        if len(batch.topics) > 1:
            self._publish_pieces(connection, session, batch, qos, now)
            return
        topic = batch.topics[0]
        fan = self._routes.fans[qos].get(topic) if connection.allowed.get(topic) else None
        if fan is None:
            fan = self._fan(connection, session, topic, qos)
        if fan is None or not fan.is_whole:
            self._publish_singles(connection, session, batch, now)
            return
        self._counters.published += count
        event = None if self._traffic is None else self._take_events(count)
        group = fan.quick
        if group is not None and group.version_5 is batch.version_5 and len(batch.data) <= group.bytes_max:
            self.next_number += count
            for append in group.appends:
                append(batch.data)
            group.count += count
            self._dirty.update(group.connections)
        else:
            self.spread(batch, 0, count, fan, (connection,), (count,), now, event)
        if self._traffic is not None:
            self._traffic.publish(session.key, batch, 0, count, event)
        if qos:
            self._answer_batch(connection, batch, 0, count, self.answer_reason(batch, fan))

    def _publish_pieces(
        self, connection: Connection, session: Session, batch: PublishBatch, qos: int, now: float
    ) -> None:
        """Takes messages to several topics, with as few acknowledgements in one piece as there are reasons."""
        version_5, ends, data, size = batch.version_5, batch.ends, batch.data, len(batch.data)
        answered = carried = reason = given = start = 0
        touched: set[Group] = set()
        is_alone = self._traffic is None
        event = None if is_alone else self._take_events(batch.count)
        for begin, stop, fan in self._pieces(connection, session, batch, qos):
            end = ends[stop - 1]
            group = fan.quick if fan is not None and is_alone else None
            if group is not None and group.version_5 is version_5 and size <= group.bytes_max:
                # One group of subscribers gets the bytes as they came, and that is all: most topics are like that.
                piece = data[start:end]
                start = end
                for append in group.appends:
                    append(piece)
                group.count += stop - begin
                given += stop - begin
                touched.add(group)
                continue
            start = end
            if fan is None or not fan.is_whole:
                if qos and begin > answered:
                    self._answer_batch(connection, batch, answered, begin, reason)
                if self._traffic is not None and begin > carried:
                    self._traffic.publish(session.key, batch, carried, begin, event)
                self._publish_singles(connection, session, batch.part(begin, stop), now)
                answered = carried = stop
                continue
            other = self.answer_reason(batch, fan) if qos else 0
            if other != reason and begin > answered:
                self._answer_batch(connection, batch, answered, begin, reason)
                answered = begin
            reason = other
            self._counters.published += stop - begin
            self.spread(
                batch, begin, stop, fan, (connection,), (stop - begin,), now, event.plus(begin) if event else None
            )  # fmt: skip
        if self._traffic is not None and batch.count > carried:
            self._traffic.publish(session.key, batch, carried, batch.count, event)
        for group in touched:
            self._dirty.update(group.connections)
        self.next_number += given
        self._counters.published += given
        if qos and batch.count > answered:
            self._answer_batch(connection, batch, answered, batch.count, reason)

    def _pieces(
        self, connection: Connection, session: Session, batch: PublishBatch, qos: int
    ) -> list[tuple[int, int, FanOut | None]]:
        """Returns the pieces of a batch with equal subscribers, and these; None where the client may not publish."""
        fans, allowed = self._routes.fans[qos], connection.allowed
        pieces: list[tuple[int, int, FanOut | None]] = []
        begin, piece = 0, None
        for topic, first in zip(batch.topics, batch.firsts, strict=True):
            fan = fans.get(topic) if allowed.get(topic) else None
            if fan is None:
                fan = self._fan(connection, session, topic, qos)
            if fan is not piece:
                if first:
                    pieces.append((begin, first, piece))
                piece, begin = fan, first
        pieces.append((begin, batch.count, piece))
        return pieces

    def _answer_batch(self, connection: Connection, batch: PublishBatch, begin: int, stop: int, reason: int) -> None:
        """Acknowledges messages of QoS 1."""
        if not connection.is_elsewhere:
            connection.out.append(batch.answers(begin, stop, reason))
            self._dirty.add(connection)

    def takes_together(self, qos: int) -> bool:
        """Returns whether plain messages of several clients, of this QoS, may be taken together."""
        return self._observer is None and self._traffic is None and not (qos and self.rejects)

    def count(self, batch: PublishBatch, begin: int, stop: int) -> None:
        """Counts messages that came in a batch of several clients."""
        counters, ends = self._counters, batch.ends
        counters.packets_in += stop - begin
        counters.published += stop - begin
        counters.bytes_in += ends[stop - 1] - (ends[begin - 1] if begin else 0)

    def answer_reason(self, batch: PublishBatch, fan: FanOut) -> int:
        """Returns the reason in acknowledgements of messages that were taken. Other brokers may have subscribers."""
        is_unwanted = batch.version_5 and not fan.targets and self._traffic is None
        return ReasonCode.NO_MATCHING_SUBSCRIBERS if is_unwanted else 0

    def _take_events(self, count: int) -> EventName | None:
        """Returns the identity of the first of some publications, where sessions move between brokers."""
        traffic = self._traffic
        return None if traffic is None or traffic.take_events is None else traffic.take_events(count)

    def _fan(self, connection: Connection, session: Session, topic: str, qos: int) -> FanOut | None:
        """Returns the subscribers of plain messages to a topic; None if the client may not publish to it."""
        if not self._permits(connection, session, topic):
            return None
        return self._routes.fan(topic, qos)

    def _publish_singles(self, connection: Connection, session: Session, batch: PublishBatch, now: float) -> None:
        for packet in batch.packets():
            self.publish(connection, session, packet, now)

    def spread(  # noqa: C901 - few calls, since every batch goes through it
        self,
        batch: PublishBatch,
        begin: int,
        stop: int,
        fan: FanOut,
        senders: Sequence[Connection | str | None],
        counts: Sequence[int],
        now: float,
        event: EventName | None = None,
    ) -> None:
        """Gives messages that the same subscribers get to these; `counts` says how many each client sent. A client
        that is connected to another broker is named by the key of its session there. `event` is the identity of the
        first."""
        count, number = stop - begin, self.next_number
        self.next_number = number + count
        source: MessageBatch | None = None
        data, is_low = b"", batch.first_byte == PLAIN_QOS_1
        if not is_low:
            data = batch.data if count == batch.count else batch.bytes_of(begin, stop)
        for group in fan.groups:
            if (
                group.version_5 is not batch.version_5
                or group.identifiers
                or (len(batch.data) > group.bytes_max and batch.fit(group.bytes_max, begin, stop) < count)
            ):
                source = source or _source(batch, begin, stop, number, senders, counts, now, event)
                self._convert(group, source, now)
                continue
            if group.appends:
                if not data:
                    data = batch.lowered(begin, stop)
                for append in group.appends:
                    append(data)
                self._dirty.update(group.connections)
            group.count += count
        for group in fan.direct:
            for target, sent in self._outgoing.send_batch(group, batch, begin, batch.sizes(begin, stop)):
                source = source or _source(batch, begin, stop, number, senders, counts, now, event)
                self._outgoing.send_late(target, source, sent, now)
        if fan.kept:
            source = source or _source(batch, begin, stop, number, senders, counts, now, event)
            for target in fan.kept:
                self._outgoing.keep_batch(target, source, now)
        if fan.rest:
            source = source or _source(batch, begin, stop, number, senders, counts, now, event)
            deliver, wants = self._outgoing.deliver, self._wants
            for message in source.messages:
                for target in fan.rest:
                    chosen = target.chosen(message, wants)
                    if chosen is not None:
                        deliver(chosen, message, now)

    def _convert(self, group: Group, source: MessageBatch, now: float) -> None:
        """Gives messages to a group whose packets look different."""
        batch = source.of_version(group.version_5)
        is_plain = not group.identifiers
        if is_plain and (
            len(batch.data) <= group.bytes_max or batch.fit(group.bytes_max, 0, source.count) == source.count
        ):
            packets = [batch.lowered(0, batch.count) if batch.first_byte == PLAIN_QOS_1 else batch.data]
        else:
            parts = [message.parts(group.version_5, 0, False, group.identifiers, now) for message in source.messages]
            packets = [head + tail for head, tail in parts]
            if max(map(len, packets)) > group.bytes_max:
                # Some client of the group takes no packet as large: the group is for the others only.
                for message in source.messages:
                    for target in group.targets:
                        self._outgoing.deliver(target, message, now)
                return
        data = packets[0] if len(packets) == 1 else b"".join(packets)
        for append in group.appends:
            append(data)
        self._dirty.update(group.connections)
        group.count += source.count

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
        """Says whether a QoS 2 message is a repetition. MQTT 3.1.1 limits what is open by its identifiers alone."""
        if identifier in session.received:
            return True
        limit = connection.limits.receive_maximum
        if connection.version_5 and len(session.received) >= limit:
            raise ViolationError(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, f"more than {limit} QoS 2 messages are open")
        return False

    def release(self, connection: Connection, session: Session, identifiers: Sequence[int]) -> None:
        """A client is done with QoS 2 messages (PUBREL)."""
        received = session.received
        for identifier in identifiers:
            known = identifier in received
            if known:
                received.discard(identifier)
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
        passed_on, lifetime_s, interval_s = self._meanings.of(packet)
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

    def take(self, message: Message, now: float, route: Route | None = None) -> ReasonCode:
        """Retains a message if it asks for it, and routes it; the reason is what its publisher is told."""
        retained, traffic = message.retain, self._traffic
        if traffic is not None and traffic.refuses is not None and message.qos and traffic.refuses(message.topic):
            return ReasonCode.QUOTA_EXCEEDED
        if traffic is not None and message.event is None:
            message.event = self._take_events(1)
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
        if receivers and not kept and not retained and refuses(receivers):
            return ReasonCode.QUOTA_EXCEEDED
        if traffic is not None:
            traffic.publish_message(message)
        elif not receivers and not route.taps:
            return ReasonCode.NO_MATCHING_SUBSCRIBERS
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

    def _answer(self, connection: Connection, first: int, identifier: int, reason: ReasonCode) -> None:
        """Sends an acknowledgement. MQTT 3.1.1 has no word for a refusal: the message is acknowledged and gone."""
        if reason and connection.version_5:
            connection.out.append(bytes((first, 3, identifier >> 8, identifier & 0xFF, reason)))
        else:
            connection.out.append(bytes((first, 2, identifier >> 8, identifier & 0xFF)))
        self._dirty.add(connection)

    def _may_publish(self, connection: Connection, session: Session, topic: str) -> bool:
        allowed = self._permits(connection, session, topic)
        if not allowed:
            self._counters.unauthorised += 1
        return allowed

    def _permits(self, connection: Connection, session: Session, topic: str) -> bool:
        allowed = connection.allowed.get(topic)
        if allowed is None:
            allowed = not topic.startswith("$") and self._authorise(connection.user, session.client, "publish", topic)
            if len(topic) <= _ALLOWED_TOPIC_MAX:
                if len(connection.allowed) >= _ALLOWED_MAX:
                    connection.allowed.clear()
                connection.allowed[topic] = allowed
        return allowed


def _source(
    batch: PublishBatch,
    begin: int,
    stop: int,
    number: int,
    senders: Sequence[Connection | str | None],
    counts: Sequence[int],
    now: float,
    event: EventName | None,
) -> MessageBatch:
    """Returns some messages of a batch as they are kept, of which the first has this number."""
    publishers: list[tuple[str, int]] = []
    for sender, count in zip(senders, counts, strict=True):
        if isinstance(sender, str):
            publishers.append((sender, count))
            continue
        assert sender is not None
        assert sender.session is not None
        publishers.append((sender.session.key, count))
    return MessageBatch(batch.part(begin, stop), number, publishers, now, event)


def refuses(targets: Iterable[Target]) -> bool:
    """Returns whether a message that none of its sessions had room for is refused: one of them says `reject`."""
    return any(target.session.limits.overflow == "reject" for target in targets)
