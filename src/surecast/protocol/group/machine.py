"""A replicated broker as a state machine: every replica runs the same broker on the same inputs in the same order.

The commands are not messages but *inputs of a broker*: a client entered, packets arrived, a connection was lost. Each
replica gives them to its own core, so that sessions, subscriptions, queues, packet identifiers and retained messages
are equal everywhere without being sent around. What is to be sent to a client is written by the core of the replica
that it is connected to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from surecast.errors import PeerError, SurecastError
from surecast.protocol.broker import BrokerCore, Connection, Origin, publish_system_topics
from surecast.protocol.broker.incoming import Authorise
from surecast.protocol.broker.message import Message
from surecast.protocol.broker.session import session_key
from surecast.protocol.broker.snapshot import decode_state, pieces_of, records_of
from surecast.protocol.group.application import Application, Publication
from surecast.protocol.group.backup import Parts
from surecast.protocol.group.commands import (
    DECIDED,
    ENTRY,
    HEAD,
    ITEM,
    Decoded,
    Item,
    SentBatch,
    read_batch,
)
from surecast.protocol.group.effects import effects_of
from surecast.protocol.group.group_overlay import GroupOverlay, LinkEnd, LinkHome, MakeOverlay
from surecast.protocol.group.group_snapshot import GROUP_STATE, GroupState, SourceState
from surecast.protocol.group.moves import Home, Moves, Newcomer
from surecast.protocol.group.rules import MakeLimits, MakeRules, Rules
from surecast.protocol.mqtt import ReasonCode
from surecast.protocol.paxos import Context

__all__ = ["GroupMachine", "MakeBroker", "Port"]

MakeBroker = Callable[[Authorise], BrokerCore]
"""Makes the core; every replica must make it with the same settings."""

_SWEEP_US: Final = 5_000_000
_HOME: Final = struct.Struct(">HQ")
_BATCH: Final = int(Item.BATCH)  # local alias: avoids an attribute lookup
_OVERLAY_MISSING: Final = "this replica is one of an overlay, and the state is that of a group alone"
_OVERLAY_UNKNOWN: Final = "it is that of a broker of an overlay, and this replica has no file of one"


@dataclass(slots=True)
class _Source:
    """One replica as a source of commands: its incarnation, the next sequence number, and what came too early."""

    replica: int
    incarnation: int = 0
    next: int = 1
    early: dict[int, bytes] = field(default_factory=dict)
    connections: dict[int, Connection] = field(default_factory=dict)


class Port:
    """The replica as the machine sees it; this one stands for a replica without any connections."""

    def connection(self, incarnation: int, number: int, origin: Origin, now: float) -> Connection | None:
        """The connection of this replica that enters; None if it is gone or belongs to an earlier incarnation."""
        return None

    def decoded(self, incarnation: int, sequence: int) -> Decoded | None:
        """The items of an own command with their packets decoded, so that they need not be decoded again."""
        return None

    def carried_out(self) -> None:
        """The command whose packets were last asked for is carried out."""

    def leaves(self, incarnation: int, number: int, newcomer: Home) -> None:
        """The client of a connection of this replica wants to enter by another one, and waits there.

        Once all that it sent by this one is in the log, RELEASE lets it in.
        """

    def waits(self, incarnation: int, number: int, home: int) -> None:
        """A connection of this replica cannot enter before the replica `home` has let its client go."""

    def link_end(self, incarnation: int, number: int) -> LinkEnd | None:
        """The connection of this replica to a neighbour in an overlay; None if it is gone."""
        return None

    def declared_down(self, incarnation: int) -> None:
        """The others have given this incarnation of the replica up."""

    def restored(self) -> None:
        """The state was replaced: what was to be sent in between is unknown."""


class GroupMachine:
    """The handler of a group.

    `make_rules` turns the access rules of a RULES item into a function, and `make_limits` those of a LIMITS item into
    settings and a table: both are part of the state, so that all replicas go by the same. `version` is for `$SYS`.
    `make_overlay` makes the group a broker of an overlay; the core must have a `traffic` then.
    """

    def __init__(
        self,
        replica: int,
        make_broker: MakeBroker,
        *,
        make_rules: MakeRules | None = None,
        make_limits: MakeLimits | None = None,
        applications: Iterable[Application] = (),
        version: str = "surecast",
        make_overlay: MakeOverlay | None = None,
    ):
        self.replica = replica
        self._make_overlay = make_overlay
        self.port = Port()
        self._make_broker = make_broker
        self.rules = Rules(make_rules, make_limits)
        self._version = version
        self.applications = {application.name: application for application in applications}
        self._handlers: dict[int, Callable[[_Source, int, bytes, float], None]] = {
            Item.ENTER: self._enter,
            Item.PACKETS: self._packets,
            Item.LOST: self._lost,
            Item.CONGESTED: self._congested,
            Item.END: self._end,
            Item.DOWN: self._down,
            Item.KICK: self._kick,
            Item.RULES: self._set_rules,
            Item.LIMITS: self._set_limits,
            Item.SYSTEM: self._system,
            Item.TICK: self._nothing,
            Item.RESTORE: self._take_backup,
            Item.RELEASE: self._release,
            Item.DECISION: self._decide,
            Item.LINK_CALLED: self._link_called,
            Item.LINK_HELLO: self._link_greeted,
            Item.LINK_FRAMES: self._link_frames,
            Item.LINK_ENDED: self._link_ended,
            Item.LINKS_TAKEN: self._links_taken,
            Item.CUT: self._cut,
        }
        self._reset()

    def _reset(self) -> None:
        self.sources: dict[int, _Source] = {}
        self._forget_homes()
        self.backup = Parts()
        self.rules = self.rules.anew()
        self._swept_us = 0
        self.time_us = 0
        self.broker = self._make_broker(lambda *asked: self.rules.authorise(*asked))
        self.overlay: GroupOverlay | None = None
        for application in self.applications.values():
            application.restore(b"")
            for topic_filter in application.topics:
                self.broker.routes.tap(topic_filter, partial(self._hear, application))
            if application.watched:
                self.broker.routes.watch(application.watched, application.subscribed)

    def _forget_homes(self) -> None:
        """Nobody is connected anywhere, or waits to be."""
        self._homes: dict[int, Home] = {}
        self.moves = Moves(self._home_of, self._ask, self._open)

    # What consensus calls.

    def execute(self, command: bytes, context: Context) -> bytes:
        """Applies a command."""
        return self.execute_in(command, 0, len(command), context)

    def execute_in(self, data: bytes, begin: int, end: int, context: Context) -> bytes:
        """Applies the command that stands there, and those that had to wait for it.

        Consensus may apply the commands of a replica in another order than it sent them, when leaders change. What
        a client sent must stay in order, so a command waits here, in the replicated state, for those before it.
        """
        self.time_us = context.time_us
        now = context.time_us / 1e6
        self._see_to_time(now)
        replica, incarnation, sequence = HEAD.unpack_from(data, begin)
        source = self.sources.get(replica)
        if source is None:
            source = self.sources[replica] = _Source(replica)
        if incarnation >= source.incarnation:
            if incarnation != source.incarnation:
                self._begin(source, incarnation, now)
            if sequence > source.next:
                source.early[sequence] = data[begin:end]
            elif sequence == source.next:
                self._run(replica, source, data, begin, end, now)
                while source.early and (early := source.early.pop(source.next, None)) is not None:
                    self._run(replica, source, early, 0, len(early), now)
            for application in self.applications.values():
                self._publish(application.tick(context.time_us), now)
        if self.overlay is not None:
            self.overlay.end_command(now)
        return b""

    def _see_to_time(self, now: float) -> None:
        """Does what is due by the time of a command."""
        broker = self.broker
        if self.overlay is not None:
            self.overlay.begin_command(now)
        elif self._make_overlay is not None:
            self._begin_overlay(self._make_overlay, now)
        if broker.timers.next_at() <= now:
            broker.tick(now)
        if self.moves.queues and self.moves.next_at <= now:
            self.moves.due(now)
        if self.time_us - self._swept_us >= _SWEEP_US:
            self._swept_us = self.time_us
            broker.sweep(now)

    def _begin_overlay(self, make: MakeOverlay, now: float) -> None:
        """Makes the group a broker of an overlay, at this time of the log."""
        self.overlay = GroupOverlay(make(self.broker, now), self._link_end)

    def effects(self, slot: int) -> bytes:
        """Returns what the log led to up to an instance, in a few bytes that are equal on all replicas."""
        effects = effects_of(self.broker, slot)
        return effects if self.overlay is None else effects + self.overlay.effects()

    def snapshot(self) -> bytes:
        """The whole state."""
        return b"".join(self.snapshot_pieces())

    def snapshot_pieces(self) -> Iterator[bytes]:
        """Yields the whole state piece by piece."""
        sources = [
            SourceState(
                replica,
                source.incarnation,
                source.next,
                [source.early[number] for number in sorted(source.early)],
                [(number, connection.number) for number, connection in sorted(source.connections.items())],
            )
            for replica, source in sorted(self.sources.items())
        ]
        yield GROUP_STATE.encode(
            GroupState(
                self.time_us,
                self._swept_us,
                self.broker.routes.contents.decisions,
                self.rules.access,
                self.rules.limits,
                self.backup,
                sources,
                self.moves.newcomers(),
                {name: application.snapshot() for name, application in self.applications.items()},
                b"",
            )
        )
        others = self.overlay.records() if self.overlay is not None else ()
        yield from pieces_of(chain(records_of(self.broker), others))

    def restore(self, state: bytes) -> None:
        """Replaces the state by that of a snapshot."""
        self._reset()
        if state:
            try:
                self._read(state)
            except (ValueError, IndexError) as error:
                raise PeerError(f"group snapshot: {error}") from error
        self.port.restored()

    def _read(self, state: bytes) -> None:
        read = GROUP_STATE.decode(state)
        self.backup = read.backup
        self.time_us, self._swept_us = read.time_us, read.swept_us
        self.rules.use(read.access)
        self.rules.use_limits(read.limits, self.broker, self.time_us / 1e6)
        for name, kept in read.applications.items():
            application = self.applications.get(name)
            if application is None:
                raise PeerError(f"group snapshot: this replica does not run the application {name!r}")
            application.restore(kept)
        if self._make_overlay is not None and read.sources:  # else nothing was carried out yet
            self._begin_overlay(self._make_overlay, self.time_us / 1e6)
        # Applications hear of the subscriptions here.
        of_overlay = decode_state(self.broker, read.broker)
        if bool(of_overlay) is not (self.overlay is not None):
            raise PeerError(f"group snapshot: {_OVERLAY_MISSING if self.overlay else _OVERLAY_UNKNOWN}")
        if self.overlay is not None:
            self.overlay.restore(of_overlay)
        self.broker.routes.contents.decisions = read.decisions
        self.broker.routes.check_deliveries(self.broker.may_receive if self.rules.checks_deliveries else None)
        for each in read.sources:
            source = self.sources[each.replica] = _Source(each.replica, each.incarnation, each.next)
            source.early = {HEAD.unpack_from(command)[2]: command for command in each.early}
            for local, number in each.connections:
                connection = source.connections[local] = self.broker.connections[number]
                connection.is_elsewhere = True
                self._homes[number] = (each.replica, local)
        self.moves.restore(read.newcomers)

    def next_timer(self) -> float:
        """Returns when something is due by the time of the log; infinite if nothing is planned."""
        due_s = min(self.broker.next_timer(), self.moves.next_at)
        return due_s if self.overlay is None else min(due_s, self.overlay.due_s)

    def release(self, newcomer: Home) -> bytes:
        """Returns the data of the RELEASE item that lets a newcomer in."""
        replica, _ = newcomer
        return _HOME.pack(replica, self.sources[replica].incarnation)

    def allows(self, user: str, client: str, action: str, topic: str) -> bool:
        """Says whether a client may publish or subscribe to a topic, by the rules that hold for all replicas."""
        return not topic.startswith("$") and self.rules.authorise(user, client, action, topic)

    # What commands do.

    def _begin(self, source: _Source, incarnation: int, now: float) -> None:
        """A replica has started again: all its connections are gone."""
        for connection in list(source.connections.values()):
            self._homes.pop(connection.number, None)
            self.broker.lost(connection, now, "the replica of the connection is down")
        source.connections.clear()
        source.early.clear()
        source.incarnation, source.next = incarnation, 1
        self.moves.down(source.replica, now)
        if self.overlay is not None:
            self.overlay.gone(source.replica, now)

    def _run(self, replica: int, source: _Source, data: bytes, begin: int, end: int, now: float) -> None:
        sequence = source.next
        source.next = sequence + 1
        if replica == self.replica:
            decoded = self.port.decoded(source.incarnation, sequence)
            if decoded is not None:
                self._run_decoded(source, decoded, now)
                self.port.carried_out()
                return
        get = source.connections.get
        handlers, at = self._handlers, begin + HEAD.size
        while at < end:
            kind, number, size = ITEM.unpack_from(data, at)
            if kind == _BATCH:
                (batch, numbers, counts), at = read_batch(data, at)
                self.broker.handle_batches(batch, [*map(get, numbers)], counts, now)
                continue
            at += ITEM.size
            handlers[kind](source, number, data[at : at + size], now)
            at += size

    def _run_decoded(self, source: _Source, decoded: Decoded, now: float) -> None:
        broker, connections = self.broker, source.connections
        for item in decoded:
            if isinstance(item, SentBatch):
                batch, numbers, counts = item
                broker.handle_batches(batch, [*map(connections.get, numbers)], counts, now)
                continue
            kind, number, data, packets = item
            if not isinstance(packets, list):
                self._handlers[kind](source, number, data, now)
            elif (connection := connections.get(number)) is None:
                continue
            elif len(data) > connection.limits.packet_bytes_max:
                # The limit of this very client may be crossed, which the decoders elsewhere notice.
                broker.receive(connection, data, now)
            else:
                broker.handle(connection, packets, len(data), now)

    def _enter(self, source: _Source, number: int, data: bytes, now: float) -> None:
        entry = ENTRY.decode(data)
        newcomer = Newcomer((source.replica, number), session_key(entry.user, entry.client), data)
        if entry.client:
            self.moves.enter(newcomer, now)
        else:
            self._open(newcomer, now)

    def _open(self, newcomer: Newcomer, now: float) -> None:
        """Lets a client in."""
        entry = ENTRY.decode(newcomer.entry)
        replica, number = newcomer.home
        source = self.sources[replica]
        origin = Origin(entry.listener, entry.peer, entry.user)
        home = self.port.connection(source.incarnation, number, origin, now) if self._is_own(source) else None
        connection = self.broker.open(origin, now, home)
        connection.is_elsewhere = home is None
        source.connections[number] = connection
        self._homes[connection.number] = newcomer.home
        self.broker.receive(connection, entry.connect, now)

    def _home_of(self, key: str) -> Home | None:
        """Returns where the client of a session is connected, None if it is not."""
        session = self.broker.sessions.by_key.get(key)
        if session is None or session.connection is None:
            return None
        return self._homes.get(session.connection.number)

    def _ask(self, newcomer: Newcomer, old: Home) -> None:
        """Tells this replica, where it is concerned, that a client waits to leave one connection for another."""
        if old[0] == self.replica:
            self.port.leaves(self.sources[old[0]].incarnation, old[1], newcomer.home)
        if newcomer.home[0] == self.replica:
            self.port.waits(self.sources[self.replica].incarnation, newcomer.home[1], old[0])

    def _release(self, source: _Source, number: int, data: bytes, now: float) -> None:
        replica, incarnation = _HOME.unpack(data)
        if replica in self.sources and self.sources[replica].incarnation == incarnation:
            self.moves.release((replica, number), now)

    def _is_own(self, source: _Source) -> bool:
        return self.sources.get(self.replica) is source

    def _packets(self, source: _Source, number: int, data: bytes, now: float) -> None:
        connection = source.connections.get(number)
        if connection is not None:
            self.broker.receive(connection, data, now)

    def _lost(self, source: _Source, number: int, data: bytes, now: float) -> None:
        connection = source.connections.pop(number, None)
        if connection is not None:
            self._homes.pop(connection.number, None)
            self.broker.lost(connection, now, data.decode())
        else:
            self.moves.leave((source.replica, number), now)

    def _congested(self, source: _Source, number: int, data: bytes, now: float) -> None:
        connection = source.connections.get(number)
        if connection is not None:
            self.broker.set_congested(connection, data == b"\1")

    def _end(self, source: _Source, number: int, data: bytes, now: float) -> None:
        connection = source.connections.get(number)
        if connection is not None:
            self.broker.disconnect(connection, ReasonCode(data[0]), now, data[1:].decode())

    def _down(self, source: _Source, number: int, data: bytes, now: float) -> None:
        incarnation = int.from_bytes(data, "big")
        gone = self.sources.get(number)
        if gone is not None and gone.incarnation == incarnation:
            self._begin(gone, incarnation + 1, now)
            if number == self.replica:
                self.port.declared_down(incarnation)

    def _kick(self, source: _Source, number: int, data: bytes, now: float) -> None:
        key = data.decode()
        if number:
            self.broker.end_session(key, now)
            return
        session = self.broker.sessions.by_key.get(key)
        if session is not None and session.connection is not None:
            self.broker.disconnect(session.connection, ReasonCode.ADMINISTRATIVE_ACTION, now)

    def _set_rules(self, source: _Source, number: int, data: bytes, now: float) -> None:
        if data != self.rules.access:
            self.rules.use(data)
            self.rules.revoke(self.broker, now)

    def _set_limits(self, source: _Source, number: int, data: bytes, now: float) -> None:
        if data != self.rules.limits:
            self.rules.use_limits(data, self.broker, now)

    def _decide(self, source: _Source, number: int, data: bytes, now: float) -> None:
        key, revision, decision = DECIDED.decode(data)
        self.broker.deciding.decide(key, revision, decision, now)

    def _system(self, source: _Source, number: int, data: bytes, now: float) -> None:
        publish_system_topics(self.broker, self._version, now)

    # Links of the overlay.

    def _link_end(self, home: LinkHome) -> LinkEnd | None:
        return self.port.link_end(home.incarnation, home.number) if home.replica == self.replica else None

    def _link_called(self, source: _Source, number: int, data: bytes, now: float) -> None:
        if self.overlay is not None:
            self.overlay.called(LinkHome(source.replica, source.incarnation, number), data.decode(), now)

    def _link_greeted(self, source: _Source, number: int, data: bytes, now: float) -> None:
        if self.overlay is not None:
            self.overlay.greeted(LinkHome(source.replica, source.incarnation, number), data, now)

    def _link_frames(self, source: _Source, number: int, data: bytes, now: float) -> None:
        if self.overlay is not None:
            self.overlay.came(LinkHome(source.replica, source.incarnation, number), data, now)

    def _link_ended(self, source: _Source, number: int, data: bytes, now: float) -> None:
        if self.overlay is not None:
            self.overlay.ended(LinkHome(source.replica, source.incarnation, number), now)

    def _links_taken(self, source: _Source, number: int, data: bytes, now: float) -> None:
        if self.overlay is not None:
            self.overlay.taken_over(source.replica, source.incarnation, now)

    def _cut(self, source: _Source, number: int, data: bytes, now: float) -> None:
        if self.overlay is not None:
            self.overlay.broker.node.cuts.begin()

    def _nothing(self, source: _Source, number: int, data: bytes, now: float) -> None:
        """Time has passed; that was seen to before."""

    def _take_backup(self, source: _Source, number: int, data: bytes, now: float) -> None:
        state = self.backup.take(data)
        if state is None:
            return
        if self.overlay is not None:
            self.backup.outcome = b"!the group is a broker of an overlay, which cannot begin with a backup"
        elif self.broker.sessions.serial:
            self.backup.outcome = b"!the group has had clients already; only a new one can begin with a backup"
        else:
            self.backup.outcome = self._begin_with(state, now)

    def _begin_with(self, state: bytes, now: float) -> bytes:
        """Takes the state of another group; replicas, access rules and limits stay those of this one."""
        for source in self.sources.values():
            for connection in list(source.connections.values()):
                self.broker.lost(connection, now, "the group begins with a backup")
            source.connections.clear()
        kept = self.sources, self.backup, self.time_us, self._swept_us
        rules, limits, outcome = self.rules.access, self.rules.limits, b"+"
        self._reset()
        try:
            self._read(state)
        except (SurecastError, ValueError, LookupError, struct.error) as error:
            self._reset()
            outcome, kept[1].detail = b"!its state cannot be read", str(error)
        self.sources, self.backup, self.time_us, self._swept_us = kept
        self.rules.use(rules)
        self.rules.use_limits(limits, self.broker, now)
        for connection in list(self.broker.connections.values()):
            self.broker.lost(connection, now, "the group was restored from a backup")
        self._forget_homes()
        self.rules.revoke(self.broker, now)
        return outcome

    # Applications.

    def _hear(self, application: Application, message: Message) -> None:
        if message.publisher:
            now = self.time_us / 1e6
            self._publish(application.published(message.topic, message.payload, self.time_us), now)

    def _publish(self, publications: Iterable[Publication], now: float) -> None:
        for topic, payload, retain in publications:
            self.broker.announce(topic, payload, retain, now)
