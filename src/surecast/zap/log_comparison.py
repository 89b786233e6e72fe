"""Two logs beside each other: times between zaps, and how the channels share them.

A *gap* is the time between two channel changes of a box while it is on. *Ranks* number the channels of a log by its own
channel changes. The distances are those of the distributions: the largest difference of the two distribution functions
of gaps (Kolmogorov and Smirnov), and the total variation of the shares by rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.zap.event_table import CHANGE, POWER, EventTable

__all__ = ["LogComparison", "compare_logs", "gaps_s", "ks_distance", "rank_shares", "total_variation"]

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True)
class LogComparison:
    """The distance of two logs. `chance` are the distances that two samples of these sizes from one log would have with
    a probability of 5 %: the first by the usual formula, the second by drawing them."""

    gap_counts: tuple[int, int]
    gap_quantiles_s: tuple[tuple[float, ...], tuple[float, ...]]
    gap_distance: float
    gap_chance: float
    channel_counts: tuple[int, int]
    top_shares: tuple[tuple[float, ...], tuple[float, ...]]
    rank_distance: float
    rank_chance: float


def compare_logs(first: EventTable, second: EventTable, seed: int = 1) -> LogComparison:
    """Compares the gaps and ranks of two logs.

    The flatter half of a rank curve depends on how many events were seen, as rare channels need many to show at all. So
    the log with more channel changes is thinned to as many as the other has, with random numbers of the seed.
    """
    gaps = gaps_s(first), gaps_s(second)
    counts = channel_counts(first), channel_counts(second)
    for which, log_gaps in zip(("first", "second"), gaps, strict=True):
        if not len(log_gaps):
            raise AssumptionError(f"the {which} log has no two channel changes of a box; there are no gaps to compare")
    size = min(int(log_counts.sum()) for log_counts in counts)
    random = np.random.default_rng(np.random.SeedSequence(seed))
    shares = [_ranked(_thinned(log_counts, size, random)) for log_counts in counts]
    longer = counts[int(counts[1].sum() > counts[0].sum())]
    again = [_ranked(random.multinomial(size, longer / longer.sum())) for _ in range(200)]
    pairs = [total_variation(a, b) for a, b in zip(again[::2], again[1::2], strict=True)]
    return LogComparison(
        (len(gaps[0]), len(gaps[1])),
        (_quantiles(gaps[0]), _quantiles(gaps[1])),
        ks_distance(*gaps),
        float(1.358 * np.sqrt(1 / len(gaps[0]) + 1 / len(gaps[1]))),
        (int((counts[0] > 0).sum()), int((counts[1] > 0).sum())),
        (tuple(shares[0][:10].tolist()), tuple(shares[1][:10].tolist())),
        total_variation(*shares),
        float(np.quantile(pairs, 0.95)),
    )


def gaps_s(table: EventTable) -> NDArray[np.int64]:
    """Returns the seconds between one channel change of a box and its next, while the box is on.

    A change from a channel to itself only says where a box is, and counts with the power events as a beginning.

    >>> from surecast.zap.events import parse_line
    >>> fields = ["20:00:00,10.0.0.1,B,A", "20:00:09,10.0.0.1,C,B", "20:00:30,10.0.0.1,D,C"]
    >>> lines = [f"2024-01-01,{rest}" for rest in fields]
    >>> gaps_s(EventTable.of(map(parse_line, lines))).tolist()
    [9, 21]
    """
    events, zap = boxes_in_order(table)
    both = zap[1:] & zap[:-1] & (events.address[1:] == events.address[:-1])
    return np.asarray(np.diff(events.time_s)[both], dtype=np.int64)


def boxes_in_order(table: EventTable) -> tuple[EventTable, NDArray[np.bool_]]:
    """Returns channel changes and power events, box after box in order of time, and which of them are changes from
    another channel."""
    events = table[(table.kind == CHANGE) | (table.kind == POWER)]
    events = events[np.lexsort((np.arange(len(events)), events.time_s, events.address))]
    return events, (events.kind == CHANGE) & (events.value != events.previous)


def channel_counts(table: EventTable) -> NDArray[np.int64]:
    """Returns the number of channel changes to each channel of the table, from another."""
    zap = (table.kind == CHANGE) & (table.value != table.previous)
    return np.asarray(np.bincount(table.value[zap], minlength=len(table.channels)), dtype=np.int64)


def rank_shares(table: EventTable) -> NDArray[np.float64]:
    """Shares of the channel changes that go to the most chosen channel, the next, and so on.

    >>> from surecast.zap.events import parse_line
    >>> fields = ["20:00:00,10.0.0.1,B,A", "20:00:09,10.0.0.1,C,B", "20:00:30,10.0.0.1,B,C"]
    >>> lines = [f"2024-01-01,{rest}" for rest in fields]
    >>> rank_shares(EventTable.of(map(parse_line, lines))).round(3).tolist()
    [0.667, 0.333]
    """
    return _ranked(channel_counts(table))


def ks_distance(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Returns the largest difference of two empirical distribution functions.

    >>> ks_distance(np.array([1, 2, 3, 4]), np.array([3, 4, 5, 6]))
    0.5
    """
    first, second = np.sort(first), np.sort(second)
    points = np.union1d(first, second)
    below = [np.searchsorted(sample, points, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(below[0] - below[1]).max())


def total_variation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Returns half of the summed differences of two lists of shares; the shorter one is padded with zeros.

    >>> total_variation(np.array([0.75, 0.25]), np.array([0.5, 0.25, 0.25]))
    0.25
    """
    length = max(len(first), len(second))
    padded = [np.pad(shares, (0, length - len(shares))) for shares in (first, second)]
    return float(np.abs(padded[0] - padded[1]).sum() / 2.0)


def _ranked(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    falling = np.sort(counts[counts > 0])[::-1]
    return np.asarray(falling / max(1, falling.sum()), dtype=np.float64)


def _thinned(counts: NDArray[np.int64], size: int, random: np.random.Generator) -> NDArray[np.int64]:
    if int(counts.sum()) == size:
        return counts
    return np.asarray(random.multivariate_hypergeometric(counts, size, method="marginals"), dtype=np.int64)


def _quantiles(gaps: NDArray[np.int64]) -> tuple[float, ...]:
    return tuple(np.quantile(gaps, QUANTILES).tolist())
