"""Delivery over paths whose losses come in bursts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surecast.errors import ConfigurationError
from surecast.prediction.coding.bursty_links import GilbertElliott, bursty_received
from surecast.prediction.coding.chains import decodes, spread

__all__ = ["GilbertElliott", "bursty_delivery_probability", "bursty_received"]


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
    passing = []
    for share, path in zip(shares, paths, strict=True):
        links = [[channel] for channel in path] if recode else [path]
        above = [np.cumsum(bursty_received(share, link)[::-1])[::-1] for link in links]
        least = np.prod(above, axis=0)
        passing.append(np.asarray(least - np.append(least[1:], 0.0), dtype=np.float64))
    received = spread(passing)
    return float(received @ decodes(packets, coded, field_bits))
