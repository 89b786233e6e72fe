"""The exponent of the power law of popularity, from how often each topic was chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from surecast.errors import AssumptionError
from surecast.pipeline.learn.goodness import SIGNIFICANCE

__all__ = ["PopularityFit", "fit_popularity", "zipf_exponent"]

Array = NDArray[np.float64]
EXPONENT_MAX = 10.0
TOPICS_MIN = 3
CHOICES_MIN = 20
_DRAWS = 300
_GRID_DRAWS = 40
_ROUNDS = 12
_SLOPE_DRAWS = 100
_STEP = 0.15


@dataclass(frozen=True, slots=True)
class PopularityFit:
    """The exponent of the power law over ranks; `p` is the probability of ranks so far from it if it held."""

    exponent: float
    low: float
    high: float
    topics: int
    choices: int
    p: float

    @property
    def verdict(self) -> str:
        return f"power law {'fits' if self.p >= SIGNIFICANCE else 'does not fit'} (p = {self.p:.2g})"


def zipf_exponent(counts: Array) -> float:
    """The exponent under which counts by rank, the largest first, are most likely.

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
    """The exponent from how often each topic was chosen, in any order; topics that nobody chose count too.

    A sample ranks topics by its own counts, so that luck alone makes it steeper than the law it comes from. So the
    exponent is the one whose samples look, on average, as steep as this one; the interval has all those whose samples
    are as steep as this one not too seldom.
    """
    counts = np.sort(counts)[::-1]
    size = round(float(counts.sum()))
    if len(counts) < TOPICS_MIN or size < CHOICES_MIN:
        raise AssumptionError(
            f"{len(counts)} topics chosen {size} times: an exponent needs {TOPICS_MIN} topics and {CHOICES_MIN} choices"
        )
    steep = zipf_exponent(counts)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    exponent = _solve(steep, len(counts), size, rng)
    drawn = _samples(exponent, len(counts), size, _DRAWS, rng)
    steeps = np.array([zipf_exponent(each) for each in drawn])
    tail = (1.0 - level) / 2.0
    # Of two flat laws the samples differ less than the laws do: how much less, is the slope.
    reach = (np.quantile(steeps, [tail, 1.0 - tail]) - float(steeps.mean())) / _slope(exponent, len(counts), size, rng)
    distances = np.array([_distance(each, s) for each, s in zip(drawn, steeps, strict=True)])
    p = float((1 + (distances >= _distance(counts, steep)).sum()) / (1 + _DRAWS))
    low, high = max(exponent - float(reach[1]), 0.0), min(exponent - float(reach[0]), EXPONENT_MAX)
    return PopularityFit(exponent, low, high, len(counts), size, p)


def _shares(exponent: float, topics: int) -> Array:
    weights = np.arange(1, topics + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def _samples(exponent: float, topics: int, size: int, draws: int, rng: np.random.Generator) -> Array:
    drawn = rng.multinomial(size, _shares(exponent, topics), draws)
    return np.sort(drawn, axis=1)[:, ::-1].astype(np.float64)


def _distance(counts: Array, exponent: float) -> float:
    expected = _shares(exponent, len(counts)) * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def _slope(exponent: float, topics: int, size: int, rng: np.random.Generator) -> float:
    """How much steeper samples are on average where the law is."""
    low, high = max(exponent - _STEP, 0.0), exponent + _STEP
    means = [
        np.mean([zipf_exponent(each) for each in _samples(end, topics, size, _SLOPE_DRAWS, rng)]) for end in (low, high)
    ]
    return float(np.clip((means[1] - means[0]) / (high - low), 0.2, 1.5))


def _solve(steep: float, topics: int, size: int, rng: np.random.Generator) -> float:
    """The exponent whose samples are on average as steep as `steep`: steps by what the last one was too steep, and the
    mean of the last steps, which differ by chance alone."""
    exponent = steep
    steps = []
    for _ in range(_ROUNDS):
        drawn = _samples(exponent, topics, size, _GRID_DRAWS, rng)
        off = float(np.mean([zipf_exponent(each) for each in drawn])) - steep
        exponent = float(np.clip(exponent - off, 0.0, EXPONENT_MAX))
        steps.append(exponent)
    return float(np.mean(steps[_ROUNDS // 2 :]))
