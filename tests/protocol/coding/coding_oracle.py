"""A deliberately dumb second implementation of the fields and of Gaussian elimination: plain Python, no tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

MODULUS = {4: (4, 1, 0), 8: (8, 4, 3, 2, 0)}
"""The exponents of the polynomials x^4 + x + 1 and x^8 + x^4 + x^3 + x^2 + 1."""


@cache
def multiply(left: int, right: int, bits: int) -> int:
    """Multiplies two polynomials term by term, then divides by the modulus, highest term first."""
    if bits == 1:
        return left & right
    terms = [0] * (2 * bits)
    for i in range(bits):
        for j in range(bits):
            terms[i + j] += (left >> i & 1) * (right >> j & 1)
    for high in range(2 * bits - 1, bits - 1, -1):
        if terms[high] % 2:
            for exponent in MODULUS[bits]:
                terms[high - bits + exponent] += 1
    return sum((terms[i] % 2) << i for i in range(bits))


@cache
def inverse(element: int, bits: int) -> int:
    return next(other for other in range(1 << bits) if multiply(element, other, bits) == 1)


def symbols(payload: bytes, bits: int) -> list[int]:
    """The symbols of a payload, from the lowest bits of each byte up."""
    return [byte >> shift & ((1 << bits) - 1) for byte in payload for shift in range(0, 8, bits)]


def payload_of(values: Sequence[int], bits: int) -> bytes:
    each = 8 // bits
    return bytes(
        sum(value << (bits * k) for k, value in enumerate(values[at : at + each])) for at in range(0, len(values), each)
    )


def combination(factors: Sequence[int], payloads: Sequence[bytes], bits: int) -> bytes:
    total = [0] * (len(payloads[0]) * 8 // bits)
    for factor, payload in zip(factors, payloads, strict=True):
        for k, value in enumerate(symbols(payload, bits)):
            total[k] ^= multiply(factor, value, bits)
    return payload_of(total, bits)


def reduced(rows: Sequence[Sequence[int]], columns: int, bits: int) -> list[list[int]]:
    """The reduced row echelon form of rows, pivots looked for in the first columns; its zero rows left out."""
    left = [list(row) for row in rows]
    done: list[list[int]] = []
    for column in range(columns):
        row = next((row for row in left if row[column]), None)
        if row is None:
            continue
        left.remove(row)
        scale = inverse(row[column], bits)
        row = [multiply(scale, value, bits) for value in row]
        for other in (*left, *done):
            factor = other[column]
            other[:] = [a ^ multiply(factor, b, bits) for a, b in zip(other, row, strict=True)]
        done.append(row)
    return done


def rank(rows: Sequence[Sequence[int]], bits: int) -> int:
    return len(reduced(rows, len(rows[0]), bits)) if rows else 0
