"""Ranks of random vectors over a finite field: how many packets decode an event, and how likely.

`coded delivery` section II: a packet counts only if it raises the rank, so that n packets are necessary and not
sufficient. All formulas here are exact for coefficients drawn uniformly.

The second half follows an event's packets to the end of paths whose links lose some. Without recoding a packet arrives
if no link loses it. With recoding every broker sends as many packets as its share, made of what it has, so that ranks
form a Markov chain from hop to hop: losses are made up for hop by hop, as long as the rank itself does not fall.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.coding.bursty_links import GilbertElliott, binomial, bursty_received, passing, passing_up_to
from surecast.scenario.paths import apportion

__all__ = [
    "SENT_MAX",
    "LossyPath",
    "arriving_ranks",
    "bursty_delivery_probability",
    "decode_probability",
    "decodes",
    "end_ranks",
    "field_size",
    "full_rank_probability",
    "hop_matrix",
    "on_paths_probability",
    "packets_for",
    "packets_needed_mean",
    "rank_distribution",
    "redundancy_for",
    "spread",
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


REDUNDANCY_MAX: Final = 10.0
"""As in a scenario."""
SENT_MAX: Final = 512
"""Most packets of an event whose ranks are followed in a finite field: the work grows with the third power."""
_SURE_BITS: Final = 60
"""Failures below 2 to the minus this are none."""


@dataclass(frozen=True, slots=True)
class LossyPath:
    """A path: the loss on each of its links, and its part of the flow.

    `bursts` are the mean numbers of packets in a row that its links lose, None for links that lose each on its own;
    left out, all do.
    """

    losses: tuple[float, ...]
    weight: float = 1.0
    bursts: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        for loss in self.losses:
            if not 0.0 <= loss < 1.0:
                raise ConfigurationError(f"path: a link loses {loss} of its packets; write a share from 0 to below 1")
        if not self.weight > 0.0:
            raise ConfigurationError(f"path: its part of the flow is {self.weight}; it must be above 0")
        if self.bursts and len(self.bursts) != len(self.losses):
            raise ConfigurationError(f"path: bursts of {len(self.bursts)} links, and it has {len(self.losses)}")

    @property
    def links(self) -> tuple[tuple[float, float | None], ...]:
        """Loss of each link, and its bursts."""
        return tuple(zip(self.losses, self.bursts or (None,) * len(self.losses), strict=True))

    @property
    def is_bursty(self) -> bool:
        return any(loss > 0.0 and burst is not None for loss, burst in self.links)

    @property
    def success(self) -> float:
        """Probability that a packet passes all links."""
        return math.prod(1.0 - loss for loss in self.losses)


@lru_cache(maxsize=256)
def hop_matrix(sent: int, loss: float, field_bits: int, fresh: bool = False) -> Array:
    """Returns P[rank behind a link | rank before it] for a broker that always sends `sent` packets.

    Row R: it sends R independent packets on as they are and makes `sent` - R fresh combinations of them; with `fresh`
    all are combinations. Of the first A arrive, B of the others, and the rank is A plus that of B uniform vectors in a
    space of R - A dimensions. A broker that has nothing sends nothing.

    >>> bool(np.allclose(hop_matrix(1, 0.1, 8), [[1.0, 0.0], [0.1, 0.9]]))
    True
    """
    if sent > SENT_MAX:
        raise AssumptionError(f"a chain of ranks of {sent} packets is too long to follow; the limit is {SENT_MAX}")
    matrix = np.zeros((sent + 1, sent + 1))
    matrix[0, 0] = 1.0
    for vectors, ranks in enumerate(arriving_ranks(sent, sent, 1.0 - loss, field_bits)):
        if fresh and vectors == sent:
            matrix[1:] = ranks[1:]
        elif not fresh and vectors < sent:
            rank = sent - vectors
            for direct, weight in enumerate(binomial(rank, 1.0 - loss)):
                matrix[rank, direct : rank + 1] += weight * ranks[rank - direct, : rank - direct + 1]
    matrix.setflags(write=False)
    return matrix


def arriving_ranks(dimension: int, vectors: int, success: float, field_bits: int) -> Iterator[Array]:
    """Returns, for 0 to `vectors` uniform vectors, each of which arrives with a probability: P[rank = j] (columns) in
    spaces of 0 to `dimension` dimensions (rows).

    >>> [float(ranks[1, 1]) for ranks in arriving_ranks(1, 2, 0.5, 1)]
    [0.0, 0.25, 0.4375]
    """
    q = float(field_size(field_bits))
    dims = np.arange(dimension + 1, dtype=np.float64)
    # A vector fails to raise a rank of j in a space of d dimensions if it is lost or lies inside.
    stays = 1.0 - success + success * q ** np.minimum(dims[None, :] - dims[:, None], 0.0)
    ranks = np.zeros((dimension + 1, dimension + 1))
    ranks[:, 0] = 1.0
    yield ranks
    for _ in range(vectors):
        raised = ranks * (1.0 - stays)
        ranks = ranks * stays
        ranks[:, 1:] += raised[:, :-1]
        yield ranks


def end_ranks(share: int, path: LossyPath, field_bits: int, recode: bool = True) -> Array:
    """Returns P[j independent packets of its share reach the end of a path], j = 0 to `share`.

    Of more than `SENT_MAX` packets with recoding, and over bursty links, as in a field without limit: brokers send
    their share whatever they lost themselves, so that the least number which passes a link is what is left.

    >>> one_hop = end_ranks(10, LossyPath((0.1,)), 8)
    >>> bool(np.allclose(one_hop, binomial(10, 0.9)))
    True
    """
    if path.is_bursty and not recode:
        ranks = np.zeros(share + 1)
        ranks[share] = 1.0
        for loss, burst in path.links:
            ranks = ranks @ passing_up_to(share, loss, burst)
        return ranks
    if not recode or (len(path.losses) <= 1 and not path.is_bursty):
        return binomial(share, path.success)
    if share > SENT_MAX or path.is_bursty:
        return _least(share, path)
    ranks = binomial(share, 1.0 - path.losses[0])
    for loss in path.losses[1:]:
        ranks = ranks @ hop_matrix(share, loss, field_bits)
    return np.asarray(ranks, dtype=np.float64)


def spread(parts: Sequence[Array]) -> Array:
    """Returns the distribution of a sum of independent numbers."""
    total = np.ones(1)
    for part in parts:
        total = np.convolve(total, part)
    return total


@lru_cache(maxsize=1024)
def decodes(packets: int, coded: int, field_bits: int) -> Array:
    """Returns P[an event decodes | j independent packets of those sent, or combinations of them, have arrived].

    The j are any of the sent ones, so that the plain among them have a hypergeometric distribution: exact for packets
    that nobody recoded.

    >>> [round(float(p), 3) for p in decodes(2, 1, 1)]
    [0.0, 0.0, 0.667, 1.0]
    """
    sent = packets + coded
    probability = np.zeros(sent + 1)
    for excess in range(coded + 1):
        here = packets + excess
        of_coded = np.arange(excess, min(coded, here) + 1)
        logs = _log_choose(coded, of_coded) + _log_choose(packets, here - of_coded)
        weights = np.exp(logs - logs.max())
        # With b coded packets, b - excess dimensions are to be spanned: the product of 1 - q^-i, i = excess + 1 to b.
        chances = [full_rank_probability(int(b), int(b) - excess, field_bits) for b in of_coded]
        probability[here] = float(weights @ chances) / float(weights.sum())
        if excess * field_bits > _SURE_BITS:
            probability[here:] = 1.0
            break
    probability.setflags(write=False)
    return probability


def on_paths_probability(
    packets: int, coded: int, paths: Sequence[LossyPath], field_bits: int, recode: bool = True
) -> float:
    """Returns the probability that an event arrives over paths without a common link, its packets divided by flow.

    Exact without recoding. With it, that packets which came too many are of no more use than fresh ones is an
    approximation, which shows only in small fields.

    >>> paths = [LossyPath((0.1, 0.1))]
    >>> [round(on_paths_probability(32, 8, paths, 8, recode=recode), 3) for recode in (False, True)]
    [0.654, 0.969]
    """
    if not paths:
        raise AssumptionError("paths: there is none to the subscriber, so nothing arrives")
    shares = apportion(packets + coded, [path.weight for path in paths])
    parts = [end_ranks(share, path, field_bits, recode) for share, path in zip(shares, paths, strict=True)]
    return float(spread(parts) @ decodes(packets, coded, field_bits))


def redundancy_for(
    target: float, packets: int, paths: Sequence[LossyPath], field_bits: int, recode: bool = True
) -> int:
    """Returns the fewest coded packets with which an event arrives over some paths with at least a probability.

    >>> redundancy_for(0.999, 32, [LossyPath((0.1,))], 8), redundancy_for(0.999, 32, [LossyPath((0.1,))], 1)
    (11, 17)
    """
    check_target(target)
    most = math.ceil(REDUNDANCY_MAX * packets)

    def enough(coded: int) -> bool:
        return on_paths_probability(packets, coded, paths, field_bits, recode) >= target

    high = 1
    while high < most and not enough(high):
        high = min(2 * high, most)
    if not enough(high):
        raise AssumptionError(
            f"redundancy: even {most} coded packets for {packets} plain ones do not reach {target}; "
            "use more paths, shorter ones, or gossip"
        )
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _least(share: int, path: LossyPath) -> Array:
    """Returns the rank behind all hops in a field without limit: the least number that got through one of them."""
    above = np.ones(share + 1)
    for loss, burst in path.links:
        above *= np.cumsum(passing(share, loss, burst)[::-1])[::-1]
    return np.asarray(above - np.append(above[1:], 0.0), dtype=np.float64)


def _log_choose(count: int, chosen: NDArray[np.intp]) -> Array:
    from scipy.special import gammaln

    return np.asarray(gammaln(count + 1) - gammaln(chosen + 1) - gammaln(count - chosen + 1), dtype=np.float64)


def bursty_delivery_probability(
    packets: int,
    coded: int,
    paths: Sequence[Sequence[GilbertElliott]],
    shares: Sequence[int],
    field_bits: int,
    recode: bool = False,
) -> float:
    """Returns the probability that an event arrives over paths without a common link, each of bursty links.

    That coded packets come last matters to what is plain among those that came; it is left out, which shows only in
    the smallest field. With recoding brokers send their share whatever they lost, and the least number that passes a
    link is what is left, as in a field without limit.

    >>> channel = GilbertElliott(0.02, 0.18)
    >>> round(bursty_delivery_probability(32, 8, [[channel]], [40], 8), 3)
    0.826
    """
    if sum(shares) != packets + coded or len(shares) != len(paths):
        raise ConfigurationError(f"shares {tuple(shares)}: they must divide {packets + coded} packets over the paths")
    by_path = []
    for share, path in zip(shares, paths, strict=True):
        links = [[channel] for channel in path] if recode else [path]
        above = [np.cumsum(bursty_received(share, link)[::-1])[::-1] for link in links]
        least = np.prod(above, axis=0)
        by_path.append(np.asarray(least - np.append(least[1:], 0.0), dtype=np.float64))
    received = spread(by_path)
    return float(received @ decodes(packets, coded, field_bits))
