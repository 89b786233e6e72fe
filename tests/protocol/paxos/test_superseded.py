"""A leader that does not know that a later ballot has replaced it, and learns from others what that one chose.

It must not say in its own ballot that such an instance is chosen: whoever voted there for its proposal would take that
vote for the chosen value (Paxos Made Simple, 2.3: learners learn that a *proposal* was accepted by a majority).
"""

from __future__ import annotations

import pytest
from paxos_group import Group

from surecast.protocol.paxos.example_store import put
from surecast.protocol.paxos.paxos_messages import Entries, Fetch, Heartbeat, Message, SnapshotPart


class Split:
    """Replicas 1 and 3 on one side, where 1 goes on leading; 2, 4 and 5 on the other, where 2 comes to lead.

    Replica 1 hears the heartbeats of 4 and 5, which tell it nothing of a later ballot. Once `fetches` is set it catches
    up with them, too; whatever would tell it to step down is lost.
    """

    def __init__(self, **settings: object):
        self.group = Group(5, **settings)
        self.group.run(2.0)
        assert self.group.leader.id == 1
        self.fetches = False
        self.group.passes = self._passes

    def _passes(self, source: int, to: int, message: Message) -> bool:
        if (source in (1, 3)) == (to in (1, 3)):
            return True
        if self.fetches and source == 1 and isinstance(message, Fetch):
            return True
        heard = (Heartbeat, Entries, SnapshotPart) if self.fetches else (Heartbeat,)
        return to == 1 and source in (4, 5) and isinstance(message, heard)

    def new_leader(self) -> None:
        self.group.run(1.0)
        assert [one for one, replica in self.group.replicas.items() if replica.leads] == [1, 2]

    def states(self) -> set[tuple[tuple[bytes, bytes], ...]]:
        """What the replicas that have applied anything hold."""
        stores, replicas = self.group.stores, self.group.replicas
        return {tuple(stores[one].pairs.items()) for one, replica in replicas.items() if replica.applied}


@pytest.mark.parametrize("log_keep", [200, 0], ids=["values", "a snapshot"])
def test_a_proposal_that_lost_is_never_called_chosen(log_keep: int) -> None:
    split = Split(snapshot_every=1, log_keep=log_keep)
    group = split.group
    group.ask(1, 7, 1, put(b"k", b"old"))  # replica 3 votes for it
    split.new_leader()
    assert group.ask(2, 8, 1, put(b"k", b"new")) == b"+"
    split.fetches = True
    group.run(0.5)
    assert group.stores[1].pairs == {b"k": b"new"}  # it has caught up
    assert split.states() == {((b"k", b"new"),)}
    assert not group.replicas[1].leads
    group.passes = lambda source, to, message: True
    group.run(1.0)
    assert len({replica.hash for replica in group.replicas.values()}) == 1


def test_a_proposal_for_an_instance_that_others_have_chosen_does_not_call_itself_chosen() -> None:
    """What arrives together with the value of others is proposed before that is applied."""
    split = Split()
    group = split.group
    split.new_leader()
    assert group.ask(2, 8, 1, put(b"k", b"new")) == b"+"
    leader = group.replicas[1]
    value = group.replicas[4].acceptor.votes[1][1]
    leader.submit([(7, 1, put(b"k", b"old"))], group.now)
    leader.receive(4, Entries(1, 1, (value,)), group.now)
    group.settle()
    assert group.stores[1].pairs == {b"k": b"new"}
    assert split.states() == {((b"k", b"new"),)}
