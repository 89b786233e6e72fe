"""Events from other brokers, given to the sessions of this one exactly as if a client here had published them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from surecast.errors import PeerError
from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.message import Message, text_field
from surecast.protocol.mqtt import PacketError, PacketType, PublishBatch
from surecast.protocol.mqtt.topics import parse_shared
from surecast.protocol.mqtt.wire import PacketReader, ReaderSettings, read_properties, variable_bytes
from surecast.protocol.overlay.event_bodies import MessageRun
from surecast.protocol.overlay.overlay_frames import Body, EventBatch
from surecast.protocol.overlay.unseen import runs_of

__all__ = ["Deliveries"]

_SETTINGS: Final = ReaderSettings(5)
_PLAIN: Final = {0x30: 0, 0x32: 1}
_SOUND_MAX: Final = 1_000
_SOUND_BYTES_MAX: Final = 256


class Deliveries:
    """Delivers events, and keeps those that are retained.

    `malformed` counts messages whose properties subscribers could not read: a broker far away has made them up.
    """

    def __init__(self, broker: str, core: BrokerCore):
        self._broker = broker
        self._core = core
        self._names_events = core.traffic is not None and core.traffic.take_events is not None
        self._sound: dict[bytes, None] = {}
        self.malformed = 0

    def deliver(self, events: EventBatch, now: float) -> None:
        """Gives events to the sessions that want them."""
        body = events.body
        if isinstance(body, PublishBatch):
            self._deliver_batch(body, events, now)
        elif isinstance(body, MessageRun):
            self._deliver_run(body, events, now)

    def deliver_to_member(self, events: EventBatch, now: float) -> list[EventBatch]:
        """Gives events of a shared subscription to its members, in turn; returns those that none of them takes."""
        core, body = self._core, events.body
        shared = parse_shared(events.share)
        share = core.routes.find_share(*shared) if shared is not None else None
        if share is None:
            return [events]
        is_taken: list[bool] = []
        for message in self._messages(body, events):
            target = share.pick(message, core.routes.contents.wants) if message is not None else None
            is_taken.append(target is not None or message is None)
            if message is None or target is None:
                continue
            if core.observer is not None and events.first.origin != self._broker:
                core.observer.published(message, 1, now)
            core.outgoing.deliver(target, message, now)
        return [events.part(start, stop) for start, stop, taken in runs_of(is_taken) if not taken]

    def _messages(self, body: Body | None, events: EventBatch) -> Iterator[Message | None]:
        """Yields the messages of events; None for one whose properties subscribers could not read."""
        if isinstance(body, PublishBatch):
            yield from self._of_batch(body, events)
        elif isinstance(body, MessageRun):
            yield from self._of_run(body, events)

    def _deliver_batch(self, batch: PublishBatch, events: EventBatch, now: float) -> None:
        core, firsts = self._core, batch.firsts
        qos = _PLAIN.get(batch.first_byte)
        if qos is None or core.observer is not None:
            self._deliver_singles(batch, events, now)
            return
        stops = (*firsts[1:], batch.count)
        for first, last, fan in runs_of([core.routes.fan(topic, qos) for topic in batch.topics]):
            begin, stop = firsts[first], stops[last - 1]
            if fan.is_whole:
                event = events.first.plus(begin) if self._names_events else None
                core.incoming.spread(batch, begin, stop, fan, (events.publisher,), (stop - begin,), now, event)
            else:
                self._deliver_singles(batch.part(begin, stop), events.part(begin, stop), now)

    def _deliver_singles(self, batch: PublishBatch, events: EventBatch, now: float) -> None:
        for message in self._of_batch(batch, events):
            self._give(message, now)

    def _named(self, message: Message, events: EventBatch, place: int) -> Message:
        """Gives a message its identity, where sessions move."""
        if self._names_events:
            message.event = events.first.plus(place)
        return message

    def _of_batch(self, batch: PublishBatch, events: EventBatch) -> Iterator[Message]:
        for place, packet in enumerate(batch.packets()):
            message = Message(
                self._number(), packet.topic, text_field(packet.topic), packet.payload, min(packet.qos, events.qos),
                packet.retain, published_at=events.published_s, publisher=events.publisher,
            )  # fmt: skip
            yield self._named(message, events, place)

    def _deliver_run(self, run: MessageRun, events: EventBatch, now: float) -> None:
        for message in self._of_run(run, events):
            if message is not None:
                self._give(message, now)

    def _of_run(self, run: MessageRun, events: EventBatch) -> Iterator[Message | None]:
        topic, published_s = events.topic, events.published_s
        field = text_field(topic)
        for place, (retain, interval_s, properties, payload) in enumerate(run.messages()):
            if properties and not self._is_sound(properties):
                self.malformed += 1
                yield None
                continue
            message = Message(
                self._number(), topic, field, payload, events.qos, retain, properties, events.expires_s, published_s,
                events.publisher, published_s + interval_s,
            )  # fmt: skip
            yield self._named(message, events, place)

    def retain(self, topic: str, entry: EventBatch | None, now: float) -> None:
        """Has a message as the retained one of a topic, or none."""
        retained = self._core.retained
        before = retained.get(topic)
        body = entry.body if entry is not None else None
        if entry is None or not isinstance(body, MessageRun):
            if before is not None:
                retained.discard(before)
            return
        _, interval_s, properties, payload = body.messages()[-1]
        if properties and not self._is_sound(properties):
            return
        published_s = entry.published_s
        message = Message(
            self._number(), topic, text_field(topic), payload, entry.qos, True, properties, entry.expires_s,
            published_s, entry.publisher, published_s + interval_s,
        )  # fmt: skip
        retained.store(message)

    def _number(self) -> int:
        incoming = self._core.incoming
        number = incoming.next_number
        incoming.next_number = number + 1
        return number

    def _give(self, message: Message, now: float) -> None:
        core = self._core
        chosen = [
            target.chosen(message, core.routes.contents.wants) for target in core.routes.find(message.topic).targets
        ]
        receivers = [target for target in chosen if target is not None]
        if core.observer is not None:
            core.observer.published(message, len(receivers), now)
        for target in receivers:
            core.outgoing.deliver(target, message, now)

    def _is_sound(self, properties: bytes) -> bool:
        """Returns whether properties are such as a publisher may give to subscribers."""
        if properties in self._sound:
            return True
        data = variable_bytes(len(properties)) + properties
        try:
            reader = PacketReader(data, 0, 0, len(data), "PUBLISH", _SETTINGS)
            found = read_properties(reader, PacketType.PUBLISH)
        except (PacketError, PeerError):
            return False
        if found.topic_alias is not None or found.subscription_ids or found.message_expiry_s is not None:
            return False
        if len(properties) <= _SOUND_BYTES_MAX:
            if len(self._sound) >= _SOUND_MAX:
                self._sound.clear()
            self._sound[properties] = None
        return True
