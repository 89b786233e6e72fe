"""Packets along lossy paths against enumeration of all losses and against random vectors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.coding import LossyPath, end_ranks, on_paths_probability, redundancy_for
from surecast.prediction.coding.ranks import decodes, hop_matrix


def rank(rows: list[int]) -> int:
    basis: list[int] = []
    for row in rows:
        for held in basis:
            row = min(row, row ^ held)
        if row:
            basis.append(row)
    return len(basis)


def test_all_losses_and_all_coefficients_on_two_paths() -> None:
    """Two plain packets and one coded in the smallest field; the first path has two links, and takes two packets.

    Which packet takes which path matters here; the formula means any.
    """
    losses = (0.3, 0.2, 0.4)
    by_place = []
    for order in itertools.permutations(range(3)):
        found = 0.0
        for gone in itertools.product((0, 1), repeat=5):  # two packets on two links, one on the third
            chance = math.prod(p if g else 1 - p for g, p in zip(gone, (0.3, 0.3, 0.2, 0.2, 0.4), strict=True))
            here = [not (gone[0] or gone[2]), not (gone[1] or gone[3]), not gone[4]]
            for vector in range(4):
                packets = (0b01, 0b10, vector)
                found += chance / 4 * (rank([packets[order[i]] for i in range(3) if here[i]]) == 2)
        by_place.append(found)
    paths = [LossyPath(losses[:2], 2.0), LossyPath(losses[2:], 1.0)]
    predicted = on_paths_probability(2, 1, paths, 1, recode=False)
    assert predicted == pytest.approx(float(np.mean(by_place)), abs=1e-12)


def test_one_path_without_recoding_is_exact() -> None:
    n, r, p = 3, 2, 0.25
    total = 0.0
    for gone in itertools.product((0, 1), repeat=n + r):
        chance = math.prod(p if g else 1 - p for g in gone)
        spans = [
            rank([v for v, g in zip((1, 2, 4, *coded), gone, strict=True) if not g]) == n
            for coded in itertools.product(range(8), repeat=r)
        ]
        total += chance * float(np.mean(spans))
    assert on_paths_probability(n, r, [LossyPath((p,))], 1) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(("held", "sent", "loss"), [(1, 2, 0.3), (2, 3, 0.2), (2, 2, 0.5), (3, 4, 0.4)])
def test_a_hop_is_the_mean_over_all_losses_and_combinations(held: int, sent: int, loss: float, fresh: bool) -> None:
    """A broker with some independent packets sends them on and adds combinations, all of them enumerated."""
    kept = 0 if fresh else held
    counted = np.zeros(sent + 1)
    for extra in itertools.product(range(2**held), repeat=sent - kept):
        rows = [*(1 << i for i in range(kept)), *extra]
        for gone in itertools.product((0, 1), repeat=sent):
            chance = math.prod(loss if g else 1 - loss for g in gone)
            here = [row for row, g in zip(rows, gone, strict=True) if not g]
            counted[rank(here)] += chance / 2 ** (held * (sent - kept))
    assert np.allclose(hop_matrix(sent, loss, 1, fresh)[held], counted, atol=1e-12)


def test_recoding_on_three_hops_against_random_vectors() -> None:
    """The chain of ranks against brokers that combine vectors of the smallest field, where it is least exact."""
    rng = np.random.default_rng(8)
    n, r, losses, runs = 6, 4, (0.15, 0.2, 0.1), 3000
    decoded = 0
    for _ in range(runs):
        flowing = [*(1 << i for i in range(n)), *(int(rng.integers(1, 2**n)) for _ in range(r))]
        for hop, loss in enumerate(losses):
            if hop:
                combined = []
                for _ in range(n + r - len(flowing)):
                    picks = rng.random(len(flowing)) < 0.5
                    vector = 0
                    for packet, pick in zip(flowing, picks, strict=True):
                        vector ^= packet if pick else 0
                    combined.append(vector)
                flowing = [*flowing, *combined] if flowing else []
            flowing = [packet for packet in flowing if rng.random() >= loss]
        decoded += rank(flowing) == n
    share = decoded / runs
    predicted = on_paths_probability(n, r, [LossyPath(losses)], 1)
    assert predicted == pytest.approx(share, abs=0.02 + 2 * math.sqrt(share * (1 - share) / runs))


def test_in_a_large_field_the_rank_is_the_least_count_of_all_hops() -> None:
    """As q grows: the rank behind hops is the minimum of what got through each."""
    share, losses = 20, (0.1, 0.3, 0.2)
    above = np.ones(share + 1)
    for loss in losses:
        above *= binom.sf(np.arange(share + 1) - 1, share, 1 - loss)
    least = above - np.append(above[1:], 0.0)
    assert np.abs(end_ranks(share, LossyPath(losses), 8) - least).max() < 0.004


def test_chances_to_decode_grow_with_what_is_here() -> None:
    table = decodes(8, 4, 1)
    assert np.all(table[:8] == 0.0)
    assert np.all(np.diff(table) >= 0.0)
    assert table[-1] == 1.0


def test_the_redundancy_for_a_target_is_the_least() -> None:
    paths = [LossyPath((0.1, 0.1), 2.0), LossyPath((0.2,), 1.0)]
    found = redundancy_for(0.999, 32, paths, 8)
    chances = [on_paths_probability(32, coded, paths, 8) for coded in (found - 1, found)]
    assert chances[0] < 0.999 <= chances[1]


def test_refusals_say_what_would_be_right() -> None:
    with pytest.raises(AssumptionError, match="use more paths"):
        redundancy_for(0.99, 4, [LossyPath((0.99, 0.99, 0.99))], 8)
    with pytest.raises(AssumptionError, match="there is none"):
        on_paths_probability(4, 1, [], 8)
    with pytest.raises(ConfigurationError, match="from 0 to below 1"):
        LossyPath((1.0,))
