"""Ranks of random packets (coded delivery section II) against counting all matrices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from surecast.errors import ConfigurationError
from surecast.prediction.coding import (
    decode_probability,
    packets_for,
    packets_needed_mean,
    rank_distribution,
    systematic_decode_probability,
)


def binary_rank(rows: tuple[int, ...]) -> int:
    """Rank over the field of two elements of vectors written as bits."""
    basis: list[int] = []
    for row in rows:
        for held in basis:
            row = min(row, row ^ held)
        if row:
            basis.append(row)
    return len(basis)


def product_16(a: int, b: int) -> int:
    """Product in the field of 16 elements, with x^4 = x + 1."""
    found = 0
    for i in range(4):
        if b >> i & 1:
            found ^= a << i
    for i in (6, 5, 4):
        if found >> i & 1:
            found ^= 0b10011 << (i - 4)
    return found


@pytest.mark.parametrize(("vectors", "dimension"), [(0, 2), (1, 3), (2, 2), (3, 3), (5, 3), (2, 5), (4, 3)])
def test_ranks_in_the_smallest_field_are_those_of_all_matrices(vectors: int, dimension: int) -> None:
    ranks = [binary_rank(rows) for rows in itertools.product(range(2**dimension), repeat=vectors)]
    counted = np.bincount(ranks, minlength=dimension + 1) / len(ranks)
    assert np.allclose(rank_distribution(vectors, dimension, 1), counted, atol=1e-12)


def test_ranks_in_the_field_of_16_are_those_of_all_matrices_of_two_by_two() -> None:
    table = np.array([[product_16(a, b) for b in range(16)] for a in range(16)])
    products = table.ravel()
    regular = np.count_nonzero(products[:, None] != products[None, :]) / 16**4
    assert decode_probability(2, 2, 4) == pytest.approx(regular, abs=1e-12)
    assert rank_distribution(2, 2, 4)[0] == pytest.approx(16.0**-4)


@pytest.mark.parametrize("field_bits", [1, 4, 8])
def test_the_product_is_the_last_of_the_recursion(field_bits: int) -> None:
    for vectors in (5, 6, 7, 12):
        assert decode_probability(vectors, 6, field_bits) == pytest.approx(
            float(rank_distribution(vectors, 6, field_bits)[6]), abs=1e-12
        )


@pytest.mark.parametrize(("plain", "coded"), [(0, 3), (1, 2), (2, 1), (2, 3), (1, 1), (3, 0)])
def test_plain_packets_leave_less_to_span(plain: int, coded: int) -> None:
    n = 3
    units = tuple(1 << i for i in range(plain))
    whole = [binary_rank((*units, *rows)) == n for rows in itertools.product(range(2**n), repeat=coded)]
    assert systematic_decode_probability(plain, coded, n, 1) == pytest.approx(float(np.mean(whole)))


@pytest.mark.parametrize("field_bits", [1, 4, 8])
def test_the_mean_number_needed_is_the_sum_of_failures(field_bits: int) -> None:
    tail = math.fsum(1.0 - decode_probability(k, 5, field_bits) for k in range(200))
    assert packets_needed_mean(5, field_bits) == pytest.approx(tail, rel=1e-9)


def test_the_fewest_for_a_target_are_the_fewest() -> None:
    for bits in (1, 4, 8):
        k = packets_for(0.9999, 10, bits)
        assert decode_probability(k, 10, bits) >= 0.9999 > decode_probability(k - 1, 10, bits)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="field_bits: 3"):
        decode_probability(4, 4, 3)
    with pytest.raises(ConfigurationError, match="target: 1"):
        packets_for(1.0, 4, 8)
    with pytest.raises(ConfigurationError, match="plain: 5"):
        systematic_decode_probability(5, 1, 4, 8)
