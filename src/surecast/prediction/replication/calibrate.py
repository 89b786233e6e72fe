"""The constants of a group from measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from surecast.errors import ConfigurationError
from surecast.prediction.replication.performance import GroupPerformance, predict_closed, predict_open
from surecast.prediction.replication.times import InstanceTimes
from surecast.scenario.group import Group, GroupCosts

__all__ = ["Calibration", "Measurement", "fit_costs", "predict_measurement"]

Array = NDArray[np.float64]
_SMALLEST_S = 1e-8
"""Constants are fitted as logarithms, from this on."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of a benchmark: a group, its load, and what was measured; None where it was not.

    The load is either `publishers` with `window` publications in flight each, the next `think_s` after an
    acknowledgement, or `rate_per_s` at random. `think_s` holds what publishers and their connection take. `sync_s` is
    0 where nothing was synced; `alpha` are the instances that may be in flight. Processor time is of one publication,
    over all replicas (`cpu_s`) or at the leader alone (`leader_cpu_s`). `batch` are the publications in an instance,
    where they were counted: processor time is then that of such instances, else that of those which the model expects.
    """

    replicas: int
    publishers: int = 1
    window: int = 1
    think_s: float = 0.0
    rate_per_s: float | None = None
    sync_s: float = 0.0
    delay_s: float = 0.0
    alpha: int = 10
    variant: str = "multi"
    acknowledged_per_s: float | None = None
    p50_s: float | None = None
    cpu_s: float | None = None
    leader_cpu_s: float | None = None
    batch: float | None = None

    def group(self, costs: GroupCosts) -> Group:
        """Returns the group that was measured, with some costs."""
        return Group(self.replicas, self.variant, self.alpha, delay_s=self.delay_s, sync_s=self.sync_s, costs=costs)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted costs, and the ratio of prediction to measurement for each figure of each row."""

    costs: GroupCosts
    ratios: tuple[tuple[int, str, float], ...]

    @property
    def error(self) -> float:
        """The typical relative error: 0.1 stands for 10 per cent."""
        logs = [math.log(ratio) for _, _, ratio in self.ratios]
        return math.expm1(math.sqrt(sum(log**2 for log in logs) / len(logs)))


def predict_measurement(row: Measurement, costs: GroupCosts) -> GroupPerformance:
    """Returns the model's prediction for a row.

    >>> row = Measurement(3, publishers=50, window=16, sync_s=1e-3, think_s=1e-4)
    >>> predict_measurement(row, GroupCosts()).throughput_per_s > 100_000
    True
    """
    group = row.group(costs)
    if row.rate_per_s is not None:
        return predict_open(group, row.rate_per_s)
    return predict_closed(group, row.publishers, row.window, row.think_s)


def fit_costs(rows: Sequence[Measurement], start: GroupCosts | None = None) -> Calibration:
    """Returns the costs with which the model comes nearest to all measurements, in relative terms (least squares of
    logs).

    A constant that the rows say nothing of, such as what followers cost where no row has any, stays as in `start`.

    >>> true = GroupCosts(50e-6, 10e-6, 3e-6, 30e-6, 2e-6)
    >>> rows = [Measurement(n, rate_per_s=rate) for n in (1, 3, 5) for rate in (100.0, 5_000.0, 50_000.0)]
    >>> measured = []
    >>> for row in rows:
    ...     predicted = predict_measurement(row, true)
    ...     total = predicted.leader_cpu_s + (row.replicas - 1) * predicted.follower_cpu_s
    ...     measured.append(replace(row, cpu_s=total, leader_cpu_s=predicted.leader_cpu_s))
    >>> round(fit_costs(measured).costs.publication_s * 1e6, 3)
    3.0
    """
    names = tuple(GroupCosts.__slots__)
    first = start or GroupCosts()
    if not rows or not any(_measured(row) for row in rows):
        raise ConfigurationError("rows: nothing was measured; give acknowledged_per_s, p50_s, cpu_s or leader_cpu_s")
    for i, row in enumerate(rows):
        for name, value in _measured(row):
            if not 0 < value < math.inf:
                raise ConfigurationError(f"rows[{i}].{name}: {value} must be above 0 and finite")
        if row.batch is not None and not 0 < row.batch < math.inf:
            raise ConfigurationError(f"rows[{i}].batch: {row.batch} must be above 0 and finite")

    def costs_of(logs: Array) -> GroupCosts:
        return replace(first, **dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def residuals(logs: Array) -> Array:
        return np.array([math.log(ratio) for _, _, ratio in _ratios(rows, costs_of(logs))])

    begin = np.log(np.maximum([getattr(first, name) for name in names], _SMALLEST_S))
    # a little pull to the start, so that what the rows say nothing of stays there
    pull = 1e-4

    def pulled(logs: Array) -> Array:
        return np.append(residuals(logs), pull * (logs - begin))

    fit = least_squares(
        pulled,
        begin,
        bounds=(np.full(len(names), math.log(_SMALLEST_S) - 1e-9), np.full(len(names), math.log(1.0))),
        diff_step=np.full(len(names), 1e-4),
    )
    costs = costs_of(fit.x)
    return Calibration(costs, tuple(_ratios(rows, costs)))


def _measured(row: Measurement) -> list[tuple[str, float]]:
    names = ("acknowledged_per_s", "p50_s", "cpu_s", "leader_cpu_s")
    return [(name, value) for name in names if (value := getattr(row, name)) is not None]


def _ratios(rows: Sequence[Measurement], costs: GroupCosts) -> list[tuple[int, str, float]]:
    ratios = []
    for i, row in enumerate(rows):
        model = predict_measurement(row, costs)
        leader_s, follower_s = model.leader_cpu_s, model.follower_cpu_s
        if row.batch is not None:
            times, k = InstanceTimes(row.group(costs)), np.array([row.batch])
            instances_per_s = model.throughput_per_s / row.batch
            leader_s, follower_s = (
                float(cpu(k, instances_per_s)[0]) / row.batch for cpu in (times.leader_cpu, times.follower_cpu)
            )
        predicted = {
            "acknowledged_per_s": model.throughput_per_s,
            "p50_s": model.acknowledged_quantile_s(0.5) + (row.think_s if row.rate_per_s is not None else 0.0),
            "cpu_s": leader_s + (row.replicas - 1) * follower_s,
            "leader_cpu_s": leader_s,
        }
        ratios += [(i, name, predicted[name] / value) for name, value in _measured(row)]
    return ratios
