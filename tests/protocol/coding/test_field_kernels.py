"""The compiled kernels against the slow path, and the random draws against what they should be."""

from __future__ import annotations

import math

import coding_oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from surecast.protocol.coding.checksum import crc32c
from surecast.protocol.coding.field_kernels import back_substitute, combine, draw, insert
from surecast.protocol.coding.fields import field_of
from surecast.protocol.coding.spaces import VectorSpaces

BITS = st.sampled_from([1, 4, 8])


@settings(max_examples=60)
@given(bits=BITS, outputs=st.integers(1, 4), rows=st.integers(0, 21), words=st.integers(0, 3), seed=st.integers(0, 999))
def test_a_combination_of_payloads_equals_the_slow_path(
    bits: int, outputs: int, rows: int, words: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    factors = generator.integers(0, 1 << bits, (outputs, rows), dtype=np.uint8)
    payloads = generator.integers(0, 1 << 64, (rows, words), dtype=np.uint64)
    out = np.full((outputs, words), 77, dtype=np.uint64)
    combine(factors, payloads, bits, out)
    for o in range(outputs):
        expected = coding_oracle.combination(
            [0, *factors[o].tolist()], [bytes(8 * words), *(row.tobytes() for row in payloads)], bits
        )
        assert out[o].tobytes() == expected


@settings(max_examples=60)
@given(bits=BITS, rows=st.integers(1, 10), columns=st.integers(1, 10), seed=st.integers(0, 999), sparse=st.booleans())
def test_elimination_equals_the_slow_path(bits: int, rows: int, columns: int, seed: int, sparse: bool) -> None:
    generator = np.random.default_rng(seed)
    given_rows = generator.integers(0, 1 << bits, (rows, columns), dtype=np.uint8)
    if sparse:
        given_rows *= generator.random((rows, columns)) < 0.3
    matrix = np.zeros((rows, 16), dtype=np.uint8)
    words = matrix.view(np.uint64)
    pivots, known = np.full(columns, -1, dtype=np.int64), np.zeros(columns, dtype=np.bool_)
    used = 0
    for vector in given_rows:
        matrix[used] = 0
        matrix[used, :columns] = vector
        used += insert(matrix, words, pivots, known, used, 2, bits, field_of(bits).inverses) >= 0
        for column, row in enumerate(pivots):
            assert row < 0 or (matrix[row, column] == 1 and not matrix[row, :column].any())
    solved = np.zeros(columns, dtype=np.bool_)
    count = back_substitute(matrix, words, pivots, known, 2, bits, solved)
    expected = coding_oracle.reduced(given_rows.tolist(), columns, bits)
    assert [matrix[row, :columns].tolist() for row in pivots if row >= 0] == expected
    assert count == solved.sum() == sum(sum(value != 0 for value in row) == 1 for row in expected)


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_drawn_elements_are_uniform(bits: int) -> None:
    drawn = np.empty(1 << 16, dtype=np.uint8)
    draw(np.uint64(2016), bits, drawn)
    assert chisquare(np.bincount(drawn, minlength=1 << bits)).pvalue > 0.01
    pairs = (drawn[:-1].astype(np.int64) << bits | drawn[1:])[:: 2 if bits < 8 else 1]
    if bits < 8:
        assert chisquare(np.bincount(pairs, minlength=1 << 2 * bits)).pvalue > 0.01


def test_draws_are_those_of_splitmix64() -> None:
    """The first outputs of the published generator for the seed 1234567."""
    drawn = np.empty(40, dtype=np.uint8)
    draw(np.uint64(1234567), 8, drawn)
    assert drawn.view("<u8").tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def rank_chances(rows: int, columns: int, order: int) -> list[float]:
    """How likely a uniform random matrix has rank 0, 1, ...: matrices of that rank over all matrices.

    Full column rank has the chance prod (1 - q^-(rows - i)), i below the number of columns.
    """
    chances = []
    for rank in range(min(rows, columns) + 1):
        count = math.prod((order**rows - order**i) * (order**columns - order**i) for i in range(rank))
        count //= math.prod(order**rank - order**i for i in range(rank))
        chances.append(count / order ** (rows * columns))
    return chances


@pytest.mark.parametrize(
    ("bits", "rows", "columns"), [(1, 4, 4), (1, 8, 6), (1, 20, 20), (4, 3, 3), (4, 9, 8), (8, 2, 2), (8, 16, 16)]
)
def test_ranks_of_random_matrices_have_the_exact_distribution(bits: int, rows: int, columns: int) -> None:
    """The product formula for full rank, and its companions for every lower rank."""
    order, count = 1 << bits, 30_000
    expected = rank_chances(rows, columns, order)
    assert sum(expected) == pytest.approx(1)
    if rows >= columns:
        assert expected[-1] == pytest.approx(math.prod(1 - order ** -(rows - i) for i in range(columns)))
    drawn = np.empty(count * rows * columns, dtype=np.uint8)
    draw(np.uint64(7 * rows + bits), bits, drawn)
    spaces = VectorSpaces(count, columns, bits)
    spaces.add(np.repeat(np.arange(count), rows), drawn.reshape(-1, columns))
    seen = np.bincount(spaces.ranks, minlength=columns + 1)
    # Ranks that hardly ever occur are counted together with the next higher one.
    cells: list[tuple[float, float]] = []
    chance, found = 0.0, 0.0
    for each, number in zip(expected, seen, strict=True):
        chance, found = chance + each * count, found + float(number)
        if chance >= 10:
            cells.append((chance, found))
            chance, found = 0.0, 0.0
    assert len(cells) >= 2
    assert chisquare([cell[1] for cell in cells], [cell[0] for cell in cells]).pvalue > 0.01


def slow_crc32c(data: bytes) -> int:
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_the_checksum_equals_the_slow_path(data: bytes) -> None:
    assert crc32c(data) == slow_crc32c(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E), (b"123456789", 0xE3069283)],
)
def test_the_checksum_is_that_of_rfc_3720(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
