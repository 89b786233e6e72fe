"""The reply queue (P2S Algorithm 1) against a plain model, and the snapshot of the whole machine."""

from __future__ import annotations

import random

from surecast.protocol.paxos.example_store import ExampleStore, incr
from surecast.protocol.paxos.log_values import NOOP, join_segments, make_segment
from surecast.protocol.paxos.machine import Machine
from surecast.protocol.paxos.membership import Membership
from surecast.protocol.paxos.paxos_settings import PaxosSettings


def machine(**settings: object) -> Machine:
    return Machine(ExampleStore(), Membership.founding([1, 2, 3], 10), PaxosSettings(**settings))  # type: ignore[arg-type]


def value(stamp_us: int, *requests: tuple[int, int, bytes]) -> bytes:
    return join_segments(stamp_us, [make_segment(1, stamp_us, requests)])


def test_every_request_within_the_window_counts_once_whatever_its_order() -> None:
    rng = random.Random(3)
    window = 4
    subject = machine(reply_window=window)
    seen: dict[int, dict[int, bytes]] = {}
    counters: dict[int, int] = {}
    for stamp in range(1, 600):
        client = rng.randint(1, 3)
        known = seen.setdefault(client, {})
        sequence = max(1, max(known, default=0) + rng.randint(-6, 3))
        ((_, _, answers),) = subject.apply(value(stamp, (client, sequence, incr(b"%d" % client))), 1)
        assert answers is not None
        if sequence in known and sequence > max(known) - window:
            expected: bytes | None = known[sequence]
        elif sequence <= max(known, default=0) - window:
            expected = None
        else:
            counters[client] = counters.get(client, 0) + 1
            expected = known[sequence] = b"+%d" % counters[client]
        assert answers == [(client, sequence, expected)]


def test_a_restored_machine_is_equal_in_every_byte_and_goes_on_alike() -> None:
    first, second = machine(reply_window=4), machine(reply_window=4)
    for stamp in range(1, 50):
        first.apply(value(stamp, (stamp % 5 + 1, stamp, incr(b"k"))), 1)
    second.decode(first.encode())
    assert second.encode() == first.encode()
    for one in (first, second):
        one.apply(NOOP, 1)
        one.apply(value(99, (1, 99, incr(b"k"))), 1)
    assert (second.hash, second.encode()) == (first.hash, first.encode())


def test_clients_are_forgotten_by_the_time_of_the_log_and_when_there_are_too_many() -> None:
    subject = machine(client_expiry_s=1.0, clients_max=8)
    for client in range(1, 21):
        subject.apply(value(client, (client, 1, incr(b"k"))), 1)
    assert len(subject.cache.sessions) <= 8
    assert 20 in subject.cache.sessions
    while subject.applied < 256:
        subject.apply(value(5_000_000, (99, subject.applied, incr(b"k"))), 1)
    assert set(subject.cache.sessions) == {99}
