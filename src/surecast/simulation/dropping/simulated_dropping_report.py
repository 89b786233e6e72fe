"""The QoS report of simulated queues: shares, times and their intervals from the counts of all runs."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.report import ReportBuilder
from surecast.simulation.dropping.draws import Floats
from surecast.simulation.dropping.dropping_plan import DroppingPlan, DroppingSettings, Policy
from surecast.simulation.dropping.dropping_run import Bins, DroppingRunResult
from surecast.simulation.dropping.histogram import quantile
from surecast.simulation.dropping.queue_kernel import (
    AREA,
    BINS,
    CONNECTED,
    DELAY,
    DELIVERED,
    EXPIRED_INPUT,
    EXPIRED_OFF,
    EXPIRED_ON,
    INPUT_OVERFLOW,
    LATE,
    MET_OFF,
    MET_ON,
    NOT_MET,
    OVERFLOW,
    QUEUED,
    REJECTED,
    RESPONSE,
)
from surecast.simulation.experiment.confidence import interval_ends, ratio_estimate, relative_width

__all__ = ["add_policy", "relative_half_width"]


def relative_half_width(results: list[DroppingRunResult], policies: int) -> float:
    """The largest 95 % half-width, relative to its value, of success shares and mean response times."""
    widest = 0.0
    for p in range(policies):
        counts = np.array([result.counts[p] for result in results], dtype=np.float64).sum(axis=2)
        responses = np.array([result.sums[p, :, RESPONSE] for result in results])
        delivered = counts[:, :, DELIVERED]
        for estimate in (ratio_estimate(delivered, counts.sum(axis=2)), ratio_estimate(responses, delivered)):
            widest = max(widest, relative_width(*estimate))
    return widest


def add_policy(
    builder: ReportBuilder,
    plan: DroppingPlan,
    settings: DroppingSettings,
    policy: Policy,
    results: list[DroppingRunResult],
    index: int,
    quantiles: tuple[float, ...],
) -> None:
    """Adds all figures of one policy, number `index` of the results."""
    figures = _Figures(builder, plan, settings, policy, results, index)
    figures.shares()
    figures.times(quantiles)
    figures.loads()
    figures.parameters()
    figures.targets()
    figures.system()
    figures.brokers()


class _Figures:
    def __init__(
        self,
        builder: ReportBuilder,
        plan: DroppingPlan,
        settings: DroppingSettings,
        policy: Policy,
        results: list[DroppingRunResult],
        index: int,
    ):
        self.builder, self.plan, self.policy, self.results, self.index = builder, plan, policy, results, index
        self.by_state = np.array([result.counts[index] for result in results], dtype=np.float64)
        self.counts = self.by_state.sum(axis=2)
        self.sums = np.array([result.sums[index] for result in results])
        self.published = self.counts.sum(axis=2)
        self.delivered = self.counts[:, :, DELIVERED]
        self.durations = np.full(self.published.shape, settings.duration_s)
        self.exists: NDArray[np.bool_] = self.published.sum(axis=0) > 0
        brokers = plan.system.overlay.brokers
        self.queued = any(brokers[home].notification_service is not None for home in plan.feeds)
        names = tuple(plan.system.subscribers[i].name for i in plan.subscribers)
        self.add = partial(builder.add_many, "subscriber", names, how="simulated", variant=policy.name)

    def _ratio(self, metric: str, over: Floats, under: Floats, largest: float = math.inf) -> None:
        """A ratio with its interval, for subscribers that have it."""
        value, half = ratio_estimate(over, under)
        low, high = np.maximum(value - half, 0.0), np.minimum(value + half, largest)
        total = under.sum(axis=0)
        counted = None if under is self.durations else total.astype(np.int64)
        self.add(metric, value, low=low, high=high, samples=counted, where=self.exists & (total > 0))

    def shares(self) -> None:
        self._ratio("success_share", self.delivered, self.published, 1.0)
        late = self.sums[:, :, LATE].sum(axis=0)
        parts = {
            ("on_time", ""): self.delivered.sum(axis=0) - late,
            ("late", ""): late,
            ("queued", ""): self.counts[:, :, QUEUED].sum(axis=0),
        }
        reasons = self._reasons()
        for reason, (states, outcome) in reasons.items():
            parts["dropped", reason] = self.by_state[:, :, states, outcome].sum(axis=(0, 2))
        parts["dropped", ""] = sum((parts["dropped", reason] for reason in reasons), np.zeros_like(late))
        total = self.published.sum(axis=0)
        events = total.astype(np.int64)
        self.add("count_published", total, where=self.exists)
        for (metric, detail), number in parts.items():
            shares = number / np.maximum(total, 1)
            self.add(f"share_{metric}", shares, detail=detail, samples=events, where=self.exists)
            self.add(f"count_{metric}", number, detail=detail, where=self.exists)
        met_off = self.by_state[:, :, MET_OFF]
        arrived = met_off.sum(axis=2)
        joined = arrived - met_off[:, :, REJECTED] - met_off[:, :, OVERFLOW]
        self._ratio("join_probability", joined, arrived, 1.0)
        met_on = self.by_state[:, :, MET_ON]
        arrived = met_on.sum(axis=2)
        self._ratio("failed_connected_share", arrived - met_on[:, :, DELIVERED] - met_on[:, :, QUEUED], arrived, 1.0)

    def _reasons(self) -> dict[str, tuple[list[int], int]]:
        """Returns why this policy can drop an event of any subscriber: the states and the outcome counted as that."""
        mechanisms = self.policy.mechanisms
        tables = any(m.join_table is not None for m in mechanisms)
        everywhere = [MET_OFF, MET_ON, NOT_MET]
        shown = {
            "rejected while disconnected": (
                tables or any(m.join_probability < 1.0 for m in mechanisms),
                [MET_OFF],
                REJECTED,
            ),
            "rejected while connected": (tables, [MET_ON], REJECTED),
        }
        full, expires = any(m.buffer_size is not None for m in mechanisms), any(m.expires for m in mechanisms)
        shown["buffer full while disconnected"] = full, [MET_OFF], OVERFLOW
        shown["buffer full while connected"] = full, [MET_ON], OVERFLOW
        shown["expired while disconnected"] = expires, everywhere, EXPIRED_OFF
        shown["expired while connected"] = expires, everywhere, EXPIRED_ON
        shown["expired in input queue"] = expires and self.queued, everywhere, EXPIRED_INPUT
        bounded = any(m.input_buffer_size is not None for m in mechanisms)
        shown["input queue full"] = bounded, everywhere, INPUT_OVERFLOW
        return {reason: (states, outcome) for reason, (there, states, outcome) in shown.items() if there}

    def times(self, quantiles: tuple[float, ...]) -> None:
        self._ratio("response_mean_s", self.sums[:, :, RESPONSE], self.delivered)
        self._ratio("delay_mean_s", self.sums[:, :, DELAY], self.delivered)
        delivered = self.delivered.sum(axis=0).astype(np.int64)
        for metric in ("response_quantile_s", "delay_quantile_s"):
            runs = [r.responses[self.index] if metric[0] == "r" else r.delays[self.index] for r in self.results]
            values = np.array([_quantiles([run[s] for run in runs], quantiles) for s in range(len(delivered))])
            for q, share in enumerate(quantiles):
                value, low, high = values[:, q].T
                detail = f"p{100 * share:.10g}"
                self.add(metric, value, detail=detail, low=low, high=high, samples=delivered, where=delivered > 0)

    def loads(self) -> None:
        self._ratio("rate_in_per_s", self.published, self.durations)
        self._ratio("queue_length_mean", self.sums[:, :, AREA], self.durations)
        self._ratio("availability", self.sums[:, :, CONNECTED], self.durations, 1.0)
        self._ratio("throughput_per_s", self.delivered, self.durations)

    def parameters(self) -> None:
        """The parameters of the mechanisms, which are given and not estimated."""
        for metric, values in (
            ("buffer_size", [math.nan if m.buffer_size is None else m.buffer_size for m in self.policy.mechanisms]),
            ("event_lifetime_s", [m.lifetime_s if m.expires else math.nan for m in self.policy.mechanisms]),
        ):
            figures = np.array(values, dtype=np.float64)
            self.add(metric, figures, low=figures, high=figures, where=~np.isnan(figures))

    def targets(self) -> None:
        """Adds the share of targets that are met by the mean delay, for subscribers that come and go.

        Where the interval of a mean contains the target, its lower end is 0 and its upper end 1.
        """
        subscribers = [self.plan.system.subscribers[i] for i in self.plan.subscribers]
        target_s = np.array(
            [
                math.nan if s.response_target_s is None or s.connectivity is None else s.response_target_s
                for s in subscribers
            ]
        )
        mean, half = ratio_estimate(self.sums[:, :, DELAY], self.delivered)
        is_known = ~np.isnan(target_s) & ~np.isnan(mean)
        if not is_known.any():
            return
        half = np.where(np.isnan(half), math.inf, half)
        value, low, high = ((edge <= target_s).astype(np.float64) for edge in (mean, mean + half, mean - half))
        self.add("targets_met_share", value, low=low, high=high, where=is_known)
        share, least, most = (float(part[is_known].mean()) for part in (value, low, high))
        self.builder.add(
            "system", "", "targets_met_share", share, how="simulated", variant=self.policy.name, low=least, high=most
        )

    def system(self) -> None:
        """The mean success share of the subscribers, the mean times of all delivered events, and their number."""
        add = partial(self.builder.add, "system", "", how="simulated", variant=self.policy.name)
        there = np.where(self.published > 0, self.delivered / np.maximum(self.published, 1), 0.0)
        shares, existing = there.sum(axis=1, keepdims=True), (self.published > 0).sum(axis=1, keepdims=True)
        delivered = self.delivered.sum(axis=1, keepdims=True)
        response, delay = (self.sums[:, :, k].sum(axis=1, keepdims=True) for k in (RESPONSE, DELAY))
        for metric, over, under, largest in (
            ("success_share", shares, existing.astype(np.float64), 1.0),
            ("response_mean_s", response, delivered, math.inf),
            ("delay_mean_s", delay, delivered, math.inf),
            ("throughput_per_s", delivered, self.durations[:, :1], math.inf),
        ):
            value, half = (float(part[0]) for part in ratio_estimate(over, under))
            if not math.isnan(value):
                low, high = interval_ends(value, half, most=largest)
                add(metric, value, low=low, high=high)

    def brokers(self) -> None:
        """Adds the rate into each broker, and the figures of input queues that take time."""
        sums = np.array([result.brokers[self.index] for result in self.results])
        brokers = [self.plan.system.overlay.brokers[home] for home in self.policy.input_sizes]
        names = tuple(broker.name for broker in brokers)
        queued = np.array([broker.notification_service is not None for broker in brokers])
        processed, delay, area, busy = (sums[:, :, k] for k in range(4))
        durations = self.durations[:, :1]
        # what a full input queue turns away is not in the sums
        unbounded = np.array([size == 0 for size in self.policy.input_sizes.values()])
        for metric, over, under, there in (
            ("rate_in_per_s", processed, np.broadcast_to(durations, processed.shape), unbounded),
            ("delay_mean_s", delay, processed, queued),
            ("queue_length_mean", area, np.broadcast_to(durations, area.shape), queued),
            ("utilisation", busy, np.broadcast_to(durations, busy.shape), queued),
        ):
            value, half = ratio_estimate(over, under)
            self.builder.add_many(
                "broker",
                names,
                metric,
                value,
                how="simulated",
                variant=self.policy.name,
                low=np.maximum(value - half, 0.0),
                high=value + half,
                where=there & (under.sum(axis=0) > 0),
            )


def _quantiles(runs: list[Bins], shares: tuple[float, ...]) -> list[tuple[float, float, float]]:
    """Each quantile over all runs, with the 95 % interval that the quantiles of single runs give."""
    pooled = np.zeros(BINS, np.int64)
    single = []
    for where, counts in runs:
        pooled[where] += counts
        if len(where):
            histogram = np.zeros(BINS, np.int64)
            histogram[where] = counts
            single.append([quantile(histogram, share) for share in shares])
    result = []
    for q, share in enumerate(shares):
        value = quantile(pooled, share)
        half = math.nan
        if len(single) > 1:
            column = np.array(single)[:, q : q + 1]
            half = float(ratio_estimate(column, np.ones_like(column))[1][0])
        result.append((value, max(0.0, value - half) if half == half else math.nan, value + half))
    return result
