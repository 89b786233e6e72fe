"""The QoS report of simulated routing, with the keys of the capacity prediction, so that both can be compared."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surecast.report import ReportBuilder
from surecast.simulation.capacity.estimates import Estimate, Estimates
from surecast.simulation.experiment.confidence import ratio_estimate

__all__ = ["QUANTILES", "add_algorithm"]

Floats = NDArray[np.float64]

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""The quantiles of delays that are reported, by the detail of their figures."""

_KINDS = ("notification", "control")
_NAMED_MAX = 5
_ROUNDING = 1e-12


def add_algorithm(builder: ReportBuilder, estimates: Estimates) -> None:
    """Adds all figures of one algorithm. Where a queue is saturated there are no delays, and a warning names it."""
    adder = _Adder(builder, estimates)
    saturated = np.flatnonzero(estimates.offered >= 1.0).tolist()
    adder.brokers(delays=not saturated)
    adder.overlay_links(delays=not saturated)
    adder.physical(delays=not saturated)
    adder.message_rates()
    if saturated:
        saturated.sort(key=lambda queue: -estimates.offered[queue])
        queues = estimates.plan.queues
        named = [f"{queues[q].scope.replace('_', ' ')} {queues[q].name}" for q in saturated]
        named = [f"{name} (offered load {estimates.offered[q]:.4g})" for name, q in zip(named, saturated, strict=True)]
        more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
        builder.warn(
            f"{estimates.algorithm}: overloaded, so there are no delays: {', '.join(named[:_NAMED_MAX])}{more}"
        )
    else:
        adder.deliveries()
        adder.system_delays()
    adder.targets(stable=not saturated)


