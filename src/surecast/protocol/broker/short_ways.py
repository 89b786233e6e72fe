"""The short ways of plain messages: their own bytes, once for all who get the same, and runs of them as one piece.

Whatever is special about a message or a session goes the long way; tests compare the two on random traffic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final

from surecast.protocol.broker.connection import Connection, Phase
from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.broker.observer import Counters, Observer
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.routes import Group, Route, Routes, Target
from surecast.protocol.broker.session import Session
from surecast.protocol.mqtt import Publish, PublishRun, ReasonCode
from surecast.protocol.mqtt.runs import Pattern

__all__ = ["ShortWays", "refuses"]

_ENTRIES_MAX: Final = 1_000
_OPEN: Final = Phase.OPEN


class ShortWays(ABC):
    """What the long way, which derives from it, need not do."""

    def __init__(
        self, routes: Routes, outgoing: Outgoing, dirty: set[Connection], counters: Counters, observer: Observer | None
    ):
        self._routes = routes
        self._outgoing = outgoing
        self._dirty = dirty
        self._counters = counters
        self._observer = observer
        self._wants = routes.contents.wants
        self._entries: dict[int, Delivery] = {}
        self.rejects = False
        """Whether some session may have the overflow rule `reject`."""

    @abstractmethod
    def publish(self, connection: Connection, session: Session, packet: Publish, now: float) -> None:
        """Takes one message, by whichever way."""

    @abstractmethod
    def message(self, packet: Publish, topic: str, topic_field: bytes, publisher: str, now: float) -> Message:
        """The message of a packet."""

    def publish_run(self, connection: Connection, session: Session, run: PublishRun, now: float) -> None:
        """Takes a run of messages to one topic; where it cannot be treated as one, its packets are taken one by one."""
        qos, retain, dup = run.flags
        if (
            qos == 2
            or retain
            or dup
            or self._observer is not None
            or not connection.allowed.get(run.topic)
            or (route := self._routes.find(run.topic)).shares
            or route.taps
            or (qos and (not route.plain or self.rejects))
        ):
            for packet in run.packets():
                self.publish(connection, session, packet, now)
            return
        self._counters.published += run.count
        others = (
            self._run_to_groups(connection, route, run) if qos == 0 else self._run_to_queues(connection, route, run)
        )
        if others:
            for packet in run.packets():
                message = self.message(packet, run.topic, route.topic_field, session.key, now)
                for target in others:
                    chosen = target.chosen(message, self._wants)
                    if chosen is not None:
                        self._outgoing.deliver(chosen, message, now)
        if qos:
            self._answer_run(connection, run, bool(route.targets))

    def publish_alike(
        self,
        pattern: Pattern,
        connections: Sequence[Connection | None],
        pieces: Sequence[bytes],
        at: int,
        now: float,
    ) -> int:
        """Takes like runs of several clients together, from `at` on, where they go to groups only; where it stopped.

        A client that is in one of the groups itself is not among them: its acknowledgements and the messages to it
        keep their order.
        """
        topic, version_5 = pattern.topic, pattern.version_5
        qos, retain, dup = pattern.flags
        if qos == 2 or retain or dup or self._observer is not None or (qos and self.rejects):
            return at
        route = self._routes.find(topic)
        groups = _fitting(route.only_groups(qos), pattern.length, version_5)
        if groups is None:
            return at
        first, end, is_answered = at, len(pieces), False
        while at < end:
            connection = connections[at]
            if (
                connection is None
                or (session := connection.session) is None
                or (session.groups and not session.groups.isdisjoint(groups))
                or connection.pace is not None
                or connection.phase is not _OPEN
                or connection.version_5 is not version_5
                or not connection.allowed.get(topic)
                or len(pieces[at]) > connection.limits.packet_bytes_max
            ):
                break
            connection.heard_at = now
            if not connection.is_elsewhere:
                is_answered = True
            at += 1
        if at > first:
            taken = pieces if at - first == len(pieces) else pieces[first:at]
            size = sum(map(len, taken))
            self.count(groups, size // pattern.length, size)
            if route.quiet(qos) is None or (qos and is_answered):
                self._speak(pattern, connections[first:at], taken, groups, version_5 and not route.targets)
        return at

    def _speak(
        self,
        pattern: Pattern,
        connections: Sequence[Connection | None],
        pieces: Sequence[bytes],
        groups: list[Group],
        explicit: bool,
    ) -> None:
        """Sends like runs to groups, and acknowledges them."""
        whole = pattern.run(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        qos, dirty, sent = pattern.flags[0], self._dirty, b""
        for group in groups:
            if group.appends:
                sent = sent or (whole.lowered() if qos else whole.data)
                for append in group.appends:
                    append(sent)
                dirty.update(group.connections)
        if qos:
            answers = whole.answers(ReasonCode.NO_MATCHING_SUBSCRIBERS if explicit else 0)
            size, length, at = len(answers) // whole.count, pattern.length, 0
            for connection, piece in zip(connections, pieces, strict=True):
                end = at + size * (len(piece) // length)
                if connection is not None and not connection.is_elsewhere:
                    connection.out.append(answers[at:end])
                    dirty.add(connection)
                at = end

    def countable(self, pattern: Pattern) -> list[Group] | None:
        """The groups for `count`, where messages of clients of another replica only have to be counted.

        These must be open and without a pace, and known to be allowed to publish to the topic.
        """
        qos, retain, dup = pattern.flags
        if qos == 2 or retain or dup or self._observer is not None or (qos and self.rejects):
            return None
        return _fitting(self._routes.find(pattern.topic).quiet(qos), pattern.length, pattern.version_5)

    def count(self, groups: list[Group], count: int, size: int) -> None:
        """Counts messages that came, of so many bytes together, and go to groups."""
        for group in groups:
            group.count += count
        counters = self._counters
        counters.published += count
        counters.packets_in += count
        counters.bytes_in += size

    def _run_to_groups(self, connection: Connection, route: Route, run: PublishRun) -> list[Target]:
        """Passes a run of QoS 0 on as it is; the targets for which that is impossible are left."""
        others = []
        for group in route.prepare():
            if group.version_5 != connection.version_5 or group.identifiers or run.length > group.bytes_max:
                members = set(group.sessions)
                others += [target for target in route.targets if target.session in members]
                continue
            for append in group.appends:
                append(run.data)
            self._dirty.update(group.connections)
            group.count += run.count
        return others + route.rest

    def _run_to_queues(self, connection: Connection, route: Route, run: PublishRun) -> list[Target]:
        """Passes a run of QoS 1 on as it is; the targets for which that is impossible are left."""
        version_5, send = connection.version_5, self._outgoing.send_run
        route.prepare()
        others = list(route.kept_low)
        for group in route.low:
            if group.version_5 is not version_5 or group.identifiers or run.length > group.bytes_max:
                members = set(group.sessions)
                others += [target for target in route.targets if target.session in members]
                continue
            if group.appends:
                low = run.lowered()
                for append in group.appends:
                    append(low)
                self._dirty.update(group.connections)
            group.count += run.count
        for target in route.high:
            if (
                not target.plain
                or (version_5 and target.identifiers)
                or not send(target.session, run, route.topic_field, version_5)
            ):
                others.append(target)
        return others

    def _answer_run(self, connection: Connection, run: PublishRun, matched: bool) -> None:
        """Acknowledges a run of QoS 1."""
        if connection.is_elsewhere:
            return
        explicit = connection.version_5 and not matched
        connection.out.append(run.answers(ReasonCode.NO_MATCHING_SUBSCRIBERS if explicit else 0))
        self._dirty.add(connection)

    def _hand_on(self, connection: Connection, session: Session, route: Route, packet: Publish, now: float) -> None:
        """The short way of a plain QoS 1 message: its own bytes with other packet identifiers.

        Sessions that end with their connection never get anything twice, so that an entry in their queue need not hold
        the message. The sessions for which this does not do get it the long way.
        """
        route.prepare()
        raw, version_5, dirty = packet.raw, connection.version_5, self._dirty
        length, size = len(raw), len(packet.payload) + len(route.topic_field)
        id_at = length - len(packet.payload) - (3 if version_5 else 2)
        head, tail = raw[:id_at], raw[id_at + 2 :]
        entry = self._entries.get(size) or self._entry(size)
        kept, late = 0, []
        for target, subscriber, to in route.direct:
            inflight, quota = subscriber.inflight, subscriber.quota
            if (
                to.version_5 is not version_5
                or subscriber.waiting
                or len(inflight) >= subscriber.short_max
                or subscriber.bytes_queued + size > subscriber.bytes_max
                or quota.bytes_queued + size > quota.bytes_max
                or length > to.packet_bytes_max
            ):
                late.append(target)
                continue
            identifier = subscriber.next_identifier + 1
            if identifier > 65_535 or identifier in inflight:
                identifier = subscriber.take_identifier()
            subscriber.next_identifier = identifier
            inflight[identifier] = entry
            subscriber.bytes_queued += size
            quota.bytes_queued += size
            subscriber.accounts.matched += 1
            if not to.is_elsewhere:
                to.out.append(head + identifier.to_bytes(2, "big") + tail)
                dirty.add(to)
            kept += 1
        if route.low:
            kept += self._lower(connection, session, route, packet, now)
        if late or route.kept:
            message = self.message(packet, route.topic, route.topic_field, session.key, now)
            for target in (*route.kept, *late):
                kept += self._outgoing.deliver(target, message, now)
        if kept or (route.targets and not refuses(route.targets)):
            connection.out.append(b"\x40\x02" + raw[id_at : id_at + 2])
            dirty.add(connection)
        else:
            nobody = ReasonCode.QUOTA_EXCEEDED if route.targets else ReasonCode.NO_MATCHING_SUBSCRIBERS
            self._answer(connection, 0x40, packet.packet_id, nobody)

    def _lower(self, connection: Connection, session: Session, route: Route, packet: Publish, now: float) -> int:
        """A plain message of QoS 1 for those who want it at QoS 0: one append for each, of the same bytes."""
        message = self.message(packet, route.topic, route.topic_field, session.key, now)
        count = 0
        for group in route.low:
            data = b"".join(message.parts(group.version_5, 0, False, group.identifiers, now))
            if len(data) > group.bytes_max:
                members = set(group.sessions)
                for target in route.targets:
                    if target.session in members:
                        count += self._outgoing.deliver(target, message, now)
                continue
            for append in group.appends:
                append(data)
            self._dirty.update(group.connections)
            group.count += 1
            count += len(group.sessions)
        return count

    def _entry(self, size: int) -> Delivery:
        """A queue entry that says no more than the size of a message."""
        if len(self._entries) >= _ENTRIES_MAX:
            self._entries.clear()
        entry = self._entries[size] = Delivery(Message(0, "", b"", b""), 1, False, (), 0)
        entry.message.size = size
        return entry

    def _pass_on(self, connection: Connection, session: Session, route: Route, packet: Publish, now: float) -> None:
        """The short way of a plain QoS 0 message: one append for each connection, of the same bytes."""
        message: Message | None = None
        for group in route.prepare():
            if group.version_5 is connection.version_5 and not group.identifiers and packet.raw:
                data = packet.raw
            else:
                if message is None:
                    message = self.message(packet, packet.topic, route.topic_field, session.key, now)
                data = b"".join(message.parts(group.version_5, 0, False, group.identifiers, now))
            if len(data) > group.bytes_max:
                # Some client of the group takes no packet as large: the group is for the others only.
                self._one_by_one(route, group.sessions, packet, session, now)
                continue
            for append in group.appends:
                append(data)
            self._dirty.update(group.connections)
            group.count += 1
        if route.rest or route.shares:
            if message is None:
                message = self.message(packet, packet.topic, route.topic_field, session.key, now)
            for target in route.rest:
                chosen = target.chosen(message, self._wants)
                if chosen is not None:
                    self._outgoing.deliver(chosen, message, now)
            for share in route.shares:
                chosen = share.pick(message, self._wants)
                if chosen is not None:
                    self._outgoing.deliver(chosen, message, now)

    def _one_by_one(self, route: Route, sessions: list[Session], packet: Publish, source: Session, now: float) -> None:
        message = self.message(packet, route.topic, route.topic_field, source.key, now)
        chosen = set(sessions)
        for target in route.targets:
            if target.session in chosen:
                self._outgoing.deliver(target, message, now)

    def _answer(self, connection: Connection, first: int, identifier: int, reason: ReasonCode) -> None:
        """Sends an acknowledgement. MQTT 3.1.1 has no word for a refusal: the message is acknowledged and gone."""
        if reason and connection.version_5:
            connection.out.append(bytes((first, 3, identifier >> 8, identifier & 0xFF, reason)))
        else:
            connection.out.append(bytes((first, 2, identifier >> 8, identifier & 0xFF)))
        self._dirty.add(connection)


def _fitting(groups: list[Group] | None, length: int, version_5: bool) -> list[Group] | None:
    """The groups, if messages of this length and version can go to all of them as they are."""
    if groups is not None:
        for group in groups:
            if group.version_5 is not version_5 or group.identifiers or length > group.bytes_max:
                return None
    return groups


def refuses(targets: Iterable[Target]) -> bool:
    """Whether a message that none of its sessions had room for is refused: one of them says `reject`."""
    return any(target.session.limits.overflow == "reject" for target in targets)
