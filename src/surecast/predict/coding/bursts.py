"""Losses that come in bursts: the Gilbert-Elliott channel, where the packets that pass have an exact distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.predict.coding.chains import decodes, spread

__all__ = ["GilbertElliott", "bursty_delivery_probability", "bursty_received"]

Array = NDArray[np.float64]

_HOPS_MAX: Final = 10
"""Two states for each hop: beyond this the product chain has more than a thousand."""


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
    """P[j of `sent` packets in a row pass all links of a path], each packet forwarded as it is.

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
    found = np.zeros((sent + 1, len(steady)))
    found[0] = steady
    for packet in range(sent):
        came = found * passes
        found = found * (1.0 - passes)
        found[1:] += came[:-1]
        if packet < sent - 1:
            found = found @ steps
    return np.asarray(found.sum(axis=1), dtype=np.float64)


def bursty_delivery_probability(
    packets: int,
    coded: int,
    paths: Sequence[Sequence[GilbertElliott]],
    shares: Sequence[int],
    field_bits: int,
    recode: bool = False,
) -> float:
    """Probability that an event arrives over paths without a common link, each of bursty links.

    That coded packets come last matters to what is plain among those that came; it is left out, which shows only in
    the smallest field.

    >>> channel = GilbertElliott(0.02, 0.18)
    >>> round(bursty_delivery_probability(32, 8, [[channel]], [40], 8), 3)
    0.826
    """
    if sum(shares) != packets + coded or len(shares) != len(paths):
        raise ConfigurationError(f"shares {tuple(shares)}: they must divide {packets + coded} packets over the paths")
    if recode and any(len(path) > 1 for path in paths):
        raise AssumptionError(
            "bursty loss on a path whose brokers recode: when they make up for losses decides which bursts they "
            "meet, so there is no closed form; simulate it, or predict it without recoding"
        )
    received = spread([bursty_received(share, path) for share, path in zip(shares, paths, strict=True)])
    return float(received @ decodes(packets, coded, field_bits))
