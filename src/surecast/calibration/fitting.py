"""Estimates what a broker costs, from what it used for many loads.

Costs are never below 0 and each has an interval. What depends on how busy a broker is, its turns and wakings, follows
from the measured share of time in which it slept, not from delays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from surecast.profile import COSTS, BrokerLoad, Costs, Interval, quantities
from surecast.profile.broker_load import turn_quantities

__all__ = ["Observation", "fit_costs"]

Array = NDArray[np.float64]

_DRAWS: Final = 400
_RIDGE: Final = 1e-4
"""Keeps costs that the loads cannot tell apart from being all one and none of the other."""


@dataclass(frozen=True)
class Observation:
    """A load, the cores that the broker used for it, and the share of time in which it had something to do.

    On a busy machine the latter is more: a broker that waits for a processor does not sleep.
    """

    load: BrokerLoad
    cores: float
    busy: float


def fit_costs(observations: Sequence[Observation], idle: float, cores_max: float, seed: int) -> Costs:
    """Returns the costs that explain the loads best in relative terms, with intervals from a bootstrap over loads."""
    design, target = _rows(observations, idle, cores_max)
    estimate = _solve(design, target)
    draw = np.random.default_rng(seed)
    count = len(target)
    samples = np.array([_solve(design[pick], target[pick]) for pick in draw.integers(0, count, (_DRAWS, count))])
    low, high = np.quantile(samples, (0.025, 0.975), axis=0)
    return Costs(
        **{
            name: Interval(estimate=value, low=min(a, value), high=max(b, value))
            for name, value, a, b in zip(COSTS, estimate.tolist(), low.tolist(), high.tolist(), strict=True)
        }
    )


def _rows(observations: Sequence[Observation], idle: float, cores_max: float) -> tuple[Array, Array]:
    """Returns how often each cost occurs for a core in each load, and 1 for each: errors count relatively."""
    rows = []
    for each in observations:
        used = max(each.cores - idle, 1e-9)
        counts = {**quantities(each.load), **turn_quantities(each.load, min(each.busy / cores_max, 0.999))}
        rows.append([counts[name] / used for name in COSTS])
    return np.array(rows, dtype=np.float64), np.ones(len(rows))


def _solve(design: Array, target: Array) -> Array:
    """Returns the costs of least squares that are not negative; a column that never occurs costs nothing."""
    scale = np.linalg.norm(design, axis=0)
    used = scale > 0.0
    scaled = design[:, used] / scale[used]
    count = scaled.shape[1]
    damped = np.vstack([scaled, math.sqrt(_RIDGE) * np.eye(count)])
    found, _ = nnls(damped, np.concatenate([target, np.zeros(count)]))
    costs = np.zeros(design.shape[1])
    costs[used] = found / scale[used]
    return costs
