"""The bytes of a replica's durable state and of its snapshot: exact, and refused where they are damaged."""

from __future__ import annotations

import random

import pytest

from surecast.errors import PeerError
from surecast.protocol.paxos.example_store import ExampleStore
from surecast.protocol.paxos.incarnations import Seen
from surecast.protocol.paxos.journal import Journal, read_records
from surecast.protocol.paxos.machine import Machine
from surecast.protocol.paxos.membership import Membership, replace_command
from surecast.protocol.paxos.paxos_settings import PaxosSettings
from surecast.protocol.paxos.replies import ReplyCache


def changed_membership() -> Membership:
    """A membership with a change on its way."""
    membership = Membership.founding([1, 2, 3], alpha=10)
    membership.execute(7, replace_command(2, 4, 99))
    return membership


def used_cache() -> ReplyCache:
    """A cache with two clients."""
    cache = ReplyCache(window=2, clients_max=10, expiry_us=1000)
    for client, replies in ((9, (b"", b"one")), (7, (b"a", b"bc", b"def"))):
        session = cache.session(client)
        session.last_us = 5 * client
        for number, reply in enumerate(replies, 1):
            session.add(number, reply, cache.window)
    return cache


def test_the_bytes_of_a_membership() -> None:
    written = changed_membership().encode()
    assert written.hex() == MEMBERSHIP
    assert Membership.decode(written, 10).configurations == changed_membership().configurations


def test_the_bytes_of_a_reply_cache() -> None:
    written = used_cache().encode()
    assert written.hex() == REPLIES
    copy = ReplyCache(window=2, clients_max=10, expiry_us=1000)
    copy.decode(written)
    assert copy.encode() == written
    assert copy.sessions[7].replies == {2: b"bc", 3: b"def"}


def test_the_records_of_a_journal() -> None:
    journal = Journal()
    journal.identity(2, 77, [1, 2, 3])
    journal.incarnations(3, (8, 9))
    journal.seen(1, Seen(4, 5, 6, 7))
    journal.snapshot(12, b"state")
    journal.chosen(13, b"effects")
    records = journal.take()
    assert [(key.hex(), (value or b"").hex()) for key, value in records] == JOURNAL
    found = read_records([(key, value) for key, value in records if value is not None])
    assert (found.replica, found.token, found.members) == (2, 77, (1, 2, 3))
    assert (found.incarnation, found.starts, found.seen) == (3, (8, 9), {1: Seen(4, 5, 6, 7)})
    assert (found.snapshot_slot, found.snapshot, found.chosen, found.effects) == (12, b"state", 13, b"effects")


def test_any_bytes_of_a_snapshot_are_read_or_refused() -> None:
    machine = Machine(ExampleStore(), changed_membership(), PaxosSettings())
    machine.cache = used_cache()
    whole = machine.encode()
    rng = random.Random(3)
    copy = Machine(ExampleStore(), Membership.founding([1], 10), PaxosSettings())
    copy.decode(whole)
    assert copy.encode() == whole
    refused = 0
    for _ in range(500):
        data = bytearray(whole[: rng.choice((len(whole), rng.randrange(len(whole))))])
        if data:
            data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        try:
            Machine(ExampleStore(), Membership.founding([1], 10), PaxosSettings()).decode(bytes(data))
        except PeerError as error:
            assert str(error).startswith(("paxos ", "example store: "))
            refused += 1
    assert 200 < refused < 500


@pytest.mark.parametrize("size", range(0, 60, 7))
def test_a_membership_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(PeerError, match=r"^paxos membership: "):
        Membership.decode(changed_membership().encode()[:size], 10)


MEMBERSHIP = (
    "000402000000000000000103000100000000000000000002000000000000000000030000000000000000000000000000"
    "001103000100000000000000000004000000000000006300030000000000000000"
)
REPLIES = (
    "000000000000000700000000000000010000000000000003000000000000002300000002000000000000000200000002"
    "626300000000000000030000000364656600000000000000090000000000000000000000000000000200000000000000"
    "2d000000020000000000000001000000000000000000000002000000036f6e65"
)
JOURNAL = [
    ("5069", "0002000000000000004d000100020003"),
    ("506c", "000000000000000300000000000000080000000000000009"),
    ("506d0001", "0000000000000004000000000000000500000000000000060000000000000007"),
    ("50640000000000000000", "7374617465"),
    ("5073", "000000000000000c00000001"),
    ("5063", "000000000000000d65666665637473"),
]
