"""One replica's own connections, before what they send goes through the log.

A connection begins at a *gate*: a broker of its own that reads CONNECT and nothing more, so that strangers never reach
the log. Once the credentials are checked, the client enters the group. From then on its bytes are cut into packets
here, collected, and handed over as commands, several of which may be in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from surecast.protocol.broker import BrokerCore, BrokerSettings, Connection, Origin, Phase
from surecast.protocol.group.commands import ENTRY, Decoded, Entry, Happening, Item, Packets, pack
from surecast.protocol.group.group_link import GroupLink
from surecast.protocol.group.machine import GroupMachine, Port
from surecast.protocol.group.member import Early, Member, promises, raw_packet
from surecast.protocol.group.moves import Home
from surecast.protocol.group.unordered_forwarding import UnorderedForwarding, topic_of
from surecast.protocol.group.work import MESSAGE_WORK, WORK_MIN, fitting, next_work_max, work_of
from surecast.protocol.mqtt import (
    V5,
    V311,
    Connack,
    Disconnect,
    PacketError,
    Properties,
    Publish,
    PublishBatch,
    ReasonCode,
    encode,
)
from surecast.protocol.mqtt.unfinished import PartialPacketHolder, Unfinished

__all__ = ["FrontEnd", "Member"]

_PINGREQ: Final = b"\xc0\x00"
_PINGRESP: Final = b"\xd0\x00"
_CHECK_S: Final = 0.5
_TOPICS_MAX: Final = 1_000
_BATCH: Final = int(Item.BATCH)
_CLOSED: Final = Phase.CLOSED
_WAITING_BYTES_MAX: Final = 16 << 20
_WAITING_COMMANDS: Final = 4


class FrontEnd(Port):
    """The connections of a replica, and the commands that come of them.

    `incarnation` tells this incarnation of the replica from its earlier ones and must be larger. `elsewhere` says where
    else a client may go, as MQTT 5 wants it: addresses with spaces between. At most `window` commands are in flight,
    each of about `bytes_max` bytes, and so few packets that others have their turn soon. A client is sent away when
    nothing it sent was applied for `patience_s`: then this replica has lost the majority. `order` are the topics
    that need no total order, as `UnorderedForwarding` takes them; what is forwarded unordered to the other replicas is
    in `outbox`. `reaches` says whether another replica can be reached. Packets that are not whole yet are counted in
    `unfinished`.
    """

    def __init__(
        self,
        machine: GroupMachine,
        incarnation: int,
        settings: BrokerSettings,
        *,
        authenticates: bool = False,
        elsewhere: str = "",
        window: int = 8,
        bytes_max: int = 1 << 20,
        patience_s: float = 3.0,
        order: Sequence[tuple[str, bool]] = (),
        unfinished: Unfinished[PartialPacketHolder] | None = None,
        reaches: Callable[[int], bool] = lambda replica: True,
    ):
        self.machine = machine
        self._reaches = reaches
        self._unfinished = unfinished
        self.unordered = UnorderedForwarding(machine, order)
        self._goes_straight = self.unordered.is_used
        self.outbox: list[bytes] = []
        self.incarnation = incarnation
        self.elsewhere = elsewhere
        self.window = window
        self.bytes_max = self.work_max = bytes_max
        self.patience_s = patience_s
        self.gate = BrokerCore(settings, authenticates=True)
        self.authenticates = authenticates
        self.members: dict[int, Member] = {}
        self.links: dict[int, GroupLink] = {}
        """The connections to neighbours in an overlay."""
        self.closing: list[Member] = []
        self._next_local = 0
        self._sequence = 0
        self._items: list[Happening] = []
        self.bytes_ready = 0  # what goes into the next commands
        self._work = 0
        self._under_way: dict[int, tuple[float, Decoded, int]] = {}
        self._work_last = 0
        self._constraints = 0
        self._early: dict[int, Early] = {}
        self._leaving: dict[int, tuple[Home, int]] = {}
        self._waiting: dict[int, int] = {}
        self._checked_at = 0.0
        machine.port = self
        self.control(Item.TICK)

    # What the shell calls.

    @property
    def bytes_waiting(self) -> int:
        """Returns the size of what has arrived and is in no command yet."""
        return self.bytes_ready + (sum(early.bytes for early in self._early.values()) if self._early else 0)

    def count_messages(self) -> int:
        """Items with messages that are in no command yet."""
        return sum(
            kind == _BATCH
            or (isinstance(packets, list) and any(isinstance(each, (Publish, PublishBatch)) for each in packets))
            for kind, _, _, packets in self._items
        )

    @property
    def is_ready(self) -> bool:
        """Says whether there is a command to take."""
        return bool(self._items) and len(self._under_way) < (self.window if self.work_max == self.bytes_max else 2)

    def _window(self) -> int:
        """Returns how many commands may be in flight: few while they cost much, so that others come between them."""
        return self.window if self.work_max == self.bytes_max else 2

    def is_flooded(self, share: float = 1.0) -> bool:
        """Returns whether more waits than a share of what should: then less is to be read."""
        waiting = self.bytes_waiting if self._early else self.bytes_ready
        return waiting > share * _WAITING_BYTES_MAX or self._work > share * _WAITING_COMMANDS * self.work_max

    def took(self, time_s: float) -> None:
        """Carrying out the last own command took so long: the next ones are made as long as fits into a turn.

        What a client sent costs all replicas the same, and nobody else is served meanwhile.
        """
        self.work_max = next_work_max(self.work_max, self.bytes_max, self._work_last, time_s)

    def open(self, origin: Origin, now: float) -> Member:
        """A new connection, at the gate."""
        member = Member(origin, self.gate.decoder(origin.listener), now)
        self.gate.open(origin, now, member)
        return member

    def receive(self, connection: Connection, data: bytes, now: float) -> None:
        """Takes what a client sent."""
        if not isinstance(connection, Member) or not connection.local:
            self._receive_at_gate(connection, data, now)
            return
        if connection.phase is _CLOSED:
            return
        connection.listened_at = now
        reader, tail = connection.reader, connection.tail
        if (
            connection.session is not None
            and not self._goes_straight
            and not tail
            and (alike := reader.alike(data)) is not None
        ):
            # Most reads: what `_add_batch` does, without calling it.
            self._items.append((_BATCH, connection.local, data, alike))
            size = len(data)
            self.bytes_ready += size
            self._work += size + alike.count * MESSAGE_WORK
            return
        if data == _PINGREQ and not tail:
            # Nothing but this connection is concerned. Among other packets it goes the long way.
            connection.out.append(_PINGRESP)
            self.machine.broker.dirty.add(connection)
            return
        try:
            packets = reader.feed_batches(data)
        except PacketError:
            # The core comes to the same end, and says goodbye.
            tail.append(data)
            self._hand_in(connection, b"".join(tail), None)
            tail.clear()
            return
        if not packets:
            tail.append(data)
            return
        if tail:
            tail.append(data)
            data = b"".join(tail)
            tail.clear()
        held = reader.held_bytes
        if held:
            tail.append(data[-held:])
            data = data[:-held]
        if self._goes_straight and connection.session is not None:
            packets, data = self._send_straight(connection, packets, data, now)
        if packets:
            self._hand_in(connection, data, packets)

    def _receive_at_gate(self, connection: Connection, data: bytes, now: float) -> None:
        self.gate.receive(connection, data, now)
        if self.gate.checking and not self.authenticates:
            for waiting in self.take_checking():
                self.admit(waiting, waiting.origin.identity, now)

    def _hand_in(self, member: Member, data: bytes, packets: Packets | None, is_promised: bool | None = None) -> None:
        """Packets of a client go into the log, but not before the client has entered.

        While it waits it may give up and go to another replica, and have its packets applied there. If they were
        in the log here, behind an ENTER that comes late, they would be applied again.
        """
        if member.session is not None:
            if packets is not None and len(packets) == 1:
                batch = packets[0]
                if isinstance(batch, PublishBatch) and len(batch.topics) == 1:
                    self._add_batch(member, batch.data, batch)
                    return
            self._add(Item.PACKETS, member.local, data, packets)
            return
        early = self._early.setdefault(member.local, Early())
        early.items.append((Item.PACKETS, data, packets))
        early.bytes += len(data)
        early.is_promised |= promises(packets) if is_promised is None else is_promised

    def _send_straight(self, connection: Member, packets: Packets, data: bytes, now: float) -> tuple[Packets, bytes]:
        """Sends on what needs no total order; what is left goes through the log."""
        session = connection.session
        assert session is not None
        version = V5 if connection.version_5 else V311
        packets = [
            part
            for packet in packets
            for part in (packet.by_topic() if isinstance(packet, PublishBatch) else (packet,))
        ]
        taken = [
            packet
            for packet in packets
            if isinstance(packet, (Publish, PublishBatch))
            and self.unordered.takes(packet)
            and self._may_publish(connection, session.client, topic_of(packet))
        ]
        if not taken:
            return packets, data
        if len(taken) < len(packets):
            going = set(map(id, taken))
            packets = [packet for packet in packets if id(packet) not in going]
            data = b"".join(raw_packet(packet, version) for packet in packets)
            raw = b"".join(raw_packet(packet, version) for packet in taken)
        else:
            packets, raw = [], data
        self.unordered.deliver(session.key, connection.version_5, taken, now)
        self.outbox.append(self.unordered.pack(session.key, version, raw))
        return packets, data

    def _may_publish(self, member: Member, client: str, topic: str) -> bool:
        if member.may_by is not self.machine.rules.access or len(member.may) > _TOPICS_MAX:
            member.may, member.may_by = {}, self.machine.rules.access
        allowed = member.may.get(topic)
        if allowed is None:
            allowed = member.may[topic] = self.machine.allows(member.user, client, "publish", topic)
        return allowed

    def take_checking(self) -> list[Connection]:
        """The connections at the gate whose credentials are to be checked."""
        waiting, self.gate.checking = self.gate.checking, []
        return waiting

    def admit(self, connection: Connection, user: str, now: float) -> None:
        """The credentials are right: the client enters."""
        connect = connection.connect
        if not isinstance(connection, Member) or connection.phase is not Phase.CHECKING or connect is None:
            return
        if self.is_stuck(now):
            # Nothing more is taken on that cannot be applied.
            self.gate.refuse(connection, now, ReasonCode.SERVER_UNAVAILABLE)
            return
        held, rest, left = connection.held, connection.decoder.held, connection.left
        self.gate.dismiss(connection)
        self._next_local += 1
        origin = Origin(connection.origin.listener, connection.origin.peer, user)
        packet = encode(replace(connect, password=None), connect.version)
        # The reader and the decoder of the core, here as elsewhere, take the same packets and refuse the same.
        core = self.machine.broker
        decoder, reader = core.decoder(origin.listener), core.decoder(origin.listener)
        if self._unfinished is not None:
            reader.count_in(self._unfinished)
        reader.feed(packet)
        connection.leave_gate(self._next_local, origin, decoder, reader, now)
        self.members[connection.local] = connection
        entry = Entry(origin.listener, origin.peer, user, packet, connect.client_id)
        self._add(Item.ENTER, connection.local, ENTRY.encode(entry), None)
        version = V5 if connect.version == V5 else V311
        if held:
            self._hand_in(connection, b"".join(raw_packet(p, version) for p in held), None, promises(held))
        if rest:
            self.receive(connection, rest, now)
        if left:
            self.lost(connection, now, left)

    def refuse(
        self, connection: Connection, now: float, reason: ReasonCode = ReasonCode.BAD_USER_NAME_OR_PASSWORD
    ) -> None:
        """The credentials of a connection at the gate are wrong."""
        self.gate.refuse(connection, now, reason)

    def lost(self, connection: Connection, now: float, reason: str = "connection lost") -> None:
        """The transport is gone."""
        if not isinstance(connection, Member) or not connection.local:
            self.gate.lost(connection, now, reason)
        elif self.members.pop(connection.local, None) is not None:
            early = self._early.get(connection.local)
            if early is None or early.is_promised:
                self._early.pop(connection.local, None)
                self._add(Item.LOST, connection.local, reason.encode(), None)
                self._let_go(connection.local)
            else:
                # It has said all it wanted to, and did not wait for an answer.
                early.items.append((Item.LOST, reason.encode(), None))

    def set_congested(self, connection: Connection, congested: bool) -> None:
        """A connection has too much unsent, or no longer."""
        if isinstance(connection, Member) and connection.local in self.members:
            self._add(Item.CONGESTED, connection.local, b"\1" if congested else b"\0", None)

    def end(self, connection: Connection, reason: ReasonCode, text: str = "") -> None:
        """This replica ends a connection, by way of the log."""
        if isinstance(connection, Member) and connection.local in self.members:
            self._add(Item.END, connection.local, bytes((reason,)) + text.encode(), None)

    def control(self, kind: Item, number: int = 0, data: bytes = b"") -> None:
        """Adds an item that no connection sent: of an administrator, the clock, the state of another replica."""
        self._add(kind, number, data, None)

    # Links of an overlay.

    def open_link(self, neighbour: str, *, calls: bool) -> GroupLink:
        """A connection to a neighbour, which has proven who it is."""
        self._next_local += 1
        link = self.links[self._next_local] = GroupLink(self, self._next_local, neighbour, calls=calls)
        return link

    def take_links(self) -> None:
        """This replica leads: the group learns that no other has links now."""
        self.control(Item.LINKS_TAKEN)

    def forget_link(self, number: int) -> None:
        """A connection to a neighbour is over; the group learns it where it knows of it."""
        if self.links.pop(number, None) is not None:
            self.add_link_item(Item.LINK_ENDED, number, b"")

    def add_link_item(self, kind: Item, number: int, data: bytes) -> None:
        """Something has happened at a connection to a neighbour."""
        self._add(kind, number, data, None)

    def link_end(self, incarnation: int, number: int) -> GroupLink | None:
        """The connection of this replica to a neighbour."""
        return self.links.get(number) if incarnation == self.incarnation else None

    def take(self, now: float) -> list[tuple[int, list[bytes]]]:
        """The next commands, by number and in pieces, to be applied; as many as may be in flight."""
        constraints = self.machine.broker.routes.contents.constraints
        if constraints > self._constraints:  # what a message costs is another thing now, and is measured anew
            self.work_max = WORK_MIN
        self._constraints = constraints
        taken = []
        while self._items and len(self._under_way) < self._window():
            items, work = self._items, self._work
            if work > self.work_max and len(items) > 1:
                count, work = fitting(items, self.work_max)
                self._items, items = items[count:], items[:count]
                self.bytes_ready -= sum(len(item[2]) for item in items)
                self._work -= work
            else:
                self._items, self.bytes_ready, self._work = [], 0, 0
            self._sequence += 1
            pieces, decoded = pack(self.machine.replica, self.incarnation, self._sequence, items)
            self._under_way[self._sequence] = (now, decoded, work)
            taken.append((self._sequence, pieces))
        return taken

    def tick(self, now: float) -> None:
        """Sees to silent clients, to clients that move, and to a group that does not answer."""
        self.gate.tick(now)
        if self._leaving or self._waiting:
            self._see_to_moves()
        if now - self._checked_at < _CHECK_S:
            return
        self._checked_at = now
        for member in list(self.members.values()):
            limit_s = member.silence_max_s
            if limit_s and member.listened_at + limit_s <= now and not member.is_closed():
                self.end(member, ReasonCode.KEEP_ALIVE_TIMEOUT)
                member.listened_at = now
        if self.is_stuck(now):
            self.send_away(now)

    def _see_to_moves(self) -> None:
        """Lets clients go whose old connection has been silent, and in whose old replica cannot be reached.

        Between two ticks the shell has read whatever there was of a connection.
        """
        for number, (newcomer, ticks) in list(self._leaving.items()):
            self._leaving[number] = (newcomer, ticks + 1)
            if ticks:
                self._let_go(number)
        for number, home in list(self._waiting.items()):
            if not self._reaches(home):
                self._release((self.machine.replica, number))
                del self._waiting[number]

    def _let_go(self, number: int) -> None:
        if self._leaving and (leaving := self._leaving.pop(number, None)) is not None:
            self._release(leaving[0])

    def _release(self, newcomer: Home) -> None:
        self._add(Item.RELEASE, newcomer[1], self.machine.release(newcomer), None)

    def excuse(self, late_s: float) -> None:
        """This replica did not run for so long: what clients and the group said meanwhile is not read yet."""
        for member in self.members.values():
            member.listened_at += late_s
        for sequence, (at, decoded, work) in self._under_way.items():
            self._under_way[sequence] = (at + late_s, decoded, work)

    def is_stuck(self, now: float) -> bool:
        """Says whether a command has been in flight for too long."""
        oldest = next(iter(self._under_way.values()), None)
        return oldest is not None and now - oldest[0] > self.patience_s

    def send_away(self, now: float, reason: ReasonCode = ReasonCode.USE_ANOTHER_SERVER) -> None:
        """Ends all connections without asking the group, and tells clients where to go.

        Their sessions stay as they are; when the group can be asked again it learns that the connections are gone.
        """
        where = Properties(server_reference=self.elsewhere) if self.elsewhere else Properties()
        for connection in list(self.gate.connections.values()):
            self.gate.refuse(connection, now, ReasonCode.SERVER_UNAVAILABLE)
        for member in list(self.members.values()):
            if not member.is_closed():
                version_5 = member.reader.version == V5
                if version_5 and member.session is not None:
                    member.out.append(encode(Disconnect(reason, where), V5))
                elif member.session is None:
                    refusal = Connack(False, reason if version_5 else ReasonCode.SERVER_UNAVAILABLE, where)
                    member.out.append(encode(refusal, V5 if version_5 else V311))
            self._early.pop(member.local, None)
            self.lost(member, now, "sent to another replica")
            self.closing.append(member)

    # What the machine asks.

    def connection(self, incarnation: int, number: int, origin: Origin, now: float) -> Connection | None:
        """The connection of this replica that enters; what it has sent meanwhile follows."""
        if incarnation != self.incarnation:
            return None
        self._waiting.pop(number, None)
        if self._early and (early := self._early.pop(number, None)) is not None:
            for kind, data, packets in early.items:
                self._add(kind, number, data, packets)
        return self.members.get(number)

    def decoded(self, incarnation: int, sequence: int) -> Decoded | None:
        """The packets of an own command; it is in flight no longer."""
        if incarnation != self.incarnation:
            return None
        command = self._under_way.pop(sequence, None)
        if command is None:
            return None
        self._work_last = command[2]
        return command[1]

    def leaves(self, incarnation: int, number: int, newcomer: Home) -> None:
        """A client of this replica wants to enter by another connection: all that was read of this one goes first.

        What is still on its way is waited for, unless the other connection came to this replica too, and so later.
        """
        if incarnation == self.incarnation:
            self._leaving[number] = (newcomer, 0)
            if number not in self.members or newcomer[0] == self.machine.replica:
                self._let_go(number)

    def waits(self, incarnation: int, number: int, home: int) -> None:
        """A connection of this replica cannot enter before `home` has let its client go."""
        if incarnation != self.incarnation or home == self.machine.replica:
            return
        if self._reaches(home):
            self._waiting[number] = home
        else:
            self._release((self.machine.replica, number))

    def declared_down(self, incarnation: int) -> None:
        """The group has given this replica up, and its connections with it; it begins a new incarnation."""
        if incarnation == self.incarnation:
            self._new_incarnation(incarnation + 1)

    def restored(self) -> None:
        """The state came as a snapshot, so what was sent to these clients and what was not is unknown.

        They have to come again: their sessions know what they are owed.
        """
        self._new_incarnation(self.incarnation + 1)

    def _new_incarnation(self, incarnation: int) -> None:
        """All connections of the incarnation before are over, here as in the group."""
        known = self.machine.sources.get(self.machine.replica)
        self.incarnation = max(incarnation, known.incarnation + 1 if known is not None else incarnation)
        self._sequence = 0
        self._items, self.bytes_ready, self._work = [], 0, 0
        self._under_way.clear()
        self._early.clear()
        self._leaving.clear()
        self._waiting.clear()
        self.closing += self.members.values()
        self.members.clear()
        for link in self.links.values():
            link.fail("the replica has begun anew")
        self.links.clear()
        self.control(Item.TICK)

    def _add_batch(self, member: Member, data: bytes, batch: PublishBatch) -> None:
        """Adds messages of a client to one topic, which are this batch or like it."""
        size = len(data)
        self._items.append((_BATCH, member.local, data, batch))
        self.bytes_ready += size
        self._work += size + batch.count * MESSAGE_WORK

    def _add(self, kind: int, number: int, data: bytes, known: Packets | PublishBatch | None) -> None:
        self._items.append((kind, number, data, known))
        self.bytes_ready += len(data)
        self._work += work_of(data, known)
