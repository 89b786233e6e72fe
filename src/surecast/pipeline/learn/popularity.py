"""The exponent of the power law of popularity, from how often each topic was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from surecast.errors import AssumptionError
from surecast.pipeline.learn.distribution_choice import SIGNIFICANCE

__all__ = ["PopularityFit", "fit_popularity", "zipf_exponent"]

Array = NDArray[np.float64]
EXPONENT_MAX = 10.0
TOPICS_MIN = 3
CHOICES_MIN = 20
_DRAWS = 800
_TEST_DRAWS = 400
_ROUNDING = 1e-9
_HALVINGS = 14


@dataclass(frozen=True, slots=True)
class PopularityFit:
    """The exponent of the power law over ranks; `p` is the probability of counts so far from it, or so near to it, if
    they were drawn from it. Counts that are nearer than chance allows (`is_regular`) were not drawn at random."""

    exponent: float
    low: float
    high: float
    topics: int
    choices: int
    p: float
    is_regular: bool = False

    @property
    def verdict(self) -> str:
        law = "power law" if self.low > 0.0 else "even popularity"
        if self.p >= SIGNIFICANCE:
            return f"{law} fits (p = {self.p:.2g})"
        if self.is_regular:
            return f"{law} does not fit: counts are more regular than chance (p = {self.p:.2g})"
        return f"{law} does not fit (p = {self.p:.2g})"


def zipf_exponent(counts: Array) -> float:
    """Returns the exponent under which counts by rank, the largest first, are most likely.

    >>> round(zipf_exponent(1000.0 / np.arange(1, 6)), 6)
    1.0
    """
    logs = np.log(np.arange(1, len(counts) + 1))
    wanted = float(counts @ logs) / float(counts.sum())

    def excess(exponent: float) -> float:
        weights = np.exp(-exponent * logs)
        return float(weights @ logs) / float(weights.sum()) - wanted

    if excess(0.0) <= 0.0:
        return 0.0
    return EXPONENT_MAX if excess(EXPONENT_MAX) >= 0.0 else float(brentq(excess, 0.0, EXPONENT_MAX, xtol=1e-10))


def fit_popularity(counts: Array, level: float = 0.95, seed: int = 1) -> PopularityFit:
    """Returns the exponent from how often each topic was chosen, in any order; topics that nobody chose count too.

    A sample ranks topics by its own counts, so that luck alone makes it steeper than the law it comes from. So the
    exponent is the one of whose samples half are steeper than this one; the interval has all those whose samples are
    as steep, or as flat, not too seldom.
    """
    counts = np.sort(counts)[::-1]
    size = round(float(counts.sum()))
    if len(counts) < TOPICS_MIN or size < CHOICES_MIN:
        raise AssumptionError(
            f"{len(counts)} topics chosen {size} times: an exponent needs {TOPICS_MIN} topics and {CHOICES_MIN} choices"
        )
    logs = np.log(np.arange(1, len(counts) + 1))
    flatness = float(counts @ logs)

    def steeper(exponent: float) -> float:
        # The same seed for every exponent, so that the share rises with it and a search can halve its way.
        return float((_samples(exponent, len(counts), size, seed) @ logs <= flatness).mean())

    tail = (1.0 - level) / 2.0
    exponent, low, high = (_where(steeper, share) for share in (0.5, tail, 1.0 - tail))
    drawn = _samples(exponent, len(counts), size, seed + 1)[:_TEST_DRAWS]
    distances, distance = np.array([_distance(each) for each in drawn]), _distance(counts)
    p_far, p_near = (
        float((1 + beyond.sum()) / (1 + len(distances)))
        for beyond in (distances >= distance - _ROUNDING, distances <= distance + _ROUNDING)
    )
    p = min(1.0, 2.0 * min(p_far, p_near))
    return PopularityFit(exponent, low, high, len(counts), size, p, is_regular=p_near < p_far)


def _where(steeper: Callable[[float], float], share: float) -> float:
    """Returns the exponent at which this share of samples is as steep."""
    low, high = 0.0, EXPONENT_MAX
    if steeper(low) >= share:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if steeper(middle) >= share else (middle, high)
    return (low + high) / 2.0


def _shares(exponent: float, topics: int) -> Array:
    weights = np.arange(1, topics + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def _samples(exponent: float, topics: int, size: int, seed: int) -> Array:
    """Counts by rank of samples from the law, the largest first."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    drawn = rng.multinomial(size, _shares(exponent, topics), _DRAWS)
    return np.sort(drawn, axis=1)[:, ::-1].astype(np.float64)


def _distance(counts: Array) -> float:
    """Returns the distance of counts by rank from the power law that is nearest to them."""
    expected = _shares(zipf_exponent(counts), len(counts)) * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())
