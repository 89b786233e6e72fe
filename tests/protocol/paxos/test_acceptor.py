"""The acceptor's rules: Paxos Made Simple, P1a and P2, and one vote a fast ballot (Fast Paxos, section 3.1)."""

from __future__ import annotations

from surecast.protocol.paxos.acceptor import Acceptor
from surecast.protocol.paxos.ballots import CHOSEN, classic, first_ballot
from surecast.protocol.paxos.journal import Journal, read_records

B1, B2, B3 = first_ballot(1, 1), first_ballot(2, 2), first_ballot(3, 1)


def restored(acceptor: Acceptor) -> Acceptor:
    disk: dict[bytes, bytes] = {}
    for key, value in acceptor.journal.take():
        if value is None:
            disk.pop(key, None)
        else:
            disk[key] = value
    found = read_records(disk.items())
    again = Acceptor(Journal())
    again.promised, again.votes, again.closed = found.promised, found.votes, found.closed
    return again


def test_p1a_accepts_only_what_no_promise_forbids() -> None:
    acceptor = Acceptor(Journal())
    assert acceptor.promise(B2)
    assert not acceptor.accept(B1, 1, b"late")
    assert acceptor.accept(B2, 1, b"v")
    assert acceptor.accept(B3, 1, b"w")  # a later ballot needs no promise of its own
    assert not acceptor.promise(B2)
    assert acceptor.votes == {1: (classic(B3), b"w")}


def test_promises_votes_and_closings_survive_a_restart() -> None:
    acceptor = Acceptor(Journal())
    acceptor.promise(B1)
    acceptor.accept(B1, 1, b"v")
    acceptor.accept_fast(B1, 2, b"w")
    acceptor.close(B1, 3)
    again = restored(acceptor)
    assert (again.promised, again.votes, again.closed) == (acceptor.promised, acceptor.votes, acceptor.closed)
    assert not again.accept_fast(B1, 3, b"x")


def test_one_fast_vote_in_each_ballot() -> None:
    acceptor = Acceptor(Journal())
    acceptor.promise(B1)
    assert acceptor.accept_fast(B1, 1, b"first")
    assert not acceptor.accept_fast(B1, 1, b"second")
    assert acceptor.accept(B1, 1, b"settled")  # the classic step of the same ballot is later
    assert not acceptor.accept_fast(B1, 1, b"third")
    acceptor.promise(B2)
    assert acceptor.accept_fast(B2, 1, b"next ballot")


def test_no_fast_vote_outside_the_promised_ballot_or_once_closed() -> None:
    acceptor = Acceptor(Journal())
    acceptor.promise(B2)
    assert not acceptor.accept_fast(B1, 1, b"v")
    assert not acceptor.accept_fast(B3, 1, b"v")
    assert acceptor.close(B2, 1)
    assert not acceptor.accept_fast(B2, 1, b"v")
    assert not acceptor.close(B1, 2)


def test_a_learnt_value_takes_the_place_of_a_vote_for_another() -> None:
    acceptor = Acceptor(Journal())
    acceptor.accept(B1, 1, b"mine")
    acceptor.learn(1, b"chosen")
    assert acceptor.votes[1] == (CHOSEN, b"chosen")
    assert acceptor.accept(B2, 1, b"chosen")
    assert acceptor.votes[1] == (CHOSEN, b"chosen")


def test_truncation_forgets_votes_and_closings_on_disk_too() -> None:
    acceptor = Acceptor(Journal())
    for slot in (1, 2, 3):
        acceptor.accept(B1, slot, b"v")
        acceptor.close(B1, slot)
    acceptor.truncate(2)
    again = restored(acceptor)
    assert (set(again.votes), set(again.closed)) == ({3}, {3})
