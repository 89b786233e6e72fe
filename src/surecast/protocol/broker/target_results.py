"""Results of a response target: deliveries, their response times, and the verdict so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from surecast.protocol.broker.period_monitor import FORGET

__all__ = ["BUCKETS", "KeptShare", "TargetResults", "bucket_end_s"]

BUCKETS: Final = 32
_FIRST_S: Final = 0.001
_CYCLES_MIN: Final = 5.0
_NORMAL_95: Final = 1.96

Verdict = Literal["met", "missed", "undecided"]


class KeptShare(NamedTuple):
    """A mean of what was delivered lately, with its 95 % interval; without bounds while little is known."""

    value: float
    low: float | None
    high: float | None


def bucket_end_s(number: int) -> float:
    """Returns the longest response time of a bucket of the histogram; each is twice as long as the one before.

    >>> [bucket_end_s(number) for number in (0, 1, 10)]
    [0.001, 0.002, 1.024]
    """
    return float(_FIRST_S * (1 << number))


@dataclass(slots=True)
class TargetResults:
    """Response times of one session since it has its target.

    Messages of one absence wait together, so that their times are no independent draws. What is independent is a
    *cycle*, from one connection to the next: the interval comes from the sums of cycles, of which the last count most.

    >>> results = TargetResults()
    >>> for cycle in range(20):
    ...     for n in range(4):
    ...         results.delivered(2.0 * n + cycle % 2, time_s=7.0, quantile=0.0)
    ...     results.end_cycle()
    >>> results.share.value, results.verdict(7.0, 0.0), results.verdict(3.0, 0.0)
    (3.50..., 'met', 'missed')
    """

    delivered_count: int = 0
    response_sum_s: float = 0.0
    histogram: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    cycle_count: float = 0.0
    cycle_sum: float = 0.0
    cycles: float = 0.0
    counts: float = 0.0
    sums: float = 0.0
    count_squares: float = 0.0
    products: float = 0.0
    sum_squares: float = 0.0

    def delivered(self, response_s: float, time_s: float, quantile: float) -> None:
        """Takes in the response time of a message; of a quantile what counts is whether it was in time."""
        self.delivered_count += 1
        self.response_sum_s += response_s
        number = min(BUCKETS - 1, max(0, int(response_s / _FIRST_S)).bit_length())
        if number and response_s <= bucket_end_s(number - 1):
            number -= 1
        self.histogram[number] += 1
        self.cycle_count += 1.0
        self.cycle_sum += (1.0 if response_s <= time_s else 0.0) if quantile else response_s

    def end_cycle(self) -> None:
        """The client has connected again: what comes from now on is another cycle."""
        if not self.cycle_count:
            return
        count, total = self.cycle_count, self.cycle_sum
        self.cycles = FORGET * self.cycles + 1.0
        self.counts = FORGET * self.counts + count
        self.sums = FORGET * self.sums + total
        self.count_squares = FORGET * self.count_squares + count * count
        self.products = FORGET * self.products + count * total
        self.sum_squares = FORGET * self.sum_squares + total * total
        self.cycle_count = self.cycle_sum = 0.0

    @property
    def share(self) -> KeptShare | None:
        """The mean response time lately, or the share in time; None while nothing was delivered in a whole cycle."""
        if not self.counts:
            return None
        value = self.sums / self.counts
        if self.cycles < _CYCLES_MIN:
            return KeptShare(value, None, None)
        spread = self.sum_squares - 2.0 * value * self.products + value * value * self.count_squares
        variance = max(0.0, spread) / (self.counts * self.counts) * self.cycles / (self.cycles - 1.0)
        half = _NORMAL_95 * float(variance**0.5)
        return KeptShare(value, value - half, value + half)

    def verdict(self, time_s: float, quantile: float) -> Verdict:
        """Returns whether the target is met, as far as the interval can tell."""
        share = self.share
        if share is None or share.low is None or share.high is None:
            return "undecided"
        if quantile:
            return "met" if share.low >= quantile else "missed" if share.high < quantile else "undecided"
        return "met" if share.high <= time_s else "missed" if share.low > time_s else "undecided"
