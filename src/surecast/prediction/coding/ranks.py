"""Ranks of random vectors over a finite field: how many packets decode an event, and how likely.

`coded delivery` section II: a packet counts only if it raises the rank, so that n packets are necessary and not
sufficient. All formulas here are exact for coefficients drawn uniformly.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError

__all__ = [
    "decode_probability",
    "field_size",
    "full_rank_probability",
    "packets_for",
    "packets_needed_mean",
    "rank_distribution",
    "systematic_decode_probability",
]

Array = NDArray[np.float64]

FIELD_BITS: Final = (1, 4, 8)
_EXTRA_MAX: Final = 2000
"""Beyond so many packets more than an event has, no target is left unmet that a float can tell from 1."""


def field_size(field_bits: int) -> int:
    """Returns the number of elements of the field with symbols of `field_bits` bits.

    >>> field_size(4)
    16
    """
    if field_bits not in FIELD_BITS:
        raise ConfigurationError(f"field_bits: {field_bits} is not supported; write 1, 4 or 8")
    return int(2**field_bits)


@lru_cache(maxsize=4096)
def rank_distribution(vectors: int, dimension: int, field_bits: int) -> Array:
    """Returns P[rank = j], j = 0 to `dimension`, of `vectors` uniform vectors in a space of that dimension.

    A further vector lies in a subspace of dimension j with probability q^(j - dimension). The array is shared: do not
    write to it.

    >>> [float(p) for p in rank_distribution(2, 2, 1)]
    [0.0625, 0.5625, 0.375]
    """
    q = float(field_size(field_bits))
    inside = q ** (np.arange(dimension + 1, dtype=np.float64) - dimension)
    ranks = np.zeros(dimension + 1)
    ranks[0] = 1.0
    for _ in range(vectors):
        moved = ranks * inside
        moved[1:] += (ranks * (1.0 - inside))[:-1]
        ranks = moved
    ranks.setflags(write=False)
    return ranks


def full_rank_probability(vectors: int, dimension: int, field_bits: int) -> float:
    """Returns the probability that `vectors` uniform vectors span a space: the product of 1 - q^-(vectors - i), i <
    dimension.

    >>> round(full_rank_probability(32, 32, 8), 4), round(full_rank_probability(34, 32, 1), 4)
    (0.9961, 0.7701)
    """
    if vectors < dimension:
        return 0.0
    q = float(field_size(field_bits))
    first = vectors - dimension + 1
    # Terms from q^-60 on change nothing that a float can hold.
    last = min(vectors, first + math.ceil(60 / math.log2(q)))
    return math.prod((1.0 - q**-i for i in range(first, last + 1)), start=1.0)


def decode_probability(received: int, packets: int, field_bits: int) -> float:
    """Returns the probability that the received coded packets decode an event of `packets` plain ones.

    >>> decode_probability(31, 32, 8)
    0.0
    """
    _check_packets(packets)
    return full_rank_probability(received, packets, field_bits)


def systematic_decode_probability(plain: int, coded: int, packets: int, field_bits: int) -> float:
    """Returns the same probability when some different plain packets arrived unchanged, besides coded ones.

    Coded packets less what the plain ones say are uniform in the space of what is missing.

    >>> systematic_decode_probability(32, 0, 32, 8), systematic_decode_probability(31, 1, 32, 1)
    (1.0, 0.5)
    """
    _check_packets(packets)
    if not 0 <= plain <= packets:
        raise ConfigurationError(f"plain: {plain} of an event's {packets} plain packets cannot be received")
    return full_rank_probability(coded, packets - plain, field_bits)


def packets_needed_mean(packets: int, field_bits: int) -> float:
    """Returns the mean number of coded packets received until they decode: n + the sum of 1 / (q^i - 1), i = 1 to n.

    >>> round(packets_needed_mean(32, 8), 4), round(packets_needed_mean(32, 1), 4)
    (32.0039, 33.6067)
    """
    _check_packets(packets)
    q = float(field_size(field_bits))
    terms = min(packets, math.ceil(60 / math.log2(q)))
    return packets + math.fsum(1.0 / (q**i - 1.0) for i in range(1, terms + 1))


def packets_for(target: float, packets: int, field_bits: int) -> int:
    """Returns the fewest coded packets that decode with at least a probability.

    >>> [packets_for(0.999, 32, bits) for bits in (1, 4, 8)]
    [42, 34, 33]
    """
    check_target(target)
    for extra in range(_EXTRA_MAX):
        if decode_probability(packets + extra, packets, field_bits) >= target:
            return packets + extra
    raise ConfigurationError(f"target: {target} cannot be told from 1; ask for less")


def check_target(target: float) -> None:
    if not 0.0 < target < 1.0:
        raise ConfigurationError(f"target: {target} must be a probability above 0 and below 1, such as 0.999")


def _check_packets(packets: int) -> None:
    if packets < 1:
        raise ConfigurationError(f"packets: {packets}; an event has at least one")