class _Adder:
    def __init__(self, builder: ReportBuilder, estimates: Estimates):
        self.builder, self.estimates, self.plan = builder, estimates, estimates.plan

    def many(
        self,
        scope: str,
        names: tuple[str, ...],
        metric: str,
        estimate: tuple[Floats, Floats],
        *,
        detail: str | list[str] = "",
        samples: Floats | None = None,
    ) -> None:
        """One figure per name, with its interval; those without a value are left out."""
        value, half = estimate
        there = np.isfinite(value)
        value = np.where(there, np.maximum(value, 0.0), 0.0)
        half = np.maximum(half, _ROUNDING * value)  # a sum of equal numbers is no exact multiple of them
        self.builder.add_many(
            scope,
            names,
            metric,
            value,
            how="simulated",
            detail=detail,
            variant=self.estimates.algorithm,
            low=np.maximum(value - half, 0.0),
            high=value + half,
            samples=None if samples is None else samples.astype(np.int64),
            where=there,
        )

    def one(self, metric: str, estimate: Estimate, *, detail: str = "", samples: float | None = None) -> None:
        """A figure of the whole system."""
        value, half = np.array([estimate.value]), np.array([estimate.half])
        number = None if samples is None else np.array([samples])
        self.many("system", ("",), metric, (value, half), detail=detail, samples=number)

    def brokers(self, *, delays: bool) -> None:
        estimates, plan = self.estimates, self.plan
        local, remote = estimates.of("local_s"), estimates.of("remote_s")
        for detail, areas in (("", local + remote), ("local", local), ("remote", remote)):
            self.many("broker", plan.names, "table_entries", estimates.per_second(areas), detail=detail)
        received = estimates.of("received")
        for detail, counts in (("", received.sum(axis=1)), *((kind, received[:, i]) for i, kind in enumerate(_KINDS))):
            rate = estimates.per_second(counts)
            self.many("broker", plan.names, "rate_in_per_s", rate, detail=detail, samples=counts.sum(axis=0))
        serving = [q for q in range(plan.brokers) if plan.queues[q].notification or plan.queues[q].control]
        self.queues("broker", serving, "", delays=delays)

    def queues(self, scope: str, chosen: list[int], detail: str | list[str], *, delays: bool) -> None:
        """Utilisation, waiting times and times to pass of some queues."""
        if not chosen:
            return
        estimates = self.estimates
        names = tuple(self.plan.queues[q].name for q in chosen)
        served = estimates.of("served")[:, chosen]
        busy = estimates.per_second(estimates.of("busy_s")[:, chosen])
        self.many(scope, names, "utilisation", busy, detail=detail, samples=served.sum(axis=0))
        if not delays:
            return
        waited, worked = estimates.of("waiting_s")[:, chosen], estimates.of("work_s")[:, chosen]
        number = served.sum(axis=0)
        self.many(scope, names, "waiting_mean_s", ratio_estimate(waited, served), detail=detail, samples=number)
        if detail == "":
            self.many(scope, names, "delay_mean_s", ratio_estimate(waited + worked, served), samples=number)

    def overlay_links(self, *, delays: bool) -> None:
        estimates, links = self.estimates, self.plan.links
        names = tuple(link.name for link in self.plan.system.overlay.links)
        sent = estimates.of("sent").sum(axis=1)
        forward, backward = sent[:, :links], sent[:, links:]
        for detail, counts in (("", forward + backward), ("forward", forward), ("backward", backward)):
            rate = estimates.per_second(counts)
            self.many("overlay_link", names, "traffic_per_s", rate, detail=detail, samples=counts.sum(axis=0))
        if delays:
            times, counts = (a[:, :links] + a[:, links:] for a in (estimates.of("link_s"), estimates.of("arrived")))
            mean = ratio_estimate(times, counts)
            self.many("overlay_link", names, "delay_mean_s", mean, samples=counts.sum(axis=0))

    def physical(self, *, delays: bool) -> None:
        """Routers and physical links that carry traffic; those without a service time have no utilisation."""
        estimates, plan, network = self.estimates, self.plan, self.plan.system.network
        if network is None:
            return
        sent = estimates.of("sent").sum(axis=1)
        served = estimates.of("served").sum(axis=0)
        for scope, parts in (("router", network.routers), ("physical_link", network.links)):
            counts = np.zeros((len(sent), len(parts)))
            for link, passed in enumerate(plan.passed):
                for router, part, _ in passed:
                    if router == (scope == "router"):
                        counts[:, part] += sent[:, link]
            carries = np.flatnonzero(counts.sum(axis=0) > 0)
            names = tuple(parts[i].name for i in carries.tolist())
            number = counts[:, carries].sum(axis=0)
            rate = estimates.per_second(counts[:, carries])
            self.many(scope, names, "traffic_per_s", rate, samples=number)
            chosen = [q for q, queue in enumerate(plan.queues) if queue.scope == scope and served[q] > 0]
            details: str | list[str] = ""
            if scope == "physical_link" and not plan.shared_directions:
                turned = [queue.part is not None and queue.part[2] for queue in plan.queues]
                details = ["backward" if turned[q] else "forward" for q in chosen]
            self.queues(scope, chosen, details, delays=delays)

    def message_rates(self) -> None:
        sent = self.estimates.of("sent").sum(axis=2)
        for detail, counts in (("", sent.sum(axis=1)), *((kind, sent[:, i]) for i, kind in enumerate(_KINDS))):
            rate = self.estimates.time_mean(counts)
            self.one("message_rate_per_s", rate, detail=detail, samples=float(counts.sum()))

    def deliveries(self) -> None:
        """The delays of the events that clients get: by client, by class, and all of them."""
        workload = self.plan.workload
        clients, classes = workload.clients, tuple(each.name for each in workload.classes)
        first = len(clients) + 2
        self.delays("subscriber", clients, [(row, row + 1) for row in range(len(clients))])
        self.delays("class", classes, [(row, row + 1) for row in range(first, first + len(classes))])
        self.delays("system", ("",), [(0, len(clients))])

    def delays(self, scope: str, names: tuple[str, ...], rows: list[tuple[int, int]]) -> None:
        """Means and quantiles of delays, each over a range of rows."""
        estimates = self.estimates
        sums, counts = estimates.of("delay_s"), estimates.of("delays")
        times = np.stack([sums[:, a:b].sum(axis=1) for a, b in rows], axis=1)
        numbers = np.stack([counts[:, a:b].sum(axis=1) for a, b in rows], axis=1)
        total = numbers.sum(axis=0)
        self.many(scope, names, "throughput_per_s", estimates.per_second(numbers), samples=total)
        self.many(scope, names, "delay_mean_s", ratio_estimate(times, numbers), samples=total)
        histograms = {name: estimates.histogram(*rows[i]) for i, name in enumerate(names) if total[i] > 0}
        samples = total[total > 0].astype(np.int64)
        for detail, share in QUANTILES.items() if histograms else ():
            estimated = np.array([estimates.quantile(counted, share) for counted in histograms.values()])
            self.builder.add_many(
                scope,
                tuple(histograms),
                "delay_quantile_s",
                estimated[:, 0],
                how="simulated",
                detail=detail,
                variant=estimates.algorithm,
                low=estimated[:, 1],
                high=estimated[:, 2],
                samples=samples,
            )

    def system_delays(self) -> None:
        estimates, clients = self.estimates, len(self.plan.workload.clients)
        delays, counts = estimates.of("delay_s"), estimates.of("delays")
        for metric, row in (("notification_delay_latest_s", clients), ("subscription_delay_mean_s", clients + 1)):
            mean = estimates.mean(delays[:, row], counts[:, row])
            self.one(metric, mean, samples=float(counts[:, row].sum()))
        for metric, control in (("notification_delay_worst_s", False), ("subscription_delay_worst_s", True)):
            worst = estimates.worst(control=control)
            if worst is not None:
                self.one(metric, worst)

    def targets(self, *, stable: bool) -> None:
        """Which share of the targets for delays and utilisation is met; an overloaded system has no delay at all."""
        targets, estimates = self.plan.system.targets, self.estimates
        met = {}
        if targets.utilisation is not None:
            met["utilisation"] = bool(estimates.offered.max(initial=0.0) <= targets.utilisation)
        for name, target in (
            ("notification", targets.notification_delay),
            ("subscription", targets.subscription_delay),
        ):
            if target is not None:
                worst = estimates.worst(control=name == "subscription") if stable else None
                met[f"{name} delay"] = stable and (worst is None or worst.value <= target)
        if met:
            shares = {"": sum(met.values()) / len(met)} | {name: float(is_met) for name, is_met in met.items()}
            for detail, share in shares.items():
                self.one("targets_met_share", Estimate(share, math.nan), detail=detail)
