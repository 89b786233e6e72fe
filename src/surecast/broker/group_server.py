"""A member of a replicated broker on real sockets: channels, their front end, and the replica, all on one event loop.

A turn: whatever clients and other replicas sent goes in; what clients sent becomes commands for the group, at once or,
where this replica leads, when it can be proposed; the replica says and stores what it must; and what the commands that
were applied have to say to clients is sent.

Two kinds of time: what concerns one connection of this replica (keep-alive, patience, the gate) goes by a timer of this
machine, which nobody sets; what is in the state goes by the group's time. The machine's clock alone decides nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

from surecast.broker.authenticator import Verdict
from surecast.broker.replica import NodeUser, ReplicaNode
from surecast.broker.shell import Authenticate, Channel, Hooks, Shell
from surecast.broker.target_adviser import TargetAdviser
from surecast.errors import OverloadError
from surecast.protocol.broker import BrokerCore, BrokerSettings, Connection, Origin
from surecast.protocol.broker.response_target import Decision
from surecast.protocol.group import FrontEnd, GroupMachine, Item
from surecast.protocol.group.commands import DECIDED, Decided, Decoded
from surecast.protocol.group.member import Member
from surecast.protocol.group.work import WORK_S
from surecast.protocol.mqtt import PacketDecoder, ReasonCode
from surecast.protocol.paxos import Request

__all__ = ["GroupServer"]

_INCARNATION_BITS: Final = 20
_TICK_S: Final = 0.1
_APPLICATION_S: Final = 0.5
_DOWN_S: Final = 3.0
_PIECE_S: Final = 0.002  # reading packets costs about a fifth of carrying them out

_WATCHED: Final = 256  # own commands whose processor time is read, after one that may have been costly


class TimedFrontEnd(FrontEnd):
    """A front end whose commands are made so long that each takes about 10 ms of this processor.

    A client may have what costs all replicas much in few bytes: messages to a thousand sessions, content filters.
    Reading the processor time is a system call, so the elapsed time is looked at first. Where it is too long, the
    command may have been costly or interrupted: the processor time of the next commands tells.
    """

    _begun_s = 0.0
    _watched = _WATCHED

    def decoded(self, incarnation: int, sequence: int) -> Decoded | None:
        """The packets of an own command, which is carried out now."""
        command = super().decoded(incarnation, sequence)
        self._begun_s = time.thread_time() if self._watched else time.perf_counter()
        return command

    def carried_out(self) -> None:
        """The command is carried out."""
        if self._watched:
            time_s = time.thread_time() - self._begun_s
            self._watched = _WATCHED if time_s > WORK_S else self._watched - 1
        elif (time_s := time.perf_counter() - self._begun_s) > WORK_S:
            self._watched = _WATCHED
            return
        if time_s > WORK_S or self.work_max < self.bytes_max:
            self.took(time_s)


class GroupServer(Shell, NodeUser):
    """Runs the connections of one replica.

    `machine` is the handler of `node`, which is started already. `elsewhere` says where the other replicas take
    clients. `order` are the topics that need no total order.
    """

    def __init__(
        self,
        node: ReplicaNode,
        machine: GroupMachine,
        settings: BrokerSettings,
        *,
        authenticate: Authenticate | None = None,
        hooks: Hooks | None = None,
        elsewhere: str = "",
        patience_s: float = 3.0,
        order: Sequence[tuple[str, bool]] = (),
    ):
        super().__init__(authenticate, hooks)
        self.node = node
        self.machine = machine
        self.settings = settings
        self.store = node.store
        self.authenticates = authenticate is not None
        self.is_started = False
        self._elsewhere = elsewhere
        self._patience_s = patience_s
        self._order = tuple(order)
        self._commands: list[Request] = []
        self._missing_since: dict[int, float] = {}
        self._ticked_s = 0.0
        self._paused: dict[Channel, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.front_end: FrontEnd
        self._adviser = TargetAdviser(self)
        self._piece_s = _PIECE_S

    @property
    def broker(self) -> BrokerCore:  # type: ignore[override]
        """The core of this replica, to look at."""
        return self.machine.broker

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """Returns whether the replicas agree, as far as this one knows."""
        status = self.node.status()
        return (
            ("replicas_differ", "1 while replicas are known to differ in what they made of the log.",
             float(bool(status.alarm))),
            ("replica_compared_instance", "Instance at which a majority was last equal.", status.compared),
            ("replica_states_discarded", "Times this replica differed and took the majority's state.",
             status.counts.get("states discarded", 0)),
            ("group_moves_waiting", "Clients that wait until their old replica has let them go.",
             len(self.machine.moves)),
            ("group_moves_overdue", "Clients let in though their old replica said nothing in time.",
             self.machine.moves.overdue),
        )  # fmt: skip

    def time_s(self) -> float:
        """The group's time; the own clock while that is not known."""
        time_s = self.node.time_s()
        return super().time_s() if time_s is None else time_s

    def start(self) -> None:
        """Begins to take clients; the node must be running."""
        self._loop = asyncio.get_running_loop()
        self.front_end = TimedFrontEnd(
            self.machine,
            self.node.incarnation << _INCARNATION_BITS,
            self.settings,
            authenticates=self.authenticates,
            patience_s=self._patience_s,
            order=self._order,
            elsewhere=self._elsewhere,
            window=max(1, min(self.node.settings.alpha, self.node.settings.reply_window // 2)),
            bytes_max=self.node.settings.value_bytes_max,
            unfinished=self.unfinished,
            reaches=self.node.reaches,
        )
        self.node.serve(self)
        self.is_started = True
        self._ticked_s = time.monotonic()
        self._tick()
        self.turn()
        if self.node.failure is not None:
            self.give_up(self.node.failure)  # while nobody listened yet

    def stop(self) -> None:
        """Sends all clients to another replica."""
        self._stopped = True
        self._adviser.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.front_end.send_away(time.monotonic(), ReasonCode.USE_ANOTHER_SERVER)
        self.end_turn()
        self.turn()

    def turn(self) -> None:
        """Makes sure that this turn of the loop ends with a turn of the replica."""
        self.node.plan_turn()

    # What channels call.

    def connected(self, channel: Channel, origin: Origin) -> None:
        """A transport is up."""
        channel.connection = self.front_end.open(origin, time.monotonic())
        self._channels[channel.connection] = channel
        self.node.hurry(True)

    def _receive(self, connection: Connection, data: bytes) -> None:
        """Handles bytes in this turn."""
        front_end, now = self.front_end, time.monotonic()
        front_end.receive(connection, data, now)
        if front_end.is_flooded():
            self._pause(connection)
        elif connection.pace is not None and (wait_s := self._wait_s(connection, connection.pace.hold_until, now)) > 0:
            self._hold(connection, wait_s)
        self.node.plan_turn()

    def _wait_s(self, connection: Connection, hold_until: float, now: float) -> float:
        """Returns how long to pause a client that is too fast: the gate goes by a timer, the group by its own time."""
        is_in_group = isinstance(connection, Member) and bool(connection.local)
        return hold_until - (self.time_s() if is_in_group else now)

    def lost(self, connection: Connection, reason: str = "connection lost") -> None:
        """A transport is gone."""
        if self._is_leaving(connection, reason):
            return
        if self._stalled and connection in self._channels:
            self._stalled.discard(self._channels[connection])
        self._decoder_of(connection).release()
        if self._channels.pop(connection, None) is not None:
            self.front_end.lost(connection, time.monotonic(), reason)
            self.turn()

    def set_congested(self, connection: Connection, congested: bool) -> None:
        """A transport has too much unsent, or no longer."""
        self.front_end.set_congested(connection, congested)
        self.turn()

    def _published(self) -> int:
        return self.front_end.count_messages()

    def _excuse(self, connection: Connection) -> None:
        if isinstance(connection, Member):
            connection.listened_at = time.monotonic()

    # What the service calls.

    def kick(self, key: str, end_session: bool) -> None:
        """Ends the connection of a session at any replica, or the session too."""
        self.front_end.control(Item.KICK, int(end_session), key.encode())
        self.turn()

    def disconnect(self, connection: Connection, reason: ReasonCode) -> None:
        """Ends a connection of this replica."""
        self.front_end.end(connection, reason)
        self.turn()

    def publish_system_topics(self, version: str) -> None:
        """Publishes what the broker says of itself; one replica does it for all."""
        if self.node.leads:
            self.front_end.control(Item.SYSTEM)
            self.turn()

    def set_rules(self, rules: bytes) -> None:
        """Gives the group access rules; they hold for all replicas."""
        self.front_end.control(Item.RULES, 0, rules)
        self.turn()

    def set_limits(self, limits: bytes) -> None:
        """Gives the group limits; they hold for all replicas."""
        self.front_end.control(Item.LIMITS, 0, limits)
        self.turn()

    def take_decision(self, key: str, revision: int, decision: Decision) -> None:
        """The policy for a response target has been found: it holds for all replicas from its place in the log on."""
        self.front_end.control(Item.DECISION, 0, DECIDED.encode(Decided(key, revision, decision)))
        self.turn()

    # The turn.

    def submit_waiting(self) -> None:
        """Makes commands of what has arrived, unless the leader had better collect more first."""
        commands, front_end = self._commands, self.front_end
        if front_end.outbox:
            self.node.peers.post_unordered(front_end.outbox)
            front_end.outbox.clear()
        if front_end.is_ready and (self._stopped or not self.node.delays_batch(front_end.bytes_ready)):
            client = self.node.id << 48 | front_end.incarnation
            commands += [(client, sequence, command) for sequence, command in front_end.take(time.monotonic())]
        if commands:
            try:
                self.node.submit(commands)
            except OverloadError:
                return  # they stay, and go with the next turn
            self._commands = []

    def receive_unordered(self, content: bytes) -> None:
        """Messages that need no total order have come from another replica."""
        self.front_end.unordered.receive(content, time.monotonic())

    def end_turn(self) -> None:
        """Sends what commands have to say to clients, and sees to what waits."""
        if self._failed:
            return
        front_end = self.front_end
        dirty = self.machine.broker.dirty
        if dirty:
            self._send(dirty)
        if front_end.gate.dirty:
            self._send(front_end.gate.dirty)
        if front_end.closing:
            self._close_all()
        if front_end.gate.checking:
            self._check_credentials(front_end.take_checking())
        if self._paused and not front_end.is_flooded(0.5):
            paused, self._paused = self._paused, {}
            for channel in paused:
                self._read_on(channel)
                if channel in self._rest:
                    self.loop.call_soon(self._next_piece, channel)
        if front_end.is_ready and not self.node.delays_batch(front_end.bytes_ready):
            self.turn()
        if self.broker.targets.undecided and self.node.leads and not self._stopped:
            self._adviser.ask(self.broker.targets.questions())
        self._hooks.turn()

    def _close_all(self) -> None:
        closing, self.front_end.closing = self.front_end.closing, []
        self._send(set(closing))
        for member in closing:
            channel = self._channels.pop(member, None)
            if channel is not None:
                channel.close()

    def _pause(self, connection: Connection) -> None:
        channel = self._channels.get(connection)
        if channel is not None:
            channel.pause_reading()
            self._paused[channel] = None

    def _forget_unread(self, connection: Connection) -> None:
        if isinstance(connection, Member):
            connection.tail.clear()

    def _decoder_of(self, connection: Connection) -> PacketDecoder:
        return connection.reader if isinstance(connection, Member) else connection.decoder

    def _waits(self, channel: Channel) -> bool:
        return channel in self._paused

    def _read_on(self, channel: Channel) -> None:
        if channel not in self._paused:
            super()._read_on(channel)

    def _checked(self, connection: Connection, verdict: Verdict) -> None:
        if isinstance(verdict, str):
            self.front_end.admit(connection, verdict, time.monotonic())
        else:
            self.front_end.refuse(connection, time.monotonic(), verdict)

    def _tick(self) -> None:
        """Sees to silent clients, timers of the state that are due, and replicas that are gone."""
        self._timer = self.loop.call_later(_TICK_S, self._tick)
        now = time.monotonic()
        if (late_s := now - self._ticked_s - _TICK_S) > _TICK_S:
            self.front_end.excuse(late_s)
            self._missing_since = {replica: since + late_s for replica, since in self._missing_since.items()}
        self._ticked_s = now
        self.front_end.tick(now)
        self.node.hurry(bool(self._channels))
        if self.node.leads:
            if (time_s := self.node.time_s()) is not None and self._is_due(time_s):
                self.front_end.control(Item.TICK)
            self._watch_replicas(now)
        if self.front_end.is_ready or self.front_end.gate.dirty or self.front_end.closing or self._commands:
            self.turn()

    def _is_due(self, time_s: float) -> bool:
        """Returns whether something waits in the state for the time that it is now."""
        is_silent = time_s - self.machine.time_us / 1e6 > _APPLICATION_S
        return self.machine.next_timer() <= time_s or (bool(self.machine.applications) and is_silent)

    def _watch_replicas(self, now: float) -> None:
        """The leader declares a replica down after a while, so that its clients' wills are sent."""
        alive = self.node.replica.alive(self.machine.sources)
        for replica, source in self.machine.sources.items():
            if replica == self.node.id or replica in alive or not source.connections:
                self._missing_since.pop(replica, None)
            elif now - self._missing_since.setdefault(replica, now) > _DOWN_S:
                self.front_end.control(Item.DOWN, replica, source.incarnation.to_bytes(8, "big"))
                self._missing_since[replica] = now
