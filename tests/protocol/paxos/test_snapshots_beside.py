"""Snapshots that the shell writes beside the replica: what counts when, and what a crash at any point leaves."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.protocol.paxos.paxos_group import Group
from tests.seeds import seeds

from surecast.errors import ConfigurationError
from surecast.protocol.paxos import ExampleStore, Replica
from surecast.protocol.paxos.example_store import get, incr, put
from surecast.protocol.paxos.journal import SnapshotReference
from surecast.protocol.paxos.quorums import digest_of
from surecast.protocol.paxos.snapshot_transfer import SnapshotInMemory


class Files:
    """The files of one replica, which outlive it; the one that is written now does not."""

    def __init__(self) -> None:
        self.kept: dict[int, SnapshotInMemory] = {}
        self.writing: SnapshotInMemory | None = None

    def open(self, reference: SnapshotReference) -> SnapshotInMemory:
        return self.kept[reference.number]

    def begin(self, slot: int, data: bytes) -> None:
        assert self.writing is None, "one at a time"
        self.writing = SnapshotInMemory(slot, data)
        self.writing.reference = self.writing.reference._replace(number=max(self.kept, default=0) + 1)

    def end(self) -> SnapshotInMemory:
        written, self.writing = self.writing, None
        assert written is not None
        self.kept[written.reference.number] = written
        return written


class GroupWithFiles(Group):
    """A group whose shell copies the state when a snapshot is wanted, and writes it while the replica goes on."""

    def __init__(self, replicas: int = 3, **settings: object):
        self.files = {one: Files() for one in range(1, 10)}
        super().__init__(replicas, snapshot_at_once_bytes=0, **settings)

    def _make(self, one: int, token: int = 0) -> Replica:
        replica = Replica(
            one,
            self.stores[one],
            self.founders,
            self.settings,
            records=self.disks[one].items(),
            token=token,
            now=self.now,
            shelf=self.files[one],
        )
        self.files[one].writing = None
        self.starts[one] = 0
        return replica

    def turn(self, one: int) -> None:
        super().turn(one)
        snapshots = self.replicas[one].snapshots
        if snapshots.is_wanted:
            slot, pieces = snapshots.begin()
            self.files[one].begin(slot, b"".join(pieces))  # the copy is of this instant

    def written(self, one: int) -> None:
        """The snapshot of a replica is on the disk."""
        if self.files[one].writing is not None:
            self.replicas[one].snapshots.finish(self.files[one].end())
            self.turn(one)

    def count(self, number: int, first: int = 1) -> None:
        for sequence in range(first, first + number):
            assert self.ask(self.leader.id, 7, sequence, incr(b"k")) is not None


def started(**settings: object) -> GroupWithFiles:
    group = GroupWithFiles(**settings)
    group.run(1.0)
    return group


def test_a_replica_goes_on_while_its_snapshot_is_written() -> None:
    group = started(snapshot_every=10, log_keep=0)
    group.count(25)
    one = group.leader.id
    replica, files = group.replicas[one], group.files[one]
    assert files.writing is not None
    begun, applied = files.writing.reference.slot, replica.applied
    assert begun < applied
    assert replica.snapshots.slot == 0
    assert min(replica.acceptor.votes) <= begun  # all of the log is there until the snapshot is
    assert not any(key.startswith((b"Pf", b"Pd", b"Ps")) for key in group.disks[one])
    group.written(one)
    assert replica.snapshots.slot == begun
    assert b"Pf" in group.disks[one]
    group.count(1, 26)
    assert min(replica.acceptor.votes) == begun + 1
    votes = {int.from_bytes(key[2:10], "big") for key in group.disks[one] if key[:2] == b"Pv"}
    assert min(votes) == begun + 1


def test_a_replica_starts_again_from_a_file_and_the_log_above_it() -> None:
    group = started(snapshot_every=10, log_keep=0)
    group.count(25)
    one = group.followers()[0]
    group.written(one)
    group.count(7, 26)
    group.restart(one)
    group.run(1.0)
    assert group.stores[one].pairs == {b"k": b"32"}
    assert group.replicas[one].snapshots.slot == group.files[one].kept[1].reference.slot


@pytest.mark.parametrize("seed", seeds(6, range(12)))
def test_a_crash_at_any_point_of_a_snapshot_loses_nothing(seed: int) -> None:
    """Snapshots end and fail, and replicas start again, at random: all are equal, and every request counts once."""
    group, draw = started(snapshot_every=5, log_keep=3), random.Random(seed)
    begun = ended = 0
    for step in range(1, 121):
        leader = next((each for each in group.replicas.values() if each.leads), None)
        while leader is None:
            group.run(0.2)
            leader = next((each for each in group.replicas.values() if each.leads), None)
        assert group.ask(leader.id, 7, step, incr(b"k")) == b"+%d" % step
        one = draw.choice(group.founders)
        what = draw.random()
        begun += group.files[one].writing is not None
        if what < 0.25:
            ended += group.files[one].writing is not None
            group.written(one)
        elif what < 0.3 and group.files[one].writing is not None:
            group.files[one].writing = None
            group.replicas[one].snapshots.fail()
        elif what < 0.4:
            group.restart(one)
            group.run(0.6)
    group.run(2.0)
    assert begun > ended > 3
    assert all(store.pairs == {b"k": b"120"} for store in group.stores.values())
    assert len({replica.machine.hash for replica in group.replicas.values()}) == 1


def test_a_failed_snapshot_is_counted_and_taken_again_later() -> None:
    group = started(snapshot_every=10, log_keep=0)
    group.count(15)
    one = group.leader.id
    replica, files = group.replicas[one], group.files[one]
    files.writing = None
    replica.snapshots.fail()
    assert replica.counts["snapshots failed"] == 1
    group.count(5, 16)
    assert files.writing is None  # not at once
    group.run(6.0)
    group.count(1, 21)
    assert files.writing is not None
    group.written(one)
    assert replica.snapshots.slot


def test_one_that_lags_gets_a_snapshot_from_a_file() -> None:
    group = started(snapshot_every=10, log_keep=0, fetch_bytes_max=30)
    late = group.followers()[0]
    group.passes = lambda source, to, message: late not in (source, to)
    group.count(25)
    for one in group.founders:
        group.written(one)
    group.count(5, 26)
    group.passes = lambda source, to, message: True
    group.run(2.0)
    assert group.stores[late].pairs == {b"k": b"30"}
    assert sum(type(message).__name__ == "SnapshotPart" for _, to, message in group.sent if to == late) > 3


def test_one_that_is_asked_for_without_being_there_is_begun() -> None:
    """Somebody needs a snapshot newer than the last: the answer comes when it is written."""
    group = started(snapshot_every=1_000, log_keep=0)
    group.count(8)
    leader = group.leader
    new = group.join(4, token=77)
    leader.replace(group.followers()[0], 4, 77, group.now)
    group.run(0.5)
    assert new.blank
    assert any(files.writing is not None for files in group.files.values())
    for one in group.founders:
        group.written(one)
    group.run(2.0)
    assert group.stores[4].pairs == {b"k": b"8"}


def test_a_snapshot_of_a_state_that_was_replaced_meanwhile_does_not_count() -> None:
    group = started(snapshot_every=10, log_keep=0)
    group.count(15)
    one = group.followers()[0]
    replica = group.replicas[one]
    written = group.files[one].end()
    replica.blank = True  # its state differs from that of the others: theirs will replace it
    replica.snapshots.finish(written)
    assert replica.snapshots.slot == 0
    replica.blank = False
    replica.snapshots.finish(written)  # and it was not asked for any more
    assert replica.snapshots.slot == 0


@pytest.mark.parametrize("damage", ["a changed byte", "cut off"])
def test_a_damaged_file_is_refused(damage: str) -> None:
    group = started(snapshot_every=10, log_keep=0)
    group.ask(group.leader.id, 7, 1, put(b"key", b"value"))
    group.count(15, 2)
    one = group.leader.id
    group.written(one)
    files = group.files[one]
    [whole] = files.kept.values()
    data = bytearray(whole.read(0, whole.reference.size))
    if damage == "cut off":
        del data[-1]
    else:
        data[-1] ^= 1
    damaged: Any = SnapshotInMemory(whole.reference.slot, bytes(data))
    files.kept[whole.reference.number] = damaged
    with pytest.raises(ConfigurationError, match="damaged"):
        group.restart(one)


def test_a_state_in_a_file_needs_a_place_for_files() -> None:
    group = started(snapshot_every=10, log_keep=0)
    group.count(15)
    group.written(1)
    with pytest.raises(ConfigurationError, match="no place for files"):
        Replica(1, ExampleStore(), group.founders, group.settings, records=group.disks[1].items())


def test_a_snapshot_at_once_takes_the_place_of_one_in_a_file() -> None:
    group = started(snapshot_every=10, log_keep=0)
    group.count(15)
    group.written(1)
    assert b"Pf" in group.disks[1]
    group.replicas[1].snapshots.take_at_once()
    group.turn(1)
    assert b"Pf" not in group.disks[1]
    data = b"".join(value for key, value in sorted(group.disks[1].items()) if key[:2] == b"Pd")
    assert digest_of(data) == group.replicas[1].catch_up.transfer.snapshots[group.replicas[1].applied].reference.digest
    group.restart(1)
    group.run(1.0)
    assert group.ask(1, 9, 1, get(b"k")) == b"+15"
