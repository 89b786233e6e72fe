"""One replica of a group on real sockets, disks and clocks.

A turn: whatever arrived in one turn of the event loop goes to the replica; then, until it has nothing more to say, what
it says goes out, what it must remember is committed, and what rests on that goes out.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Final

from surecast.broker.replica.addresses import Address, Book, Place
from surecast.broker.replica.clock_watch import ClockWatch
from surecast.broker.replica.founding import FOUNDING_KEY
from surecast.broker.replica.node_user import NodeUser
from surecast.broker.replica.peers import Peers
from surecast.broker.replica.snapshot_files import SnapshotFile, SnapshotFiles
from surecast.broker.replica.status import NodeStatus
from surecast.broker.segment_file import BarrierThread
from surecast.broker.service_log import BrokerLog
from surecast.broker.store_base import MemoryStore, Store
from surecast.errors import ConfigurationError, OverloadError, PeerError, SurecastError
from surecast.protocol.paxos import Answer, Handler, PaxosSettings, Replica, Request, Turn, decode
from surecast.protocol.paxos.incarnations import HistoryError
from surecast.protocol.paxos.journal import refusal
from surecast.protocol.paxos.machine import Observer

__all__ = ["REPLACE_S", "ReplicaNode"]

_TICKS: Final = 3  # in each heartbeat
_CLOCK_S: Final = 1.0
_TIMER_S: Final = 0.0006
VERIFY_S: Final = 10.0
REPLACE_S: Final = 30.0
"""The time after which a replacement is given up, unless another one is asked for."""


def _nothing(*_: object) -> None:
    """For callbacks that nobody wants."""


class ReplicaNode:
    """Drives a replica of a group.

    `replica` is its number, `handler` the state machine. `places` says where the founders are; of a replica that joins
    later (`join`), whom to ask, and itself. Only somebody with the `secret` of the `group` is let in, and with the same
    `founding`. `store` keeps what must survive; a node owns it and closes it. That of a founder was made by
    `found_store`, unless it is in memory only. `link_delay_s` delays whatever is sent, by replica or to all, for
    experiments. `queue_bytes_max` is what waits for one peer; what is more is dropped, and said again by the protocol.
    `wall` is the clock of this replica, one of those by which the group tells the time; `clock_alarm_s` is by how much
    two of them may differ before there is a warning.

    Whoever `serve` was called with is called in its turns, and told when the node cannot go on.

    >>> async def example() -> bytes:
    ...     from surecast.broker.replica.addresses import parse_address
    ...     from surecast.protocol.paxos import ExampleStore
    ...     from surecast.protocol.paxos.example_store import incr
    ...     places = {1: Place(parse_address("127.0.0.1:0"))}
    ...     node = ReplicaNode(1, ExampleStore(), places, group="example", secret=b"no one knows it")
    ...     await node.start()
    ...     answered = asyncio.get_running_loop().create_future()
    ...     node.submit([(7, 1, incr(b"visits"))], answered.set_result)
    ...     [(client, sequence, reply)] = await answered
    ...     await node.stop()
    ...     return reply
    >>> asyncio.run(example())
    b'+1'
    """

    def __init__(
        self,
        replica: int,
        handler: Handler,
        places: Mapping[int, Place],
        *,
        group: str,
        secret: bytes,
        founding: str = "",
        plan: str = "",
        store: Store | None = None,
        settings: PaxosSettings | None = None,
        join: bool = False,
        link_delay_s: float | Mapping[int, float] = 0.0,
        queue_bytes_max: int = 8 << 20,
        wall: Callable[[], float] = time.time,
        clock_alarm_s: float = 1.0,
        observer: Observer | None = None,
        remedy: str = "put a new replica in its place",
        log: BrokerLog | None = None,
    ):
        if replica not in places:
            raise ConfigurationError(f"replica {replica}: its own address is not among those of {sorted(places)}")
        self.id = replica
        self.handler = handler
        self.group = group
        self.founding = founding
        self._remedy = remedy
        self.store: Store = store or MemoryStore()
        self.settings = settings or PaxosSettings()
        self._users: tuple[NodeUser, ...] = ()
        self.log = log or BrokerLog("error")
        self.book = Book(places)
        self.peers = Peers(
            replica, group, secret, self.book, self, self.log, link_delay_s, queue_bytes_max, founding, plan
        )
        self.replica: Replica
        self._wall = wall
        self._clock_watch = ClockWatch(replica, clock_alarm_s, self.log)
        self._join = join
        self._founders = tuple(sorted(places))
        self._own = places[replica]
        self._observer = observer
        self._done: dict[int, Callable[[list[Answer]], None]] = {}
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._waker: asyncio.TimerHandle | None = None
        self._waker_s = 0.0
        self._wake_s = inf  # when a turn is wanted, as far as is known since the last one
        self._clock_s = 0.0
        self._planned = False
        self._stopped = True
        self._collects = False  # something waits for a later turn
        self._turns = 0
        self._looks_idle = -1
        self._has_answered = False
        self._failure: Exception | None = None
        self._barriers: BarrierThread | None = None
        self._unstored: list[Turn] = []  # what rests on their records waits for the disk
        self._storing = 0  # so many of them, the first ones, are being synced
        # Where a commit waits for the disk, what may go before it goes before it; otherwise a turn is one write.
        self._flush_first = self.store.durability == "full"
        self._snapshot_files = SnapshotFiles(self.store.folder, self._flush_first)

    # From start to stop

    async def start(self) -> None:
        """Reads the store, listens and begins to take part. ConfigurationError says why it cannot."""
        self._loop = asyncio.get_running_loop()
        records = list(self.store.items())
        self._check_founding(dict(records).get(FOUNDING_KEY))
        now, own, start = time.monotonic(), self._own, secrets.randbits(64) | 1
        members = [one for one in self._founders if not self._join or one != self.id]
        self.replica = Replica(
            self.id,
            self.handler,
            members,
            self.settings,
            records=records,
            token=secrets.randbits(64) | 1 if self._join else 0,
            start=start,
            seed=secrets.randbits(64),
            now=now,
            epoch_s=self._wall() - now,
            observer=self._observer,
            shelf=self._snapshot_files,
        )
        self._snapshot_files.tidy()
        if self._flush_first:
            self._barriers = BarrierThread(self._loop, self._synced)
        for key, value in records:
            self.book.restore(key, value)
        del records
        address = await self.peers.open(own.peer, self.replica.token, start, self.replica.membership)
        self._stopped = False
        self.announce(address, own.client)
        self.plan_turn()
        self._tick()

    def _check_founding(self, stored: bytes | None) -> None:
        """A replica that joins, and one in memory, begin with an empty store; a founder's says when it was founded."""
        if stored is None and (self._join or self.store.durability == "memory"):
            self.store.commit([(FOUNDING_KEY, self.founding.encode())])
        elif stored is None:
            raise ConfigurationError(
                f"replica {self.id}: its store was never founded, or is of an earlier version of surecast: then back "
                f"the group up with that one, and restore the backup here. If its data are lost: {self._remedy}"
            )
        elif stored.decode() != self.founding:
            raise ConfigurationError(
                f"replica {self.id}: its store belongs to another founding of the group, {stored.decode()}, not "
                f"{self.founding or 'to one without'}; give it its own store, or the group's own file"
            )

    async def stop(self) -> None:
        """Leaves the group, until it is started again, and closes the store."""
        if not self._stopped:
            self.replica.pacing.flush(time.monotonic())  # what waits goes now or never
            self._run_turn()
        with suppress(SurecastError):
            self._store_all()
        if not self._stopped:
            self.peers.flush()
        self._silence()
        await self.peers.close()
        self.store.close()

    def _silence(self) -> None:
        self._stopped = True
        for timer in (self._timer, self._waker):
            if timer is not None:
                timer.cancel()
        self._timer = self._waker = None
        self._snapshot_files.stop()
        self.peers.hang_up()

    # What an application uses

    def serve(self, user: NodeUser) -> None:
        """From now on calls somebody in its turns."""
        self._users = (*self._users, user)

    def leave(self, user: NodeUser) -> None:
        """Calls somebody no more."""
        self._users = tuple(other for other in self._users if other is not user)

    @property
    def leads(self) -> bool:
        """Returns whether this replica leads, as far as it knows."""
        return self.replica.leads

    @property
    def leader(self) -> int:
        """The replica that leads, as far as this one knows; 0 where it has not heard of one lately."""
        return self.replica.known_leader

    @property
    def incarnation(self) -> int:
        """The number of this start of the replica."""
        return self.replica.incarnation

    @property
    def is_blank(self) -> bool:
        """Returns whether nothing is known of the group's state yet."""
        return self.replica.blank

    def reaches(self, replica: int) -> bool:
        """Returns whether another replica is there, as far as this one knows."""
        return self.peers.is_up(replica) and bool(self.replica.alive([replica]))

    def hurry(self, is_awaited: bool) -> None:
        """Says whether a client waits here for what is chosen: then the leader lets this replica know at once."""
        self.replica.urgent = is_awaited

    @property
    def failure(self) -> Exception | None:
        """Why the node cannot go on."""
        return self._failure

    @property
    def address(self) -> Address:
        """Where other replicas reach this one."""
        return self.book[self.id].peer

    @property
    def members(self) -> tuple[int, ...]:
        """The replicas that vote now or soon."""
        return self.replica.membership.ids()

    def places(self) -> dict[int, Place]:
        """Where the members are, as far as known."""
        return {one: place for one in self.members if (place := self.book.get(one)) is not None}

    def submit(self, requests: Sequence[Request] | bytes, done: Callable[[list[Answer]], None] | None = None) -> int:
        """Takes requests, one by one or packed by `pack_requests`; their number.

        `done` gets the answers in the order of the requests once they are applied, in the turn of the event loop
        in which that is known, before the turn ends. It is never called where the node stops first. Any replica may be
        asked, whether it leads or not. OverloadError where too many requests wait, or the node has stopped.
        """
        if self._stopped:
            raise OverloadError(f"replica {self.id}: it has stopped; ask another one")
        number = self.replica.submit(requests, time.monotonic())
        if done is not None:
            self._done[number] = done
        self.plan_turn()
        return number

    def delays_batch(self, size: int) -> bool:
        """Returns whether requests of so many bytes, all that wait here, may as well be submitted later; a turn
        comes in time.

        A replica that leads would not propose them yet. Handed in together they cost less, here and at the others. It
        proposes them all the same when it has nothing else to do. One that syncs has waited long enough by then, and is
        never idle: it waits only while an instance is in flight.
        """
        self._collects = True
        if self._storing:  # what comes while a disk is synced goes together, in the turn that follows
            return True
        pacing, now = self.replica.pacing, time.monotonic()
        until_s = pacing.batching_delay_until(size, now)
        if until_s is None or (self._flush_first and not pacing.instances):
            self._collects = False
            return False
        if self._looks_idle != self._turns and not self._flush_first and pacing.may_flush(size):
            self._looks_idle = self._turns
            self._loop.call_soon(self._if_idle, self._turns, size)
        self._plan_wake(until_s, now)
        return True

    def _if_idle(self, turns: int, size: int) -> None:
        """Proposes what is collected where nothing has happened since the event loop looked for more."""
        if turns == self._turns and not self._planned and not self._stopped and self.replica.pacing.may_flush(size):
            self.replica.pacing.flush(time.monotonic())
            self._run_turn()

    async def replace(
        self,
        old: int,
        new: int,
        address: Address | None = None,
        timeout_s: float = REPLACE_S,
        tell: Callable[[str], None] = _nothing,
    ) -> int:
        """Puts a new replica in the place of an old one; the instance from which on it votes.

        The new one must be running, started to join. It is reached at `address`, or where it said that it is when it
        dialled this one; its token is learned from it. ConfigurationError says why the group does not want the change,
        OverloadError that the new one or a majority did not answer in time: then it may still happen. `tell` gets a
        line whenever it waits for something else.
        """
        if address is not None and (known := self.book.get(new)) is None:
            self.peers.enter(new, Place(address))
        elif address is not None and known is not None and known.peer != address:
            raise ConfigurationError(f"replica {new}: it is known to be at {known.peer}, not at {address}")
        answered: asyncio.Future[list[Answer]] = self._loop.create_future()

        def done(answers: list[Answer]) -> None:
            if not answered.done():
                answered.set_result(answers)

        place = f"replica {new} to be reached at {address or 'an address it has not told yet'}"
        waits_for, why = place, ""
        try:
            async with asyncio.timeout(timeout_s):
                while new not in self.peers.tokens:
                    self.peers.link(new)
                    if why != self.peers.why_not(new) or waits_for == place:
                        why = self.peers.why_not(new)
                        waits_for = f"{place}: {why or 'no answer yet'}"
                        tell(f"waits for {waits_for}")
                    await asyncio.sleep(self.settings.heartbeat_s)
                waits_for = "a majority to agree"
                tell(f"replica {new} is reached; waits for {waits_for}")
                number = self.replica.replace(old, new, self.peers.tokens[new], time.monotonic())
                self._done[number] = done
                self.plan_turn()
                reply = (await answered)[0][2] or b"!it was asked for too long ago"
        except TimeoutError:
            raise OverloadError(
                f"replacing replica {old} by {new}: after {timeout_s:g} s it still waited for {waits_for}; try again"
            ) from None
        if reply[:1] != b"+":
            raise ConfigurationError(f"replacing replica {old} by {new}: {reply[1:].decode()}")
        return int(reply[1:])

    async def verify(self, timeout_s: float = VERIFY_S) -> int:
        """Has all replicas hash their whole state; the instance at which they do. OverloadError without a majority."""
        answered: asyncio.Future[list[Answer]] = self._loop.create_future()
        number = self.replica.verify(time.monotonic())
        self._done[number] = lambda answers: None if answered.done() else answered.set_result(answers)
        self.plan_turn()
        try:
            async with asyncio.timeout(timeout_s):
                [(_, _, reply)] = await answered
        except TimeoutError:
            raise OverloadError(f"replica {self.id}: no majority answered within {timeout_s:g} s; try again") from None
        return int((reply or b"+0")[1:])

    def time_s(self) -> float | None:
        """The time by the clocks of a majority, seconds since 1970, and not before the log's; None while unknown."""
        time_us = self.replica.time_us(time.monotonic())
        return None if time_us is None else time_us / 1e6

    def status(self) -> NodeStatus:
        """A look at the replica."""
        status = self.replica.status(time.monotonic())
        return NodeStatus(
            group=self.group,
            replica=self.id,
            leader=self.leader,
            leads=self.leads,
            members=self.members,
            peers=self.peers.status(self.members, status.silent_s, self.replica.clocks),
            **{name: value for name, value in status._asdict().items() if name != "silent_s"},
        )

    def announce(self, peer: Address, client: Address | None) -> None:
        """Tells the group where this replica is, and where it takes requests."""
        self.peers.enter(self.id, Place(peer, client, self.incarnation))

    # The turn

    def plan_turn(self) -> None:
        """Makes sure that this turn of the event loop ends with what the replica has to say."""
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._run_planned)

    def _run_planned(self) -> None:
        if self._planned:  # and no other turn came first
            self._run_turn()

    def _run_turn(self) -> None:
        self._turns += 1
        self._wake_s = inf
        self._planned = not self._stopped  # what is submitted before this turn needs no other one
        if self._stopped:
            return
        try:
            for user in self._users:
                user.submit_waiting()
            self._planned = False
            self._until_quiet()
            for user in self._users:
                user.end_turn()
            if self.replica.snapshots.is_wanted and not self._unstored:
                self._begin_snapshot()
            if (wake_s := self.replica.wake_s) is not None:
                self._plan_wake(wake_s, time.monotonic())
        except SurecastError as error:
            self.give_up(error)
        except Exception as error:  # the state may be half changed: silence is all that is safe
            self.log.error("exception", replica=self.id, reason=repr(error))
            self.give_up(error)

    def _until_quiet(self) -> None:
        replica, store, peers = self.replica, self.store, self.peers
        shown = replica.applied
        while replica.has_more:
            before = replica.applied
            turn = replica.take()
            peers.post(turn.messages)
            if turn.replies:
                self._answer(turn.replies)
            if turn.records:
                is_awaited = bool(turn.after)
                if not is_awaited:  # proposals: what is chosen is applied, and shown, while others vote on them
                    peers.flush()
                    if replies := replica.apply_chosen():
                        self._answer(replies)
                if replica.applied != shown and (self._flush_first or not is_awaited):
                    shown = replica.applied
                    for user in self._users:
                        user.end_turn()
                if self._barriers is None:
                    store.commit(turn.records)
            if self._barriers is not None and (turn.records or self._unstored):
                self._unstored.append(turn)
                self._store()
            else:
                self._stored(turn)
            if replica.applied == before and turn.is_empty:
                break
        if self._has_answered:  # clients hear first: what is left to say decides nothing for them
            self._has_answered = False
            self._loop.call_soon(peers.flush)
        else:
            peers.flush()

    def _store(self) -> None:
        """Makes the turns that wait durable with one commit: a thread syncs the disk, and the event loop goes on."""
        assert self._barriers is not None
        if self._storing:
            return
        self.store.write([record for turn in self._unstored for record in turn.records])
        if (barrier := self.store.barrier()) is None:
            self._release(len(self._unstored))
        else:
            self._storing = len(self._unstored)
            self._barriers.call(barrier)

    def _release(self, count: int) -> None:
        """So many turns are durable, and all before them."""
        stored, self._unstored = self._unstored[:count], self._unstored[count:]
        for turn in stored:
            self._stored(turn)

    def _synced(self, error: BaseException | None) -> None:
        """The disk has taken the turns that waited for it, or not; those that came meanwhile are next."""
        if self._stopped:
            return
        count, self._storing = self._storing, 0
        try:
            if error is not None:
                raise error
            self._release(count)
            if self._unstored:
                self._store()
        except Exception as failure:
            self.give_up(failure)
        else:
            self._run_turn()

    def _store_all(self) -> None:
        """Waits until the last turns are durable."""
        if self._barriers is None:
            return
        failure = self._barriers.stop()
        self._barriers = None
        if failure is None and not self._stopped:
            self.store.commit([record for turn in self._unstored[self._storing :] for record in turn.records])
            self._release(len(self._unstored))

    def _stored(self, turn: Turn) -> None:
        """The records of a turn are durable: what rests on them is sent, and what is chosen is applied."""
        if turn.after:  # a vote leaves before `synced` applies what is chosen: the leader waits for it
            self.peers.post(turn.after)
            self.peers.flush()
        self.replica.synced(turn.number, time.monotonic())

    def _begin_snapshot(self) -> None:
        """Has a child write the state, large as it is."""
        snapshots = self.replica.snapshots
        try:
            self._snapshot_files.begin(self._loop, *snapshots.begin(), self._snapshot_ended)
        except OSError as error:
            snapshots.fail()
            if error.errno not in (errno.ENOMEM, errno.EAGAIN):
                self._snapshot_failed(str(error))
                return
            self._snapshot_failed(f"no other process can be started ({error.strerror}); taken here, which takes long")
            snapshots.take_at_once()
            self.plan_turn()

    def _snapshot_ended(self, kept: SnapshotFile | str) -> None:
        if isinstance(kept, str):
            self.replica.snapshots.fail()
            self._snapshot_failed(f"{kept}; the next one is taken a few seconds later")
        else:
            self.replica.snapshots.finish(kept)
            self.plan_turn()

    def _snapshot_failed(self, reason: str) -> None:
        self.log.error("snapshot failed", replica=self.id, reason=reason)

    def _plan_wake(self, wake_s: float, now: float) -> None:
        """Makes sure that a turn comes at a time, or sooner."""
        self._wake_s = min(wake_s, self._wake_s)
        if self._waker is not None:
            if self._waker_s <= wake_s:
                return
            self._waker.cancel()
        # Timers are as coarse as a millisecond: one that is rounded down would spin until it is time.
        self._waker, self._waker_s = self._loop.call_later(max(0.0, wake_s - now) + _TIMER_S, self._wake), wake_s

    def _answer(self, replies: list[tuple[int, list[Answer]]]) -> None:
        self._has_answered = True
        for number, answers in replies:
            done = self._done.pop(number, None)
            if done is not None:
                done(answers)

    def _wake(self) -> None:
        self._waker = None
        if self._stopped:
            return
        now = time.monotonic()
        if self._wake_s <= now:
            self.replica.wake_at(now)
            self._run_turn()
        elif self._wake_s < inf:  # the turns since then have done what this one was for
            self._plan_wake(self._wake_s, now)

    def _tick(self) -> None:
        if self._stopped:
            return
        now = time.monotonic()
        self._timer = self._loop.call_later(self.settings.heartbeat_s / _TICKS, self._tick)
        if now - self._clock_s > _CLOCK_S:
            self._clock_s = now
            self._check_clock(now)
            self.peers.check()
        self.peers.choose(self.members, self.replica.is_joining, self.replica.membership.highest)
        try:
            self.replica.tick(now)
        except Exception as error:
            self.give_up(error)
            return
        for event, line in self.replica.take_notices():
            self.log.error(event, replica=self.id, reason=line)
        if self.replica.has_more:
            self._run_turn()

    def _check_clock(self, now: float) -> None:
        """Reads the clock of the machine anew, which may have been set, and compares it with the others."""
        replica = self.replica
        replica.clocks.epoch_s = self._wall() - now
        others = [other for other in self.members if other != self.id]
        self._clock_watch.check(replica.clocks, others, replica.log_time_us, now)

    # What the peers tell

    def received(self, sender: int, contents: list[bytes], start: int) -> None:
        """Messages of another replica, which drew this number at its start; PeerError where they are none."""
        if self._stopped:
            return
        now, receive = time.monotonic(), self.replica.receive
        for content in contents:
            message = decode(content)
            try:
                receive(sender, message, now, start)
            except PeerError:
                raise
            except Exception as error:  # of the handler: the state may be half changed
                self.give_up(error)
                return
        if not self._planned and self.replica.has_more:
            if self._collects:
                self.plan_turn()  # after what clients have sent meanwhile: it goes into the next proposal too
            else:
                self._run_turn()  # somebody waits for the vote, or for the acknowledgement

    def met(self, sender: int) -> None:
        """Another replica has connected anew: it may have been down, which says nothing about how slow it is."""
        if not self._stopped:
            self.replica.meet(sender, time.monotonic())

    def received_unordered(self, content: bytes) -> None:
        """Takes what another replica sent beside the protocol."""
        if not self._stopped:
            for user in self._users:
                user.receive_unordered(content)
            self.plan_turn()

    def keep(self, records: list[tuple[bytes, bytes]]) -> None:
        """Addresses that are new."""
        try:
            self.store.commit(records)
        except SurecastError as error:
            self.give_up(error)
            return
        self.plan_turn()

    def give_up(self, error: Exception) -> None:
        """The node cannot go on: it is silent from now on, and says so once."""
        if self._failure is None:
            if isinstance(error, HistoryError):
                error = HistoryError(f"{error}. What to do: {self._remedy}")
                with suppress(SurecastError):  # started again and again, it would count up to a start nobody knows
                    self.store.commit([refusal(error)])
            self._failure = error
            self._silence()
            self.log.error("replica failed", replica=self.id, reason=str(error) or repr(error))
            for user in self._users:
                user.give_up(error)
