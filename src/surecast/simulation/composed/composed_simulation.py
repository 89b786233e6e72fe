"""The report of a simulation that has path failures, queues, groups and dropping all at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.saturation import event_loads
from surecast.scenario.system import System
from surecast.simulation.composed.composed_arrays import Besides, ComposedPlan, compose_plan
from surecast.simulation.composed.composed_run import LOST_ON_WAY, QUEUE_LOSSES, ComposedRunResult, simulate_run
from surecast.simulation.dropping.histogram import quantile
from surecast.simulation.dropping.queue_kernel import DELAY, DELIVERED, LATE, RESPONSE
from surecast.simulation.dropping.queue_kernel import QUEUED as WAITING
from surecast.simulation.experiment import (
    Extent,
    Progress,
    check_at_least_one,
    interval_ends,
    ratio_estimate,
    replicate,
)
from surecast.simulation.reliability.compiled.outcomes import ReliabilitySettings
from surecast.simulation.replication.group_load_run import election_gaps

__all__ = ["simulate_composed"]

Floats = NDArray[np.float64]
VARIANT = "composed"
_FAILURES_MIN = 100.0
_MEMORIES_BEFORE, _MEMORIES_MIN = 5.0, 200.0
"""So many times what a queue remembers of its start pass before what counts, and in all runs."""
_BIAS_MAX = 0.005
"""A start with empty queues matters where their memory is more than this share of a run."""
EVENTS_MAX = 3_000_000
VISITS_MAX = 10_000_000
"""Events of all runs together, and how often they and their acknowledgements come to a broker; a longer simulation is
cut."""


def simulate_composed(
    system: System,
    scheme: str | None = None,
    mechanisms: Mapping[str, Mechanism] | None = None,
    *,
    runs: int,
    duration_s: float,
    seed: int,
    warm_up_s: float = 0.0,
    quantiles: Sequence[float] = (0.5, 0.9, 0.95, 0.99),
    workers: int = 1,
    progress: Progress | None = None,
    besides: Besides | None = None,
) -> QoSReport:
    """Returns the service that each subscriber gets under failures, queues, groups and dropping together.

    Brokers and links fail, brokers queue or order events, and subscribers come and go. Figures have 95 % intervals
    over the runs.

    `mechanisms` has that of each subscriber that comes and goes, by name; one without is left out. The scheme is that
    of the scenario where left out. `besides` is other traffic of brokers and links, by their name: its utilisation, and
    its rate times the second moment of its service time.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: pair
    ... overlay: {brokers: [{name: a, capacity: 20/s}, {name: b, capacity: 20/s}], links: [[a, b]]}
    ... availability: {brokers: {availability: 0.9, period: 1000s}}
    ... workload:
    ...   topics: [t]
    ...   deadline: 30s
    ...   publishers: [{name: p, home: a, topics: [t], rate: 2/s}]
    ...   subscribers: [{name: s, home: b, topics: [t], connectivity: {on: 20s, off: 10s}, service: 10/s}]
    ... '''))
    >>> report = simulate_composed(system, mechanisms={"s": Mechanism()}, runs=4, duration_s=20_000, seed=1)
    >>> 0.6 < report.value("reliability", name="s") < 0.85
    True
    """
    check_at_least_one("runs", runs)
    scheme = system.delivery.fault_tolerance.scheme if scheme is None else scheme
    plan = compose_plan(system, scheme, mechanisms or {}, besides)
    settings = _settings(system, plan, runs, duration_s, warm_up_s, seed)
    gaps_s = election_gaps(plan.laws, plan.loads, seed)
    simulate = partial(simulate_run, plan, settings, gaps_s)
    results = replicate(simulate, runs, workers=workers, progress=progress)
    builder = _builder(plan, settings, runs)
    if settings.duration_s < duration_s:
        builder.warn(
            f"composed: each run has {settings.duration_s:.6g} s instead of {duration_s:.6g} s, so that there are no "
            f"more than {EVENTS_MAX:,} events and {VISITS_MAX:,} visits to brokers; take fewer runs for longer ones"
        )
    _warn_of_rare_failures(builder, system, runs * settings.duration_s)
    _warn_of_long_memory(builder, system, settings, runs, besides or {})
    if len(plan.outlets) < sum(bool(system.publishers_of(s)) for s in system.subscribers):
        builder.warn("composed: subscribers without a dropping mechanism that can serve them are left out")
    _Figures(builder, plan, settings, results).add(tuple(quantiles))
    return builder.build()


def _warn_of_rare_failures(builder: ReportBuilder, system: System, simulated_s: float) -> None:
    """Warns where so few failures happen in all runs that their intervals say little."""
    overlay = system.overlay
    laws = [*(broker.failures for broker in overlay.brokers), *(link.failures for link in overlay.links)]
    number = math.fsum(simulated_s / (law.mtbf_s + law.mttr_s) for law in laws if law is not None)
    if 0.0 < number < _FAILURES_MIN:
        builder.warn(
            f"composed: only about {number:.2g} failures happen in all runs, too few for the intervals to hold; give "
            "them a longer duration, or simulate failures alone (--alone)"
        )


def _warn_of_long_memory(
    builder: ReportBuilder, system: System, settings: ReliabilitySettings, runs: int, besides: Besides
) -> None:
    """Warns where a queue near saturation remembers its start for so long that the intervals do not hold.

    What a queue of utilisation U knows of its start decays in about 2 U s (1 + c) / (1 - U)², s and c being mean and
    squared coefficient of variation of the service: 4 s / (1 - U)² for M/M/1 near saturation.
    """
    memory_s, name, utilisation = 0.0, "", 0.0
    brokers = {f"broker {broker.name}": broker.notification_service for broker in system.overlay.brokers}
    for load in event_loads(system):
        share = load.utilisation + besides.get(load.component, (0.0, 0.0))[0]
        service = brokers.get(load.component)
        squared_cv = 1.0 if service is None else service.squared_cv
        decay_s = 2.0 * share * (1.0 + squared_cv) / load.capacity_per_s / max(1.0 - share, 1e-9) ** 2
        if decay_s > memory_s:
            memory_s, name, utilisation = decay_s, load.component, share
    from_empty = settings.warm_up_s < _MEMORIES_BEFORE * memory_s and memory_s > _BIAS_MAX * settings.duration_s
    if from_empty or runs * settings.duration_s < _MEMORIES_MIN * memory_s:
        builder.warn(
            f"composed: {name} has a utilisation of {utilisation:.3g}: its queue remembers its start for about "
            f"{memory_s:.3g} s, and the intervals may miss the long run; give a warm-up of "
            f"{_MEMORIES_BEFORE * memory_s:.3g} s (experiment.warm_up) and a duration of "
            f"{_MEMORIES_MIN * memory_s / runs:.3g} s and more"
        )


def _settings(
    system: System, plan: ComposedPlan, runs: int, duration_s: float, warm_up_s: float, seed: int
) -> ReliabilitySettings:
    """The extent of a run, cut where there would be too many events; the last are followed for as long again."""
    asked = Extent(duration_s=duration_s, warm_up_s=warm_up_s, seed=seed)
    rate = math.fsum(stream.rate_per_s for stream in plan.streams) + math.fsum(row[1] for row in plan.others)
    visits = math.fsum(stream.rate_per_s * stream.nodes for stream in plan.streams)
    visits *= 2.0 if plan.answers else 1.0
    longest_s = min(EVENTS_MAX / max(rate, 1e-9), VISITS_MAX / max(visits, 1e-9)) / runs
    cut_s = min(asked.duration_s, max(longest_s - warm_up_s, 1.0))
    return ReliabilitySettings.of(
        system, [plan.scheme], duration_s=cut_s, warm_up_s=warm_up_s, seed=seed, followed_s=cut_s
    )


def _builder(plan: ComposedPlan, settings: ReliabilitySettings, runs: int) -> ReportBuilder:
    system = plan.system
    parameters = {
        "composed_scheme": plan.scheme,
        "runs": runs,
        "duration_s": settings.duration_s,
        "warm_up_s": settings.warm_up_s,
    }
    builder = ReportBuilder(system.name, "simulated", seed=settings.seed, parameters=parameters, notes=system.notes)
    builder.note(
        f"composed: events are published at random (Poisson); failures under {plan.scheme}, queues at brokers, groups "
        "of replicas and the subscribers' queues are simulated together"
    )
    builder.note(
        "composed: a broker that is down rests, and so do the queues of its subscribers; what is in a broker's own "
        "queue then waits under buffering, and is lost (path down) under other schemes"
    )
    groups = [group for group in plan.laws if group is not None]
    if groups:
        builder.note(
            "composed: a group orders every event in an instance of its own, as many at a time as come; its replicas "
            "fail one by one, and elections take as long as measured ones"
        )
    if any(group.variant != "multi" or group.entry != "leader" for group in groups):
        builder.warn("composed: groups are simulated as multi with publishers at the leader, whatever their variant")
    if plan.around and system.delivery.fault_tolerance.detection:
        builder.warn(
            "not modelled by the composed simulation: the time until a failure is noticed "
            "(delivery.fault_tolerance.detection)"
        )
    if any(link.loss for link in system.overlay.links) and not plan.stores and not plan.around:
        builder.warn("composed: no refresh of a subscription is lost, whatever overlay.links.loss says")
    if any(link.burst_mean is not None for link in system.overlay.links):
        builder.warn("not modelled by the composed simulation: losses in bursts (overlay.links.burst)")
    for sentence in left_out(system, "the composed simulation"):
        builder.warn(sentence)
    return builder


@dataclass
class _Figures:
    """All figures of all runs."""

    builder: ReportBuilder
    plan: ComposedPlan
    settings: ReliabilitySettings
    results: list[ComposedRunResult]

    def __post_init__(self) -> None:
        self.lost = np.array([result.lost for result in self.results], dtype=np.float64)
        self.counts = np.array([result.counts for result in self.results], dtype=np.float64)
        self.sums = np.array([result.sums for result in self.results])
        self.under_way = np.array([result.under_way for result in self.results], dtype=np.float64)
        self.delivered = self.counts[:, :, :, DELIVERED].sum(axis=2)
        self.queued = self.under_way + self.counts[:, :, :, WAITING].sum(axis=2)
        self.published = self.lost.sum(axis=2) + self.under_way + self.counts.sum(axis=(2, 3))
        self.on_time = self.delivered - self.sums[:, :, LATE]
        names = tuple(self.plan.system.subscribers[outlet.subscriber].name for outlet in self.plan.outlets)
        self.add_many = partial(self.builder.add_many, "subscriber", names, how="simulated", variant=VARIANT)

    def add(self, quantiles: tuple[float, ...]) -> None:
        self._shares()
        self._times(quantiles)
        self._system()
        self._brokers()

    def _ratio(self, metric: str, over: Floats, under: Floats, largest: float = math.inf, detail: str = "") -> None:
        value, half = ratio_estimate(over, under)
        total = under.sum(axis=0)
        low, high = np.maximum(value - half, 0.0), np.minimum(value + half, largest)
        samples = total.astype(np.int64)
        self.add_many(metric, value, detail=detail, low=low, high=high, samples=samples, where=total > 0)

    def _shares(self) -> None:
        published = self.published
        self._ratio("reliability", self.on_time, published, 1.0)
        self._ratio("share_on_time", self.on_time, published, 1.0)
        self._ratio("share_late", self.sums[:, :, LATE], published, 1.0)
        self._ratio("success_share", self.delivered, published, 1.0)
        self._ratio("share_queued", self.queued, published, 1.0)
        total = np.zeros_like(published)
        for reason, lost in self._losses().items():
            total += lost
            self._ratio("share_dropped", lost, published, 1.0, reason)
        self._ratio("share_dropped", total, published, 1.0)
        duration = np.full(published.shape, self.settings.duration_s)
        value, half = ratio_estimate(self.delivered, duration)
        self.add_many("throughput_per_s", value, low=np.maximum(value - half, 0.0), high=value + half)
        self.add_many("count_published", published.sum(axis=0))

    def _losses(self) -> dict[str, Floats]:
        """Events lost, by each reason that occurs at all."""
        found = {}
        for i, reason in enumerate(LOST_ON_WAY):
            found[reason] = self.lost[:, :, i]
        for reason, (state, outcome) in QUEUE_LOSSES.items():
            states = self.counts[:, :, :, outcome]
            lost = states.sum(axis=2) if state is None else states[:, :, state]
            found[reason] = found.get(reason, 0.0) + lost
        return {reason: lost for reason, lost in found.items() if lost.any()}

    def _times(self, quantiles: tuple[float, ...]) -> None:
        self._ratio("delay_mean_s", self.sums[:, :, DELAY], self.delivered)
        system = self.plan.system
        queued = np.array(
            [
                system.subscribers[o.subscriber].connectivity is not None
                or system.subscribers[o.subscriber].service is not None
                for o in self.plan.outlets
            ]
        )
        value, half = ratio_estimate(self.sums[:, :, RESPONSE], self.delivered)
        low, high = np.maximum(value - half, 0.0), value + half
        where = queued & (self.delivered.sum(axis=0) > 0)
        self.add_many("response_mean_s", value, low=low, high=high, where=where)
        delays = np.array([result.delays for result in self.results])
        pooled = delays.sum(axis=0)
        for q in quantiles:
            values = np.array([quantile(row, q) for row in pooled])
            single = np.array([[quantile(row, q) for row in run] for run in delays])
            half = ratio_estimate(single, np.ones_like(single))[1]
            detail = f"p{100 * q:.10g}"
            low, high = np.maximum(values - half, 0.0), values + half
            self.add_many("delay_quantile_s", values, detail=detail, low=low, high=high, where=~np.isnan(values))

    def _system(self) -> None:
        """Means over the subscribers: of shares as they stand, of delays over the events delivered."""
        add = partial(self.builder.add, "system", "", how="simulated", variant=VARIANT)
        some = self.published > 0
        count = some.sum(axis=1, keepdims=True).astype(np.float64)
        for metric, part in (("reliability", self.on_time), ("success_share", self.delivered)):
            shares = np.divide(part, self.published, out=np.zeros_like(part), where=some).sum(axis=1, keepdims=True)
            value, half = (float(x[0]) for x in ratio_estimate(shares, count))
            if not math.isnan(value):
                low, high = interval_ends(value, half, most=1.0)
                add(metric, value, low=low, high=high)
        delay, got = (x.sum(axis=1, keepdims=True) for x in (self.sums[:, :, DELAY], self.delivered))
        value, half = (float(x[0]) for x in ratio_estimate(delay, got))
        if not math.isnan(value):
            low, high = interval_ends(value, half)
            add("delay_mean_s", value, low=low, high=high)

    def _brokers(self) -> None:
        brokers = self.plan.system.overlay.brokers
        sums = np.array([result.brokers for result in self.results])
        names = tuple(broker.name for broker in brokers)
        duration = np.full(sums.shape[:2], self.settings.duration_s)
        takes = np.array([b.notification_service is not None for b in brokers]) | (self.plan.groups[:, 0] > 0)
        for metric, over, under, largest, where in (
            ("availability", sums[:, :, 2], duration, 1.0, np.ones(len(brokers), np.bool_)),
            ("delay_mean_s", sums[:, :, 1], sums[:, :, 0], math.inf, takes & (sums[:, :, 0].sum(axis=0) > 0)),
        ):
            value, half = ratio_estimate(over, under)
            low, high = np.maximum(value - half, 0.0), np.minimum(value + half, largest)
            value = np.minimum(value, largest)
            self.builder.add_many(
                "broker", names, metric, value, how="simulated", variant=VARIANT, low=low, high=high, where=where
            )
