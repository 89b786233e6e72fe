"""Fast Paxos, section 3.3.1 (the quorum requirement) and Figure 2 (picking a value), against brute force."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from surecast.protocol.paxos.quorums import Vote, can_still_win, classic_quorum, fast_quorum, pick_value


@pytest.mark.parametrize("replicas", range(1, 40))
def test_sizes_meet_the_quorum_requirement(replicas: int) -> None:
    classic, fast = classic_quorum(replicas), fast_quorum(replicas)
    assert 2 * classic > replicas
    assert 2 * fast + classic > 2 * replicas  # any two fast quorums and a classic one share an acceptor
    assert classic <= fast <= replicas


def test_fast_quorums_of_the_usual_groups() -> None:
    assert [fast_quorum(n) for n in (3, 5, 7)] == [3, 4, 6]


def may_be_chosen(votes: dict[int, Vote | None], replicas: int, ballot: int, value: bytes) -> bool:
    """O4 word by word: some fast quorum R, all of whose members that answered voted for the value in this ballot."""
    return any(
        all(votes[one] == (ballot, value) for one in quorum if one in votes)
        for quorum in combinations(range(replicas), fast_quorum(replicas))
    )


@pytest.mark.parametrize("replicas", [3, 4, 5])
def test_pick_value_keeps_whatever_a_fast_quorum_may_have_chosen(replicas: int) -> None:
    choices: list[Vote | None] = [None, (4, b"a"), (4, b"b"), (2, b"c")]
    for quorum in combinations(range(replicas), classic_quorum(replicas)):
        for cast in product(choices, repeat=len(quorum)):
            votes = dict(zip(quorum, cast, strict=True))
            picked = pick_value(votes, replicas)
            highest = max((vote[0] for vote in cast if vote), default=0)
            possible = [v for v in (b"a", b"b", b"c") if highest and may_be_chosen(votes, replicas, highest, v)]
            possible = [v for v in possible if (highest, v) in cast]
            assert len(possible) <= 1
            if possible:
                assert picked == possible[0]
            elif highest:
                assert (highest, picked) in cast
            else:
                assert picked is None


def test_pick_value_takes_the_value_of_the_highest_classic_ballot() -> None:
    assert pick_value({1: (5, b"old"), 2: (9, b"new"), 3: None}, 5) == b"new"


@pytest.mark.parametrize("replicas", [3, 5])
def test_can_still_win_is_whether_some_completion_has_a_fast_quorum(replicas: int) -> None:
    for count in range(replicas + 1):
        for votes in product([b"a", b"b", b"c"], repeat=count):
            best = max((votes.count(v) for v in set(votes)), default=0)
            assert can_still_win(votes, replicas) == (best + replicas - count >= fast_quorum(replicas))
