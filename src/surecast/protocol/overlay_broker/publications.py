"""Publications of a broker's clients as batches of events: as few as keep topic, publisher and lifetime apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, isfinite
from typing import Final

from surecast.protocol.broker.content import attributes_of
from surecast.protocol.broker.local_traffic import Publication
from surecast.protocol.broker.message import EventName, Message
from surecast.protocol.mqtt import PublishBatch
from surecast.protocol.overlay.event_bodies import BatchedMessage, MessageRun
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.unseen import runs_of

__all__ = ["hand_on", "publish"]

_BATCH_BYTES_MAX: Final = 256 << 10
_BATCH_EVENTS_MAX: Final = 1 << 14


class _EveryName:
    """Contains every name."""

    def __contains__(self, name: object) -> bool:
        return True


_EVERY_NAME: Final = _EveryName()


def publish(node: OverlayNode, publications: Iterable[Publication], now: float) -> dict[str, dict[str, None]]:
    """Gives what clients have published to a node; returns the publishers by topic.

    The broker answers for these messages already, so a node that is full takes them all the same: publishers are held
    back before it comes to that.
    """
    publishers: dict[str, dict[str, None]] = {}
    run: list[Message] = []
    for publisher, messages, event in publications:
        if isinstance(messages, Message) and (not run or _is_like(run[0], messages, run[-1])):
            run.append(messages)
            continue
        if run:
            _publish_run(node, run, publishers)
            run = []
        if isinstance(messages, Message):
            run.append(messages)
            continue
        for part in _pieces(messages, node):
            node.publish(
                part.topics[0], part.count, now, qos=part.flags[0], body=part, publisher=publisher, is_delivered=True,
                first=_id(event),
            )  # fmt: skip
            event = event.plus(part.count) if event is not None else None
        for topic in messages.topics:
            publishers.setdefault(topic, {})[publisher] = None
    if run:
        _publish_run(node, run, publishers)
    return publishers


def hand_on(node: OverlayNode, left: Iterable[tuple[str, Message]], now: float) -> None:
    """Gives a node messages that members of shared subscriptions have left behind, for others of their members."""
    for share, message in left:
        names = node.attributes(message.topic)
        asked = _EVERY_NAME if names is None else names
        is_asked = bool(message.properties) and (names is None or len(names) > 0)
        node.publish(
            message.topic,
            1,
            message.published_at,
            expires_s=message.expires_at,
            qos=message.qos,
            attributes=(attributes_of(message, asked),) if is_asked else (),
            names=names if message.properties else None,
            body=MessageRun.of([_batched(message)]),
            publisher=message.publisher,
            is_delivered=True,
            share=share,
        )


def _id(event: EventName | None) -> EventId | None:
    return None if event is None else EventId(event.origin, event.incarnation, event.number)


def _is_like(one: Message, other: Message, before: Message) -> bool:
    return (
        (before.event is None or before.event.plus(1) == other.event)
        and one.topic == other.topic
        and one.publisher == other.publisher
        and (one.qos, one.published_at, one.expires_at) == (other.qos, other.published_at, other.expires_at)
        and one.retain == other.retain
        and not (one.retain and bool(one.payload) != bool(other.payload))
    )


def _publish_run(node: OverlayNode, messages: list[Message], publishers: dict[str, dict[str, None]]) -> None:
    first = messages[0]
    names = node.attributes(first.topic)
    for part in _portions(messages):
        has_properties = any(message.properties for message in part)
        asked = _EVERY_NAME if names is None else names
        is_asked = has_properties and (names is None or len(names) > 0)
        node.publish(
            first.topic,
            len(part),
            first.published_at,
            expires_s=first.expires_at,
            qos=first.qos,
            attributes=tuple([attributes_of(message, asked) for message in part]) if is_asked else (),
            names=names if has_properties else None,
            body=MessageRun.of([_batched(message) for message in part]),
            publisher=first.publisher,
            is_delivered=True,
            is_retained=first.retain,
            deletes=first.retain and not first.payload,
            first=_id(part[0].event),
        )
    publishers.setdefault(first.topic, {})[first.publisher] = None


def _batched(message: Message) -> BatchedMessage:
    interval_s = message.interval_end - message.published_at
    return BatchedMessage(
        message.retain, round(interval_s, 3) if isfinite(interval_s) else inf, message.properties, message.payload
    )


def _portions(messages: list[Message]) -> Iterator[list[Message]]:
    portion: list[Message] = []
    size = 0
    for message in messages:
        if portion and (size + message.size > _BATCH_BYTES_MAX or len(portion) == _BATCH_EVENTS_MAX):
            yield portion
            portion, size = [], 0
        portion.append(message)
        size += message.size
    yield portion


def _pieces(batch: PublishBatch, node: OverlayNode) -> Iterator[PublishBatch]:
    """Yields a batch, in pieces where its topics have several trees, or it would hold up others on a link."""
    if len(batch.topics) > 1:
        trees = [node.plan.tree_of(topic) for topic in batch.topics]
        if trees.count(trees[0]) < len(trees):
            stops = (*batch.firsts[1:], batch.count)
            for first, last, _ in runs_of(trees):
                yield from _pieces(batch.part(batch.firsts[first], stops[last - 1]), node)
            return
    pieces = max(-(-batch.size // _BATCH_BYTES_MAX), -(-batch.count // _BATCH_EVENTS_MAX))
    step = -(-batch.count // pieces)
    for begin in range(0, batch.count, step):
        yield batch.part(begin, min(begin + step, batch.count))
