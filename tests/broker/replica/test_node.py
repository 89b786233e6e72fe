"""Replicas in one process, on real sockets."""

from __future__ import annotations

import asyncio
import io
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.replica import Address, NodeUser, Place, ReplicaNode
from surecast.broker.replica.frames import HEAD_BYTES, frame
from surecast.broker.replica.handshake import Hello, RefusalError, Welcome, shake_hands
from surecast.broker.segment_store import SegmentStore
from surecast.broker.service_log import BrokerLog
from surecast.broker.store import MemoryStore, Operation, StoreError
from surecast.errors import ConfigurationError, OverloadError, PeerError
from surecast.protocol.paxos import Context, ExampleStore, PaxosSettings
from surecast.protocol.paxos.example_store import get, incr, put
from surecast.protocol.paxos.paxos_messages import Accepted, Chosen, Heartbeat, Message

Local = Callable[..., Any]
Run = Callable[..., Any]


def test_any_replica_may_be_asked_and_all_become_equal(local: Local, run: Run) -> None:
    async def main() -> None:
        turns: list[int] = []
        group = local(3, on_turn=lambda: turns.append(1))
        for number in (1, 2, 3):
            await group.start(number)
        leader = await group.leader()
        for client, node in enumerate(group.nodes.values(), 1):
            for sequence in range(1, 11):
                reply = await group.ask(node, client, sequence, incr(b"k"))
                assert reply == b"+%d" % (10 * (client - 1) + sequence)
        await group.equal()
        assert [node.handler.pairs for node in group.nodes.values()] == [{b"k": b"30"}] * 3
        status = leader.status()
        assert (status.leads, status.leader, status.members) == (True, leader.id, (1, 2, 3))
        assert status.applied == status.chosen == leader.replica.applied
        assert all(peer.up and peer.heard and peer.is_member for peer in status.peers)
        assert len(status.peers) == 2
        assert turns
        await group.stop()
        with pytest.raises(OverloadError, match="stopped"):
            leader.submit([(9, 1, b"")])

    run(main)


