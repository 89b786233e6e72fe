"""Common batches: messages of several clients to one topic, which are treated as one where that makes no difference.

Whether a client's messages may be among them depends on its connection, its permissions and the subscribers of the
topic. The answer is found once, and kept at the connection until one of these changes: a `_Clearance` is replaced by a
new one when the subscribers, the access rules or the limits do, and a connection that ends loses its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from surecast.protocol.broker.connection import Connection, Phase
from surecast.protocol.broker.fan_out import FanOut
from surecast.protocol.broker.incoming import PLAIN, PLAIN_QOS_1, Incoming
from surecast.protocol.broker.routes import Routes
from surecast.protocol.mqtt import PublishBatch

__all__ = ["CommonBatches"]

_CLEARANCES_MAX: Final = 10_000
_OPEN: Final = Phase.OPEN  # local alias: avoids an attribute lookup for each client


class _Clearance:
    """Stands for the subscribers of plain messages to one topic; connections whose messages may be common have it.

    None of these has a limit of its packets below `bytes_max`.
    """

    __slots__ = ("bytes_max", "fan")

    def __init__(self, fan: FanOut):
        self.fan = fan
        self.bytes_max = 1 << 62


class CommonBatches:
    """Takes batches of several clients to one topic with equal flags."""

    def __init__(self, incoming: Incoming, routes: Routes, dirty: set[Connection]):
        self._incoming = incoming
        self._routes = routes
        self._dirty = dirty
        self._clearances: dict[tuple[str, int, bool], _Clearance] = {}

    def forget(self) -> None:
        """Clears all clients anew: access rules or limits have changed."""
        self._clearances = {}

    def take(
        self,
        batch: PublishBatch,
        connections: Sequence[Connection | None],
        counts: Sequence[int],
        at: int,
        begin: int,
        now: float,
    ) -> tuple[int, int]:
        """Takes messages together from the client `at` and the message `begin` on; returns where it stopped.

        A client that gets the messages itself is not among them: its acknowledgements and the messages to it keep their
        order.
        """
        incoming, first_byte, version_5, topic = self._incoming, batch.first_byte, batch.version_5, batch.topics[0]
        qos = 1 if first_byte == PLAIN_QOS_1 else 0
        if first_byte not in PLAIN or not incoming.takes_together(qos):
            return at, begin
        fan = self._routes.fans[qos].get(topic) or self._routes.fan(topic, qos)
        if not fan.is_whole:
            return at, begin
        clearance = self._clearances.get((topic, qos, version_5))
        if clearance is None or clearance.fan is not fan:
            clearance = self._new_clearance(topic, qos, version_5, fan)
        first, is_answered = at, False
        for connection in connections[at:] if at else connections:
            if connection is None or (
                connection.clearance is not clearance and not _clear(connection, clearance, topic, version_5)
            ):
                break
            connection.heard_at = now
            if not connection.is_elsewhere:
                is_answered = True
            at += 1
        if len(batch.data) > clearance.bytes_max:
            at = _within_limits(batch, connections, counts, first, at, begin)
        if at == first:
            return at, begin
        if at - first < len(connections):
            connections, counts = connections[first:at], counts[first:at]
        stop = begin + sum(counts)
        incoming.count(batch, begin, stop)
        incoming.spread(batch, begin, stop, fan, connections, counts, now)
        if qos and is_answered:
            answers = batch.answers(begin, stop, incoming.answer_reason(batch, fan))
            self._answer(answers, len(answers) // (stop - begin), connections, counts)
        return at, stop

    def _new_clearance(self, topic: str, qos: int, version_5: bool, fan: FanOut) -> _Clearance:
        if len(self._clearances) >= _CLEARANCES_MAX:
            self._clearances.clear()
        clearance = self._clearances[topic, qos, version_5] = _Clearance(fan)
        return clearance

    def _answer(
        self, answers: bytes, size: int, connections: Sequence[Connection | None], counts: Sequence[int]
    ) -> None:
        """Gives each client its acknowledgements, which have this size."""
        begin, add = 0, self._dirty.add
        for connection, count in zip(connections, counts, strict=True):
            stop = begin + size * count
            if connection is not None and not connection.is_elsewhere:
                connection.out.append(answers[begin:stop])
                add(connection)
            begin = stop


def _clear(connection: Connection, clearance: _Clearance, topic: str, version_5: bool) -> bool:
    """Returns whether the messages of a client may be among others, and remembers that they may."""
    session = connection.session
    if (
        session is None
        or (session.routes and clearance.fan.has(session))
        or connection.pace is not None
        or connection.phase is not _OPEN
        or connection.version_5 is not version_5
        or not connection.allowed.get(topic)
    ):
        return False
    clearance.bytes_max = min(clearance.bytes_max, connection.limits.packet_bytes_max)
    connection.clearance = clearance
    return True


def _within_limits(
    batch: PublishBatch,
    connections: Sequence[Connection | None],
    counts: Sequence[int],
    first: int,
    after: int,
    begin: int,
) -> int:
    """Returns the first client that sent more than a packet of it may have; `after` if there is none."""
    start, ends = batch.ends[begin - 1] if begin else 0, batch.ends
    for at in range(first, after):
        connection, begin = connections[at], begin + counts[at]
        end = ends[begin - 1]
        if connection is not None and end - start > connection.limits.packet_bytes_max:
            return at
        start = end
    return after
