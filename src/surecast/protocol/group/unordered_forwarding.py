"""Unordered forwarding: messages that need no total order go past the log, from replica to replica.

P2S calls total order on everything overkill. Where a topic is to keep the order of each publisher only, messages of
QoS 0 that are not retained change nothing that replicas must agree on. They go past the log: to the own subscribers at
once, and to the other replicas in the order in which they came. A publisher's messages of QoS 0 stay in order, because
links keep theirs; those of QoS 1 and 2 go through the log as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from zlib import crc32

from surecast.errors import PeerError
from surecast.protocol.broker import BrokerCore, Message
from surecast.protocol.broker.fan_out import FanOut, Group, Target
from surecast.protocol.broker.message import text_field
from surecast.protocol.broker.routes import Route
from surecast.protocol.group.machine import GroupMachine
from surecast.protocol.mqtt import (
    V5,
    V311,
    PacketDecoder,
    PacketError,
    Publish,
    PublishBatch,
    match,
    passed_on_properties,
)

__all__ = ["UnorderedForwarding", "topic_of"]

_TOPICS_MAX: Final = 10_000
_PLAIN: Final = 0x30  # QoS 0, neither retained nor sent again


class UnorderedForwarding:
    """Delivers such messages to the subscribers of this replica.

    `rules` are topic filters, each with whether its topics need no more than the order of each publisher; the first
    that matches counts. `delivered` counts what was sent to clients: the accounts of sessions, on which all replicas
    agree, do not know of it.
    """

    def __init__(self, machine: GroupMachine, rules: Sequence[tuple[str, bool]]):
        self._machine = machine
        self._rules = tuple(rules)
        self._is_unordered: dict[str, bool] = {}
        settings = machine.broker.settings
        self._decoders = {
            version: PacketDecoder(
                version=version,
                max_levels=settings.topic_levels_max,
                max_user_properties=settings.user_properties_max,
            )
            for version in (V311, V5)
        }
        self.delivered = 0
        self.published = 0

    @property
    def is_used(self) -> bool:
        """Says whether there are such topics at all."""
        return any(unordered for _, unordered in self._rules)

    def takes(self, packet: object) -> bool:
        """Says whether a packet is a message that is forwarded unordered."""
        if isinstance(packet, PublishBatch):
            return packet.first_byte == _PLAIN and self._needs_no_order(topic_of(packet))
        return (
            isinstance(packet, Publish)
            and not packet.qos
            and not packet.retain
            and packet.properties.topic_alias is None
            and self._needs_no_order(packet.topic)
        )

    def _needs_no_order(self, topic: str) -> bool:
        known = self._is_unordered.get(topic)
        if known is None:
            if len(self._is_unordered) >= _TOPICS_MAX:
                self._is_unordered.clear()
            known = next((unordered for topics, unordered in self._rules if match(topics, topic)), False)
            # An application must hear the same everywhere, so its topics keep the total order.
            known = known and not self._machine.broker.routes.find(topic).taps
            self._is_unordered[topic] = known
        return known

    def pack(self, publisher: str, version: int, data: bytes) -> bytes:
        """Messages of one publisher for another replica: whole packets of a version of MQTT."""
        return bytes((version,)) + text_field(publisher) + data

    def receive(self, data: bytes, now: float) -> None:
        """Messages of another replica."""
        version, size = data[0], int.from_bytes(data[1:3], "big")
        decoder = self._decoders.get(version)
        if decoder is None:
            raise PeerError(f"unordered messages of the unknown version {version}")
        try:
            publisher = data[3 : 3 + size].decode()
            packets = decoder.feed_batches(data[3 + size :])
        except (PacketError, UnicodeDecodeError) as error:
            raise PeerError(f"unordered messages: {error}") from error
        messages: list[Publish | PublishBatch] = []
        for packet in packets:
            if isinstance(packet, PublishBatch):
                messages += packet.by_topic()
            elif isinstance(packet, Publish):
                messages.append(packet)
        self.deliver(publisher, version == V5, messages, now)

    def deliver(self, publisher: str, version_5: bool, packets: Iterable[Publish | PublishBatch], now: float) -> None:
        """Sends messages to the subscribers of this replica."""
        broker = self._machine.broker
        for packet in packets:
            topic = topic_of(packet)
            route, fan = broker.routes.find(topic), broker.routes.fan(topic, 0)
            if isinstance(packet, PublishBatch):
                self.published += packet.count
                if fan.is_whole and not fan.rest and all(_fits_all(g, packet) for g in fan.groups):
                    for group in fan.groups:
                        self._append(broker, group, packet.data, packet.count)
                    continue
                for single in packet.packets():
                    self._deliver(broker, route, fan, single, publisher, version_5, now)
            else:
                self.published += 1
                self._deliver(broker, route, fan, packet, publisher, version_5, now)

    def _deliver(
        self,
        broker: BrokerCore,
        route: Route,
        fan: FanOut,
        packet: Publish,
        publisher: str,
        version_5: bool,
        now: float,
    ) -> None:
        # Its number is 0: nothing that replicas agree on has seen it.
        message = Message(
            0, route.topic, route.topic_field, packet.payload, properties=passed_on_properties(packet),
            published_at=now, publisher=publisher,
        )  # fmt: skip
        for group in fan.groups:
            if packet.raw and _fits(group, version_5, len(packet.raw)):
                data = packet.raw
            else:
                data = b"".join(message.parts(group.version_5, 0, False, group.identifiers, now))
            if len(data) <= group.bytes_max:
                self._append(broker, group, data, 1)
            else:
                self._one_by_one(broker, group.targets, message, now)
        self._one_by_one(broker, fan.rest, message, now)
        matches = broker.routes.contents.matches
        for share in route.shares:
            # Every replica comes to the same choice, without a turn that they would have to agree on.
            able = [
                target
                for target in share.order
                if target.session.connection is not None
                and target.chosen(message, matches)
                and broker.routes.permits(target.session, message.topic)
            ]
            if able:
                self._one_by_one(broker, [able[crc32(packet.payload) % len(able)]], message, now)

    def _append(self, broker: BrokerCore, group: Group, data: bytes, count: int) -> None:
        for append in group.appends:
            append(data)
        broker.dirty.update(group.connections)
        self.delivered += count * len(group.connections)

    def _one_by_one(self, broker: BrokerCore, targets: Iterable[Target], message: Message, now: float) -> None:
        for target in targets:
            connection = target.session.connection
            if connection is None or connection.is_elsewhere or connection.congested:
                continue
            chosen = target.chosen(message, broker.routes.contents.matches)
            if chosen is None:
                continue
            identifiers = chosen.identifiers if connection.version_5 else ()
            data = b"".join(message.parts(connection.version_5, 0, False, identifiers, now))
            if len(data) <= connection.packet_bytes_max:
                connection.out.append(data)
                broker.dirty.add(connection)
                self.delivered += 1


def topic_of(packet: Publish | PublishBatch) -> str:
    """The topic of a message, or of a batch of messages to one topic."""
    return packet.topics[0] if isinstance(packet, PublishBatch) else packet.topic


def _fits_all(group: Group, batch: PublishBatch) -> bool:
    """Returns whether the bytes of a batch can go to a group as they are."""
    return _fits(group, batch.version_5, 0) and batch.fit(group.bytes_max, 0, batch.count) == batch.count


def _fits(group: Group, version_5: bool, size: int) -> bool:
    """Says whether the bytes of a publisher can go to a group as they are."""
    return group.version_5 is version_5 and not group.identifiers and size <= group.bytes_max