def test_the_group_goes_on_without_its_leader_and_takes_it_back(local: Local, run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        group = local(3)
        for number in (1, 2, 3):
            await group.start(number, store=SegmentStore(tmp_path / str(number), "os"))
        old = await group.leader()
        assert await group.ask(old, 1, 1, incr(b"k")) == b"+1"
        del group.nodes[old.id]
        await old.stop()
        new = await group.leader()
        assert await group.ask(new, 1, 1, incr(b"k")) == b"+1"  # asked again: answered, not applied
        assert await group.ask(new, 1, 2, incr(b"k")) == b"+2"
        await group.start(old.id, store=SegmentStore(tmp_path / str(old.id), "os"))
        await group.equal()
        assert group.nodes[old.id].handler.pairs == {b"k": b"2"}
        await group.stop()

    run(main)


class Noting(ExampleStore):
    """An example store that notes when it carries something out."""

    def __init__(self, notes: list[str]):
        super().__init__()
        self.notes = notes

    def execute(self, command: bytes, context: Context) -> bytes:
        self.notes.append("applied")
        return super().execute(command, context)


def test_a_vote_is_on_its_way_before_what_is_chosen_is_applied(
    local: Local, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proposal tells of the instance before it: a turn of a follower has a vote and something to apply."""
    turns: list[list[str]] = []

    async def main() -> None:
        group = local(3, settings=PaxosSettings(commit_notification_s=1.0))
        notes: dict[int, list[str]] = {number: [] for number in (1, 2, 3)}
        for number in (1, 2, 3):
            await group.start(number, handler=Noting(notes[number]))
        leader = await group.leader()
        follower = next(node for node in group.nodes.values() if node is not leader)
        mine, peers = notes[follower.id], follower.peers
        post, flush, until_quiet = peers.post, peers.flush, follower._until_quiet

        def noted_post(messages: list[tuple[int, Message]]) -> None:
            mine.extend("vote" for _, message in messages if isinstance(message, Accepted))
            post(messages)

        def noted_flush() -> None:
            mine.append("sent")
            flush()

        def noted_turn() -> None:
            mine.clear()
            until_quiet()
            if {"vote", "applied"} <= {*mine}:
                turns.append([*mine])

        monkeypatch.setattr(peers, "post", noted_post)
        monkeypatch.setattr(peers, "flush", noted_flush)
        monkeypatch.setattr(follower, "_until_quiet", noted_turn)
        for sequence in range(1, 31):
            await group.ask(leader, 7, sequence, incr(b"k"))
        await group.stop()

    run(main)
    assert turns
    for turn in turns:
        assert "sent" in turn[turn.index("vote") : turn.index("applied")]


def test_clients_hear_before_a_commit_notification_leaves(
    local: Local, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notification decides nothing for them, so it follows the acknowledgements of the turn."""
    events: list[str] = []

    class Clients(NodeUser):
        def end_turn(self) -> None:
            events.append("clients")

    async def main() -> None:
        group = local(3)
        for number in (1, 2, 3):
            await group.start(number)
        leader = await group.leader()
        post, flush = leader.peers.post, leader.peers.flush

        def noted_post(messages: list[tuple[int, Message]]) -> None:
            if any(isinstance(message, Chosen) for _, message in messages):
                events.append("notification")
            post(messages)

        def noted_flush() -> None:
            events.append("flush")
            flush()

        leader.serve(Clients())
        monkeypatch.setattr(leader.peers, "post", noted_post)
        monkeypatch.setattr(leader.peers, "flush", noted_flush)
        for sequence in range(1, 21):
            await group.ask(leader, 7, sequence, incr(b"k"))
            await asyncio.sleep(0.002)
        await group.equal()
        await group.stop()

    run(main)
    notifications = [at for at, event in enumerate(events) if event == "notification"]
    assert len(notifications) >= 20
    answered = [at for at in notifications if events[at + 1] == "clients"]  # others are of a turn without an answer
    assert len(answered) >= 15


class Collector(NodeUser):
    """An application that hands in what waits with it when the node wants it."""

    def __init__(self, node: ReplicaNode):
        self.node = node
        self.waiting: list[bytes] = []
        self.sequence = 0
        node.serve(self)

    def submit_waiting(self) -> None:
        if self.waiting and not self.node.delays_batch(sum(map(len, self.waiting))):
            commands, self.waiting = self.waiting, []
            first, self.sequence = self.sequence, self.sequence + len(commands)
            self.node.submit([(7, first + at, command) for at, command in enumerate(commands, 1)])

    def add(self, command: bytes) -> None:
        self.waiting.append(command)
        self.node.plan_turn()

    async def is_rid_of_it(self, time_s: float) -> bool:
        ends = asyncio.get_running_loop().time() + time_s
        while self.waiting and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(0.005)
        return not self.waiting


async def unanswered(group: Any) -> Collector:
    """A leader whom nobody hears any more, and that hears no clock, with an instance in flight."""
    for number in (1, 2, 3):
        await group.start(number)
    leader = await group.leader()
    collector = Collector(leader)
    setattr(leader.peers, "post", lambda messages: None)  # noqa: B010 - a method that mypy guards
    leader._timer.cancel()
    collector.add(incr(b"k"))
    assert await collector.is_rid_of_it(5.0)
    assert len(leader.replica.leader.instances) == 1
    return collector


def test_what_an_application_collects_goes_on_when_it_is_time(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(3, settings=PaxosSettings(proposal_interval_s=0.1, suspect_s=2.0))
        collector = await unanswered(group)
        collector.add(incr(b"k"))
        await asyncio.sleep(0.01)
        assert collector.waiting  # a little waits
        assert await collector.is_rid_of_it(1.5)
        turns = collector.node._turns
        await asyncio.sleep(0.2)
        assert collector.node._turns - turns < 50  # for heartbeats of others; and nothing goes on in circles
        await group.stop()

    run(main)


def test_a_leader_with_nothing_else_to_do_takes_much_at_once_and_little_later(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(3, settings=PaxosSettings(proposal_interval_s=50.0, suspect_s=2.0))
        collector = await unanswered(group)
        collector.add(put(b"k", b"little"))
        assert not await collector.is_rid_of_it(0.2)
        collector.add(put(b"k", bytes(20_000)))
        assert await collector.is_rid_of_it(1.5)
        assert len(collector.node.replica.leader.instances) == 2
        collector.add(put(b"k", bytes(20_000)))  # two are enough
        assert not await collector.is_rid_of_it(0.2)
        turns = collector.node._turns
        await asyncio.sleep(0.2)
        assert collector.node._turns - turns < 50
        await collector.node.stop()  # nothing stays behind
        assert not collector.waiting
        await group.stop()

    run(main)


def test_what_was_applied_is_shown_before_a_disk_is_synced(local: Local, run: Run) -> None:
    notes: list[str] = []

    class Disk(MemoryStore):
        durability = "full"

        def commit(self, operations: Iterable[Operation]) -> None:
            notes.append("synced")
            super().commit(operations)

    async def main() -> None:
        group = local(1, on_turn=lambda: notes.append("shown"))
        node = await group.start(1, handler=Noting(notes), store=Disk())
        await group.leader()
        notes.clear()
        answered = asyncio.get_running_loop().create_future()
        # The second is asked for as soon as the first is answered, in the same turn.
        node.submit([(7, 1, incr(b"k"))], lambda _: node.submit([(7, 2, incr(b"k"))], answered.set_result))
        await answered
        await group.stop()

    run(main)
    first = notes.index("applied")
    assert "shown" in notes[first : notes.index("synced", first)]


class HeldDisk(MemoryStore):
    """A store whose disk confirms nothing while it is held, or refuses."""

    durability = "full"

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.fails = False
        self.commits = 0

    def write(self, operations: Iterable[Operation]) -> None:
        self.commit(operations)

    def barrier(self) -> Callable[[], None]:
        return self._wait

    def _wait(self) -> None:
        self.goes_on.wait(PATIENCE_S)
        self.commits += 1
        if self.fails:
            raise StoreError("the disk did not confirm a commit")


def test_nothing_rests_on_a_commit_before_the_disk_has_it_and_heartbeats_go_on(
    local: Local, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three disks hang: nothing is answered, and their replicas say all the while that they are there."""

    async def main() -> None:
        group = local(3)
        disks = {number: HeldDisk() for number in (1, 2, 3)}
        for number in (1, 2, 3):
            await group.start(number, store=disks[number])
        leader = await group.leader()
        assert await group.ask(leader, 7, 1, incr(b"k")) == b"+1"
        await asyncio.sleep(0.1)
        held = [number for number in (1, 2, 3) if number != leader.id]
        for number in held:
            disks[number].goes_on.clear()
        answers: list[Any] = []
        for sequence in range(2, 12):
            leader.submit([(7, sequence, incr(b"k"))], answers.append)
            await asyncio.sleep(0.02)
        counted = {number: disks[number].commits for number in held}
        beats = dict.fromkeys(held, 0)
        for number in held:
            note_heartbeats(group.nodes[number].peers, beats, number, monkeypatch)
        async with asyncio.timeout(PATIENCE_S):
            while min(beats.values()) < 30:
                await asyncio.sleep(0.01)
        assert not answers
        assert {number: disks[number].commits for number in held} == counted
        for number in held:
            disks[number].goes_on.set()
        async with asyncio.timeout(PATIENCE_S):
            while len(answers) < 10:
                await asyncio.sleep(0.01)
        assert [answer[0][2] for answer in answers] == [b"+%d" % number for number in range(2, 12)]
        await group.equal()
        await group.stop()

    run(main)


def note_heartbeats(peers: Any, beats: dict[int, int], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    post = peers.post

    def noting(messages: list[tuple[int, Message]]) -> None:
        beats[number] += sum(isinstance(message, Heartbeat) for _, message in messages)
        post(messages)

    monkeypatch.setattr(peers, "post", noting)


def test_the_last_commits_of_a_replica_that_stops_are_waited_for(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(1)
        disk = HeldDisk()
        node = await group.start(1, store=disk)
        await group.leader()
        disk.goes_on.clear()
        answers: list[Any] = []
        node.submit([(7, 1, incr(b"k"))], answers.append)
        await asyncio.sleep(0.05)
        threading.Timer(0.2, disk.goes_on.set).start()
        assert not answers
        await group.stop()
        assert not node._unstored

    run(main)


def test_a_disk_that_refuses_in_its_thread_silences_the_replica(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(1)
        disk, failed = HeldDisk(), list[Exception]()
        node = await group.start(1, store=disk, on_failed=failed.append)
        await group.leader()
        disk.fails = True
        answers: list[Any] = []
        node.submit([(7, 1, incr(b"k"))], answers.append)
        async with asyncio.timeout(PATIENCE_S):
            while not failed:
                await asyncio.sleep(0.01)
        assert "did not confirm" in str(failed[0])
        assert not answers
        await group.stop()

    run(main)


def test_a_timer_that_is_early_does_not_spin(local: Local, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers of event loops are rounded to milliseconds."""
    wakes = 0

    async def main() -> None:
        nonlocal wakes
        group = local(1, settings=PaxosSettings(commit_notification_s=0.0014))
        node = await group.start(1)
        await group.leader()
        wake = node._wake

        def counted() -> None:
            nonlocal wakes
            wakes += 1
            wake()

        monkeypatch.setattr(node, "_wake", counted)
        for sequence in (1, 2, 3):
            await group.ask(node, 7, sequence, incr(b"k"))
        await asyncio.sleep(0.05)
        await group.stop()

    run(main)
    assert 1 <= wakes <= 4


def test_a_request_takes_one_turn_and_a_timer_that_nothing_waits_for_takes_none(local: Local, run: Run) -> None:
    async def main() -> None:
        turns: list[int] = []
        group = local(1, on_turn=lambda: turns.append(1))
        node = await group.start(1)
        await group.leader()
        node._timer.cancel()
        collector = Collector(node)
        await asyncio.sleep(0.02)
        turns.clear()
        collector.add(incr(b"k"))  # it is submitted in the turn that it asked for
        await asyncio.sleep(0.02)
        assert (node.handler.pairs, len(turns)) == ({b"k": b"1"}, 1)
        node._plan_wake(time.monotonic() + 0.005, time.monotonic())
        node.plan_turn()  # does what the timer was for
        await asyncio.sleep(0.05)
        assert len(turns) == 2
        node._plan_wake(time.monotonic() + 0.005, time.monotonic())
        await asyncio.sleep(0.05)
        assert len(turns) == 3
        await group.stop()

    run(main)


async def dial(address: Address, hello: Hello, secret: bytes) -> Welcome:
    """Says hello to a replica."""
    reader, writer = await asyncio.open_connection(*address)

    async def send(content: bytes) -> None:
        writer.write(frame(content))

    async def receive() -> bytes:
        try:
            head = await reader.readexactly(HEAD_BYTES)
            return await reader.readexactly(int.from_bytes(head[:4], "big"))
        except asyncio.IncompleteReadError:
            raise PeerError("it hung up") from None

    try:
        return await shake_hands(send, receive, hello, secret)
    finally:
        writer.close()


def test_strangers_are_refused(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(3)
        node = await group.start(1)
        secret = group.nodes[1].peers.secret
        nonce = secrets.token_hex(16)
        assert (await dial(node.address, Hello("peer", "test", 2, 0, nonce), secret)).replica == 1
        for hello, given, why in (
            (Hello("peer", "test", 2, 0, nonce), b"another secret", "the secret is not"),
            (Hello("peer", "other", 2, 0, nonce), secret, "replica of the group 'test'"),
            (Hello("peer", "test", 1, 0, nonce), secret, "this is replica 1"),
            (Hello("peer", "test", 2, 77, nonce), secret, "another token"),
            (Hello("client", "test", 2, 0, nonce), secret, "for other replicas"),
        ):
            with pytest.raises(RefusalError, match=why):
                await dial(node.address, hello, given)
        with pytest.raises(PeerError):
            await dial(node.address, Hello("peer", "x" * 20_000, 2, 0, nonce), secret)
        await group.stop()

    run(main)


def test_a_replica_that_lost_its_store_is_not_let_in(local: Local, run: Run) -> None:
    """It has lost promises: were it let in, two values could be chosen for one instance."""

    async def main() -> None:
        group = local(3)
        stores = {number: MemoryStore() for number in (1, 2, 3)}
        for number in (1, 2, 3):
            await group.start(number, store=stores[number])
        await group.leader()
        await asyncio.sleep(0.2)
        await group.nodes.pop(3).stop()
        failed: list[Exception] = []
        lost = await group.start(3, store=MemoryStore(), on_failed=failed.append)
        async with asyncio.timeout(PATIENCE_S):
            while not failed:
                await asyncio.sleep(0.01)
        assert isinstance(lost.failure, ConfigurationError)
        assert "does not take it back: its start 1 was seen before, and was another one" in str(failed[0])
        assert str(failed[0]).endswith("What to do: put a new replica in its place")
        assert not lost.replica.voting
        await group.stop()

    run(main)


def test_a_new_replica_takes_the_place_of_an_old_one(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(4, settings=PaxosSettings(snapshot_every=20, log_keep=5))
        founders = {number: group.places[number] for number in (1, 2, 3)}
        for number in (1, 2, 3):
            await group.start(number, places=founders)
        leader = await group.leader()
        for sequence in range(1, 41):
            await group.ask(leader, 1, sequence, incr(b"k"))
        new = await group.start(4, join=True, store=MemoryStore())
        with pytest.raises(ConfigurationError, match="not a member"):
            await leader.replace(9, 4, new.address)
        old = next(number for number in (1, 2, 3) if number != leader.id)
        since = await leader.replace(old, 4, new.address)
        await group.nodes.pop(old).stop()
        while leader.replica.applied < since - 1 or not new.status().voting:
            await asyncio.sleep(0.02)
        assert set(leader.members) == {1, 2, 3, 4} - {old}
        assert await group.ask(new, 2, 1, incr(b"k")) == b"+41"
        await group.equal()
        # The address of the new one is known to all, and kept.
        for number, node in group.nodes.items():
            assert node.places()[4].peer == new.address, number
            assert b"A\x00\x04" in dict(node.store.items())
        with pytest.raises(OverloadError, match="to be reached"):
            await leader.replace(4, 5, Address("127.0.0.1", 1), timeout_s=0.3)
        await group.stop()

    run(main)


def test_a_peer_that_does_not_read_costs_a_bounded_queue(local: Local, run: Run) -> None:
    """A fake replica says hello and reads no more. Messages for it are dropped; a link that stalls is given up."""

    async def main() -> None:
        group = local(3, queue_bytes_max=200_000)
        listener = socket.create_server(group.places[3].peer)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.setblocking(False)
        accepted = asyncio.create_task(asyncio.get_running_loop().sock_accept(listener))
        for number in (1, 2):
            await group.start(number)
        leader = await group.leader()
        fake, _ = await accepted
        link = leader.peers._links[3]
        # Without a hello it is not up, and nothing waits for it.
        assert (link.is_up, link.queued_bytes) == (False, 0)
        link._sock, peer = socket.socketpair()
        link._sock.setblocking(False)
        link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        link.is_up = True
        most = 0
        for sequence in range(1, 61):
            await group.ask(leader, 1, sequence, put(b"k", bytes(20_000)))
            most = max(most, link.queued_bytes)
        assert 100_000 < most <= 200_000
        assert link.dropped > 0
        link._progress_s -= 10
        link.check()
        assert (link.is_up, link.queued_bytes) == (False, 0)
        for each in (fake, peer, listener):
            each.close()
        await group.equal(1, 2)
        await group.stop()

    run(main)


def test_links_can_be_delayed_and_keep_their_order(local: Local, run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        group = local(3, link_delay_s=0.03)
        for number in (1, 2, 3):
            await group.start(number)
        leader = await group.leader()
        begin = loop.time()
        assert await group.ask(leader, 1, 1, incr(b"k")) == b"+1"
        assert loop.time() - begin >= 0.059  # there and back
        answers = await asyncio.gather(*(group.ask(leader, 1, n, incr(b"k")) for n in range(2, 50)))
        assert answers == [b"+%d" % n for n in range(2, 50)]
        await group.equal()
        await group.stop()

    run(main)


class BrokenStore(MemoryStore):
    """A store that refuses after a while."""

    is_broken = False

    def commit(self, operations: Any) -> None:
        if self.is_broken:
            raise StoreError("disk full")
        super().commit(operations)


class Explosive(ExampleStore):
    """A handler that raises, as it must not."""

    def execute(self, command: bytes, context: Context) -> bytes:
        if command == b"boom":
            raise RuntimeError("boom")
        return super().execute(command, context)


def test_a_replica_that_cannot_store_is_silent(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(3)
        stores = {number: BrokenStore() for number in (1, 2, 3)}
        failed: list[Exception] = []
        for number in (1, 2, 3):
            await group.start(number, store=stores[number], on_failed=failed.append)
        old = await group.leader()
        stores[old.id].is_broken = True
        answers: list[Any] = []
        old.submit([(1, 1, incr(b"k"))], answers.append)
        while not failed:
            await asyncio.sleep(0.01)
        assert str(failed[0]) == "disk full"
        assert not answers
        del group.nodes[old.id]
        new = await group.leader()
        assert (await group.ask(new, 1, 1, incr(b"k"))) == b"+1"
        await old.stop()
        await group.stop()

    run(main)


def test_a_handler_that_raises_ends_its_replica(local: Local, run: Run) -> None:
    async def main() -> None:
        failed: list[Exception] = []
        group = local(1)
        node: ReplicaNode = await group.start(1, handler=Explosive(), on_failed=failed.append)
        node.submit([(1, 1, b"boom")])
        while not failed:
            await asyncio.sleep(0.01)
        assert str(node.failure) == "boom"
        await group.stop()

    run(main)


def test_what_is_wrong_at_the_start_is_said(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(2)
        with pytest.raises(ConfigurationError, match="own address is not among"):
            await group.start(7)
        with socket.create_server(group.places[1].peer), pytest.raises(ConfigurationError, match="cannot listen at"):
            await group.start(1)
        node = await group.start(2)
        with pytest.raises(ConfigurationError, match="it is known to be at"):
            await node.replace(2, 1, Address("127.0.0.1", 1))
        assert await asyncio.wait_for(asyncio.sleep(0, True), 1)
        await group.stop()

    run(main)


def test_one_replica_alone_and_its_address(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(1)
        node = await group.start(1, places={1: Place(Address("127.0.0.1", 0))})
        assert node.address.port
        assert await group.ask(node, 1, 1, put(b"k", b"v")) == b"+"
        assert await group.ask(node, 1, 2, get(b"k")) == b"+v"
        assert node.leader == 1
        await group.stop()

    run(main)


def test_a_replica_that_differs_says_so_and_takes_the_state_of_the_others(local: Local, run: Run) -> None:
    async def main() -> None:
        said = io.StringIO()
        group = local(3, log=BrokerLog("error", stream=said))
        for number in (1, 2, 3):
            await group.start(number)
        leader = await group.leader()
        wrong = next(node for node in group.nodes.values() if node is not leader)
        for sequence in range(1, 41):
            if sequence == 20:
                await group.equal()
                wrong.handler.pairs[b"k"] = b"1000"  # a fault of the memory, say
            await group.ask(leader, 7, sequence, incr(b"k"))
        while not wrong.status().counts.get("states discarded") or wrong.status().blank:
            await asyncio.sleep(0.01)
        assert await group.ask(wrong, 8, 1, get(b"k")) == b"+40"
        instance = await wrong.verify()
        await group.equal()
        assert {(node.status().verified, len(node.status().verified_hash)) for node in group.nodes.values()} == {
            (instance, 32)
        }
        assert len({node.status().verified_hash for node in group.nodes.values()}) == 1
        notice = f"replica {wrong.id} differs from the majority"
        while any(node.status().alarm for node in group.nodes.values()) or said.getvalue().count(notice) < 3:
            await asyncio.sleep(0.01)  # the third may notice when the others have forgotten it
        assert {node.handler.pairs[b"k"] for node in group.nodes.values()} == {b"40"}
        assert said.getvalue().count(notice) == 3
        await group.stop()

    run(main)
