"""The distribution of the packets that pass a link: independent losses, and losses in bursts (the Gilbert-Elliott
channel), for which it is exact too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError

__all__ = ["GilbertElliott", "binomial", "bursty_received", "passing", "passing_up_to"]

Array = NDArray[np.float64]

_HOPS_MAX: Final = 10
"""Two states for each hop: beyond this the product chain has more than a thousand."""


@lru_cache(maxsize=4096)
def binomial(count: int, probability: float) -> Array:
    """Returns P[j of `count`], j = 0 to `count`; the array is shared and read-only.

    >>> [float(p) for p in binomial(2, 0.5)]
    [0.25, 0.5, 0.25]
    """
    if probability <= 0.0 or probability >= 1.0:
        probability_of = np.zeros(count + 1)
        probability_of[count if probability >= 1.0 else 0] = 1.0
    else:
        from scipy.special import gammaln

        j = np.arange(count + 1)
        logs = gammaln(count + 1) - gammaln(j + 1) - gammaln(count - j + 1)
        probability_of = np.exp(logs + j * math.log(probability) + (count - j) * math.log1p(-probability))
        probability_of /= probability_of.sum()
    probability_of.setflags(write=False)
    return probability_of


@dataclass(frozen=True, slots=True)
class GilbertElliott:
    """A link that is good or bad, and changes between two packets with these probabilities.

    >>> channel = GilbertElliott(good_to_bad=0.02, bad_to_good=0.18, loss_bad=1.0)
    >>> round(channel.loss, 3), round(channel.burst_mean, 2)
    (0.1, 5.56)
    """

    good_to_bad: float
    bad_to_good: float
    loss_good: float = 0.0
    loss_bad: float = 1.0

    @classmethod
    def of_loss(cls, loss: float, burst_mean: float | None) -> GilbertElliott:
        """Returns the link of a scenario: it loses everything while it is bad, for `burst_mean` packets in a row on
        average. With None each packet is lost independently, so that the next state does not depend on this one.

        >>> GilbertElliott.of_loss(0.1, 5.0).bad_to_good
        0.2
        >>> GilbertElliott.of_loss(0.1, None).good_to_bad
        0.1
        """
        if burst_mean is None:
            return cls(loss, 1.0 - loss)
        return cls(loss / (1.0 - loss) / burst_mean, 1.0 / burst_mean)

    def __post_init__(self) -> None:
        for name in ("good_to_bad", "bad_to_good", "loss_good", "loss_bad"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigurationError(f"bursty loss {name}: {getattr(self, name)} must be between 0 and 1")
        if self.good_to_bad + self.bad_to_good == 0.0:
            raise ConfigurationError("bursty loss: a link that never changes has no mean loss; give it a plain loss")

    @property
    def bad_share(self) -> float:
        """Share of packets that meet the link bad."""
        return self.good_to_bad / (self.good_to_bad + self.bad_to_good)

    @property
    def loss(self) -> float:
        """Share of packets that are lost."""
        return self.loss_good + (self.loss_bad - self.loss_good) * self.bad_share

    @property
    def burst_mean(self) -> float:
        """Mean number of packets in a row that meet the link bad."""
        return 1.0 / self.bad_to_good if self.bad_to_good else float("inf")

    @property
    def steps(self) -> Array:
        """Probabilities of going from good or bad (rows) to good or bad."""
        return np.array([[1 - self.good_to_bad, self.good_to_bad], [self.bad_to_good, 1 - self.bad_to_good]])


def bursty_received(sent: int, channels: Sequence[GilbertElliott]) -> Array:
    """Returns P[j of `sent` packets in a row pass all links of a path], each packet forwarded as it is.

    Every link moves on by one step for each packet of the sender, whether that came so far or not, and is in its
    steady state at the first: exact for packets sent at regular times.

    >>> received = bursty_received(40, [GilbertElliott(0.02, 0.18)])
    >>> round(float(received @ np.arange(41)), 6)
    36.0
    """
    if not channels or len(channels) > _HOPS_MAX:
        raise AssumptionError(
            f"bursty loss: a path of {len(channels)} links; exact for 1 to {_HOPS_MAX}; simulate longer ones"
        )
    steps: Array = np.ones((1, 1))
    steady: Array = np.ones(1)
    passes: Array = np.ones(1)
    for channel in channels:
        steps = np.kron(steps, channel.steps).astype(np.float64)
        steady = np.kron(steady, [1.0 - channel.bad_share, channel.bad_share]).astype(np.float64)
        passes = np.kron(passes, [1.0 - channel.loss_good, 1.0 - channel.loss_bad]).astype(np.float64)
    by_state = np.zeros((sent + 1, len(steady)))
    by_state[0] = steady
    for packet in range(sent):
        passed = by_state * passes
        by_state = by_state * (1.0 - passes)
        by_state[1:] += passed[:-1]
        if packet < sent - 1:
            by_state = by_state @ steps
    return np.asarray(by_state.sum(axis=1), dtype=np.float64)


def passing(sent: int, loss: float, burst_mean: float | None = None) -> Array:
    """Returns P[j of `sent` packets pass a link], j = 0 to `sent`; the array is shared and read-only.

    A link with bursts moves on by one step for each packet on it, and is in its steady state at the first.

    >>> [round(float(p), 3) for p in passing(2, 0.1)], [round(float(p), 3) for p in passing(2, 0.1, 5.0)]
    ([0.01, 0.18, 0.81], [0.08, 0.04, 0.88])
    """
    if burst_mean is None or loss == 0.0:
        return binomial(sent, 1.0 - loss)
    distribution: Array = passing_up_to(sent, loss, burst_mean)[sent]
    return distribution


@lru_cache(maxsize=256)
def passing_up_to(sent: int, loss: float, burst_mean: float | None) -> Array:
    """Returns P[j pass | k are sent] for k (rows) and j (columns) from 0 to `sent`; shared and read-only."""
    matrix = np.zeros((sent + 1, sent + 1))
    if burst_mean is None or loss == 0.0:
        for k in range(sent + 1):
            matrix[k, : k + 1] = binomial(k, 1.0 - loss)
    else:
        channel = GilbertElliott.of_loss(loss, burst_mean)
        steps = channel.steps
        by_state = np.zeros((sent + 1, 2))  # by packets that have passed, and the state of the link for the next one
        by_state[0] = 1.0 - loss, loss
        matrix[0, 0] = 1.0
        for k in range(1, sent + 1):
            by_state[1:, 0] = by_state[:-1, 0].copy()
            by_state[0, 0] = 0.0
            matrix[k] = by_state.sum(axis=1)
            by_state = by_state @ steps
    matrix.setflags(write=False)
    return matrix
