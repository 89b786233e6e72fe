"""Vectors without packets, for many nodes: the same answers as decoders give, and as elimination the slow way."""

from __future__ import annotations

import coding_oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from surecast.errors import ConfigurationError
from surecast.protocol.coding import VectorSpaces, draw_vector
from surecast.protocol.coding.generation import Generation


@settings(max_examples=60)
@given(bits=st.sampled_from([1, 4, 8]), packets=st.integers(1, 9), seed=st.integers(0, 9999))
def test_ranks_are_those_of_decoders_and_of_the_slow_path(bits: int, packets: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    spaces = VectorSpaces(3, packets, bits)
    decoders = [Generation(packets, 0, bits) for _ in range(3)]
    rows: list[list[list[int]]] = [[], [], []]
    for _ in range(2):
        count = 3 * packets
        vectors = generator.integers(0, 1 << bits, (count, packets), dtype=np.uint8)
        plain = generator.random(count) < 0.5
        vectors[plain] = spaces.plain(generator.integers(0, packets, plain.sum()))
        nodes = generator.integers(0, 3, count)
        for node, vector, innovative in zip(nodes, vectors, spaces.add(nodes, vectors), strict=True):
            before = coding_oracle.rank(rows[node], bits)
            rows[node].append(vector.tolist())
            assert innovative == (coding_oracle.rank(rows[node], bits) > before)
            if np.count_nonzero(vector) == 1 and vector.max() == 1:
                assert decoders[node].add_plain(int(vector.argmax()), b"") == innovative
            else:
                assert decoders[node].add_coded(vector, b"") == innovative
        assert spaces.ranks.tolist() == [decoder.rank for decoder in decoders]


@pytest.mark.parametrize("bits", [1, 4])
def test_recoded_vectors_are_uniform_on_the_space_of_a_node(bits: int) -> None:
    spaces = VectorSpaces(1, 4, bits)
    basis = np.array([[1, 1, 0, 1], [0, 1, 0, 0]], dtype=np.uint8)
    spaces.add(np.array([0, 0]), basis)
    count = 20_000
    drawn = spaces.recode(np.zeros(count, dtype=np.int64), np.arange(count, dtype=np.uint64) * np.uint64(977))
    order = 1 << bits
    members = {
        tuple(
            coding_oracle.multiply(a, int(x), bits) ^ coding_oracle.multiply(b, int(y), bits)
            for x, y in zip(*basis, strict=True)
        ): i
        for i, (a, b) in enumerate((a, b) for a in range(order) for b in range(order))
    }
    seen = np.bincount([members[tuple(vector)] for vector in drawn.tolist()], minlength=order**2)
    # The zero vector is never sent: what has the first column goes in its place.
    assert seen[0] == 0
    stand_in = members[1, 1, 0, 1]
    expected = np.full(order**2, count / order**2)
    expected[stand_in] *= 2
    assert chisquare(seen[1:], expected[1:]).pvalue > 0.01


def test_vectors_of_a_source_are_those_of_its_packets() -> None:
    spaces = VectorSpaces(1, 11, 4)
    drawn = spaces.coded(np.array([1, 2, 3], dtype=np.uint64))
    assert drawn.tolist() == [draw_vector(seed, 11, 4).tolist() for seed in (1, 2, 3)]


def test_a_cleared_space_is_as_new_and_an_empty_one_sends_nothing() -> None:
    spaces = VectorSpaces(2, 3, 8)
    nodes = np.array([0, 0, 0, 1])
    vectors = np.array([[1, 2, 3], [4, 5, 6], [0, 0, 9], [7, 7, 7]], dtype=np.uint8)
    first = spaces.add(nodes, vectors)
    spaces.clear()
    assert not spaces.recode(np.array([0]), np.array([1], dtype=np.uint64)).any()
    assert spaces.add(nodes, vectors).tolist() == first.tolist()
    assert spaces.ranks.tolist() == [3, 1]


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="0 nodes"):
        VectorSpaces(0, 3)
    with pytest.raises(ConfigurationError, match="from 0 to 1"):
        VectorSpaces(2, 3).add(np.array([2]), np.ones((1, 3), dtype=np.uint8))
    with pytest.raises(ConfigurationError, match="each must have 3 coefficients"):
        VectorSpaces(2, 3).add(np.array([1]), np.ones((1, 4), dtype=np.uint8))
    with pytest.raises(ConfigurationError, match="a coefficient is 16; elements of this field are below 16"):
        VectorSpaces(2, 1, 4).add(np.array([1]), np.array([[16]], dtype=np.uint8))
    with pytest.raises(ConfigurationError, match="as many"):
        VectorSpaces(2, 3).add(np.array([1]), np.ones((2, 3), dtype=np.uint8))
