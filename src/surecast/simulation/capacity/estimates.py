"""Means with confidence intervals from the runs under one algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surecast.simulation.capacity.paths import worst_path
from surecast.simulation.capacity.routing_plan import RoutingPlan
from surecast.simulation.capacity.run_sums import BINS, RunResult, bin_ends
from surecast.simulation.experiment.confidence import half_width, ratio_estimate

__all__ = ["Estimate", "Estimates"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % half-width; NaN where there is none."""

    value: float
    half: float

    def within(self, relative: float) -> bool:
        """Returns whether the half-width is at most this share of the value; always true of 0, and of no value."""
        if math.isnan(self.value) or (self.value == 0.0 and not self.half > 0):
            return True
        return self.half <= relative * self.value


class Estimates:
    """The estimates of all runs under one algorithm. All arrays here have one row per run."""

    def __init__(self, plan: RoutingPlan, algorithm: str, results: list[RunResult]):
        self.plan, self.algorithm, self.results = plan, algorithm, results
        self._duration = np.array([[result.duration_s] for result in results])

    def of(self, name: str) -> Floats:
        """One column of all runs."""
        found: Floats = np.array([getattr(result, name) for result in self.results], dtype=np.float64)
        return found

    def per_second(self, counts: Floats) -> tuple[Floats, Floats]:
        """Values and half-widths of rates or of means over time, for each column."""
        return ratio_estimate(counts, np.broadcast_to(self._duration, counts.shape))

    def time_mean(self, counts: Floats) -> Estimate:
        """As `per_second`, for one column."""
        value, half = self.per_second(counts[:, None])
        return Estimate(float(value[0]), float(half[0]))

    def mean(self, sums: Floats, counts: Floats) -> Estimate:
        """A mean over messages of all runs."""
        value, half = ratio_estimate(sums[:, None], counts[:, None])
        return Estimate(float(value[0]), float(half[0]))

    @cached_property
    def offered(self) -> Floats:
        """The load offered to each queue: the work that came, over time."""
        return np.asarray(self.of("work_s").sum(axis=0) / self._duration.sum(), dtype=np.float64)

    @cached_property
    def waiting_s(self) -> Floats:
        """The mean waiting time at each queue; 0 where nothing came."""
        waited, served = self.of("waiting_s").sum(axis=0), self.of("served").sum(axis=0)
        mean: Floats = np.divide(waited, served, out=np.zeros_like(waited), where=served > 0)
        return mean

    def worst(self, *, control: bool) -> Estimate | None:
        """The worst-path delay; its interval is that of the sum of mean waiting times on the path that is worst.

        The means of the service times are known. The sum is made linear in the sums of each run (delta method).
        """
        path = worst_path(self.plan, self.algorithm, self.waiting_s, control=control)
        if path is None:
            return None
        queues = list(path.queues)
        waited, served = self.of("waiting_s")[:, queues], self.of("served")[:, queues]
        mean_served = np.maximum(served.mean(axis=0), 1.0)
        error = ((waited - self.waiting_s[queues] * served) / mean_served).sum(axis=1)
        return Estimate(path.delay_s, float(half_width(error[:, None])[0]))

    def histogram(self, first: int, stop: int) -> Floats:
        """Returns the number of delays of rows `first` to before `stop` in each bin, by run."""
        counts = np.zeros((len(self.results), BINS))
        for i, result in enumerate(self.results):
            low, high = np.searchsorted(result.rows, (first, stop))
            np.add.at(counts[i], result.bins[low:high], result.counts[low:high])
        return counts

    def quantile(self, counts: Floats, share: float) -> tuple[float, float, float]:
        """A quantile of delays, counted by run in bins, and the ends of its interval.

        The interval is that of the share of delays below the quantile, carried over to the delays.
        """
        total = counts.sum(axis=0)
        value = _quantile(total, share)
        at = int(np.searchsorted(np.cumsum(total), share * total.sum()))
        _, half = ratio_estimate(counts[:, : at + 1].sum(axis=1)[:, None], counts.sum(axis=1)[:, None])
        if math.isnan(half[0]):
            return value, math.nan, math.nan
        low, high = (_quantile(total, min(max(share + side * float(half[0]), 0.0), 1.0)) for side in (-1, 1))
        return value, min(low, value), max(high, value)

    def aggregates(self) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
        """Figures of the whole system, by which a simulation is judged long enough: loads, and delays."""
        serving = [q for q, queue in enumerate(self.plan.queues) if queue.notification or queue.control]
        loads = {
            "message rate": self.time_mean(self.of("sent").sum(axis=(1, 2))),
            "table entries": self.time_mean((self.of("local_s") + self.of("remote_s")).sum(axis=1)),
        }
        if serving:
            loads["utilisation"] = self.time_mean(self.of("busy_s")[:, serving].mean(axis=1))
        clients = len(self.plan.workload.clients)
        times, counts = self.of("delay_s")[:, :clients].sum(axis=1), self.of("delays")[:, :clients].sum(axis=1)
        delays = {"delay": self.mean(times, counts)}
        worst = self.worst(control=False)
        if worst is not None:
            delays["worst-path notification delay"] = worst
        return loads, delays


def _quantile(counts: Floats, share: float) -> float:
    """A quantile of delays counted in bins; inside a bin they are taken as evenly spread."""
    upto = np.cumsum(counts)
    wanted = share * upto[-1]
    at = int(np.searchsorted(upto, wanted))
    while not counts[at]:
        at += 1
    low, high = bin_ends(np.array([at]))[:, 0].tolist()
    return float(low + (high - low) * (wanted - (upto[at] - counts[at])) / counts[at])
