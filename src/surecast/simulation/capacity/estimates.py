"""Means with confidence intervals from the runs under one algorithm, and the worst path that follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surecast.simulation.capacity.routing_plan import RoutingPlan
from surecast.simulation.capacity.run_sums import BINS, RunResult, bin_ends
from surecast.simulation.experiment.confidence import half_width, ratio_estimate

__all__ = ["Estimate", "Estimates", "WorstPath", "worst_path"]

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
        values: Floats = np.array([getattr(result, name) for result in self.results], dtype=np.float64)
        return values

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
        bin_index = int(np.searchsorted(np.cumsum(total), share * total.sum()))
        _, half = ratio_estimate(counts[:, : bin_index + 1].sum(axis=1)[:, None], counts.sum(axis=1)[:, None])
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
    bin_index = int(np.searchsorted(upto, wanted))
    while not counts[bin_index]:
        bin_index += 1
    low, high = bin_ends(np.array([bin_index]))[:, 0].tolist()
    return float(low + (high - low) * (wanted - (upto[bin_index] - counts[bin_index])) / counts[bin_index])


@dataclass(frozen=True, slots=True)
class WorstPath:
    """The largest mean delay over all paths in use, and the queues on that path."""

    delay_s: float
    queues: tuple[int, ...]


@dataclass(frozen=True)
class _Search:
    """Delays of one class: at each broker, on each directed link, and which of these may be passed."""

    plan: RoutingPlan
    broker_s: Sequence[float]
    link_s: Sequence[float]
    passes: Sequence[bool]

    def longest_from(self, broker: int, came_from: int = -1) -> WorstPath:
        """The longest way on from a broker, itself included."""
        plan, best = self.plan, WorstPath(0.0, ())
        for link in plan.leaving(broker):
            if plan.head[link] == came_from or not self.passes[link]:
                continue
            onward = self.longest_from(plan.head[link], broker)
            delay_s = self.link_s[link] + onward.delay_s
            if delay_s > best.delay_s:
                queues = tuple(queue for queue, _ in plan.stages[link])
                best = WorstPath(delay_s, queues + onward.queues)
        return WorstPath(self.broker_s[broker] + best.delay_s, (broker, *best.queues))


def worst_path(plan: RoutingPlan, algorithm: str, waiting_s: Floats, *, control: bool) -> WorstPath | None:
    """The worst path of notifications or of subscriptions (capacity Eqs. 40-45), None where there are none of them.

    A path counts if it may be used at all, however rarely. All paths are tried.
    """
    workload = plan.workload
    starts = workload.by_broker(workload.publication_rate_per_s, plan.brokers) > 0
    wanted = workload.by_broker(workload.subscription_rate_per_s, plan.brokers) > 0
    worst: WorstPath | None = None
    seen = set()
    for each, begins, ends in zip(workload.classes, starts, wanted, strict=True):
        key = (each.service_factor, begins.tobytes(), ends.tobytes())
        if key in seen:
            continue
        seen.add(key)
        search = _search(plan, algorithm, waiting_s, each.service_factor, ends, control)
        for broker in np.flatnonzero(ends if control else begins).tolist():
            path = search.longest_from(broker)
            if worst is None or path.delay_s > worst.delay_s:
                worst = path
    return worst


def _search(
    plan: RoutingPlan, algorithm: str, waiting_s: Floats, factor: float, wanted: NDArray[np.bool_], control: bool
) -> _Search:
    # capacity Eqs. 30, 31, 36-39, with waiting times as measured and the means of the given service times
    there = [
        wait + factor * queue.mean_s(control=control)
        for wait, queue in zip(waiting_s.tolist(), plan.queues, strict=True)
    ]
    links = range(2 * plan.links)
    link_s = [plan.lead_s[k] + sum(there[queue] + after_s for queue, after_s in plan.stages[k]) for k in links]
    rising = [plan.head[k] == plan.parent[plan.tail[k]] for k in links]
    if control:
        passes = [algorithm != "flooding" and (rising[k] or algorithm.startswith("peer")) for k in links]
    else:
        up = algorithm.startswith("hierarchical")
        beyond = [bool(wanted[sorted(_beyond(plan, k))].any()) for k in links]
        passes = [algorithm == "flooding" or beyond[k] or (up and rising[k]) for k in links]
    return _Search(plan, there[: plan.brokers], link_s, passes)


def _beyond(plan: RoutingPlan, link: int) -> set[int]:
    """The brokers that a directed link leads to."""
    reached, ahead = {plan.tail[link]}, [plan.head[link]]
    while ahead:
        broker = ahead.pop()
        reached.add(broker)
        ahead += [plan.head[k] for k in plan.leaving(broker) if plan.head[k] not in reached]
    return reached - {plan.tail[link]}
