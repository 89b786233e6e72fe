"""Simulates the queueing network of subscribers that come and go, in many independent runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surecast.errors import ConfigurationError
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario import System
from surecast.scenario.coverage import left_out
from surecast.simulation.dropping.draws import Switches, given_switches
from surecast.simulation.dropping.dropping_plan import (
    DroppingPlan,
    DroppingSettings,
    Mechanisms,
    Policy,
    make_plan,
    resolve_policies,
)
from surecast.simulation.dropping.dropping_run import DroppingRunResult, simulate_run
from surecast.simulation.dropping.simulated_dropping_report import add_policy, relative_half_width
from surecast.simulation.experiment import Progress, check_at_least_one, replicate, replications

__all__ = ["QUANTILES", "simulate_dropping", "simulate_dropping_until"]

QUANTILES = (0.5, 0.9, 0.95, 0.99)
"""The quantiles that are reported unless others are asked for."""

GivenPeriods = Mapping[str, Sequence[tuple[float, float]]]


def simulate_dropping(
    system: System,
    policies: Sequence[str] | None = None,
    *,
    mechanisms: Mechanisms | None = None,
    runs: int,
    duration_s: float,
    seed: int,
    warm_up_s: float = 0.0,
    workers: int = 1,
    progress: Progress | None = None,
    traces: GivenPeriods | None = None,
    quantiles: Sequence[float] = QUANTILES,
) -> QoSReport:
    """Simulates what subscribers that come and go get under each dropping policy, in `runs` independent runs.

    Events are published at random moments (Poisson), wait for the broker in its input queue, and then in a queue of
    each interested subscriber, which transmits only while the subscriber is connected. All policies of a run see the
    same events, connected periods, coins and service times.

    `mechanisms` gives the parameters of policies by name, for all subscribers or for each; where it is left out, the
    scenario must have them. `policies` left out means those of `mechanisms`, else that of the scenario. Events
    published between `warm_up_s` and `warm_up_s + duration_s` count; what is under way then is followed for as long
    again at most, and what is still there counts as queued. `traces` gives connected periods by subscriber as
    (start, end) in seconds from the start of every run, instead of drawing them; after the last one the subscriber
    stays away. `workers` above 1 lets so many runs go on at a time, and changes nothing in the report.

    >>> from surecast.scenario import build, parse_text
    >>> from surecast.scenario.mechanism import Mechanism
    >>> system = build(parse_text('''
    ... {surecast: 1, name: one, overlay: {brokers: [{name: b, capacity: 16/s}]}, workload: {topics: [t],
    ...  publishers: [{name: p, home: b, topics: [t], rate: 2/s}], subscribers: [{name: s, home: b, topics: [t],
    ...  connectivity: {on: 20s, off: 20s}, service: 8/s}]}}
    ... '''))
    >>> chosen = {"probabilistic": Mechanism(join_probability=0.3), "finite-buffer": Mechanism(buffer_size=12)}
    >>> report = simulate_dropping(system, mechanisms=chosen, runs=10, duration_s=20_000, warm_up_s=500, seed=1)
    >>> {figure.variant: round(figure.value, 2) for figure in report.figures(name="s", metric="success_share")}
    {'probabilistic': 0.65, 'finite-buffer': 0.62}
    """
    check_at_least_one("runs", runs)
    job = _Job(system, policies, mechanisms, duration_s, warm_up_s, seed, traces, quantiles)
    return job.report(replicate(job.run, runs, workers=workers, threads=True, progress=progress)).build()


def simulate_dropping_until(
    system: System,
    policies: Sequence[str] | None = None,
    *,
    mechanisms: Mechanisms | None = None,
    relative_half_width: float = 0.01,
    max_runs: int = 1000,
    min_runs: int = 10,
    duration_s: float,
    seed: int,
    warm_up_s: float = 0.0,
    workers: int = 1,
    progress: Progress | None = None,
    traces: GivenPeriods | None = None,
    quantiles: Sequence[float] = QUANTILES,
) -> QoSReport:
    """As `simulate_dropping`, with as many runs as it takes to know success shares and mean response times well enough.

    Runs are added, from `min_runs` to `max_runs`, until the 95 % half-width of every subscriber's success share and
    mean response time is at most `relative_half_width` of its value, under every policy. The report is that of
    `simulate_dropping` with so many runs; it warns where `max_runs` were not enough.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: one, overlay: {brokers: [{name: b}]}, workload: {topics: [t],
    ...  publishers: [{name: p, home: b, topics: [t], rate: 2/s}], subscribers: [{name: s, home: b, topics: [t],
    ...  connectivity: {on: 20s, off: 20s}, service: 8/s}]}}
    ... '''))
    >>> report = simulate_dropping_until(system, ["none"], relative_half_width=0.02, duration_s=20_000, seed=1)
    >>> figure = report.figure("response_mean_s", name="s")
    >>> (figure.high - figure.low) / 2 <= 0.02 * figure.value
    True
    """
    if max_runs < 2:
        raise ConfigurationError(f"max_runs: {max_runs} must be 2 or more, as one run gives no interval")
    if not relative_half_width > 0:
        raise ConfigurationError(f"relative_half_width: {relative_half_width} must be above 0")
    job = _Job(system, policies, mechanisms, duration_s, warm_up_s, seed, traces, quantiles)
    with replications(job.run, total=max_runs, workers=workers, threads=True, progress=progress) as do:
        results = do.until(lambda results: job.width(results) <= relative_half_width, first=min_runs, most=max_runs)
    width = job.width(results)
    builder = job.report(results)
    if width > relative_half_width:
        builder.warn(
            f"after {len(results)} runs the figures are known to {width:.2%} only, not to {relative_half_width:.2%}: "
            "allow more runs, or longer ones"
        )
    return builder.build()


class _Job:
    """One simulation, checked and ready to run."""

    def __init__(
        self,
        system: System,
        policies: Sequence[str] | None,
        mechanisms: Mechanisms | None,
        duration_s: float,
        warm_up_s: float,
        seed: int,
        traces: GivenPeriods | None,
        quantiles: Sequence[float],
    ):
        for share in quantiles:
            if not 0.0 < share < 1.0:
                raise ConfigurationError(f"quantiles: {share!r} is not between 0 and 1; write one such as 0.99")
        self.settings = DroppingSettings(duration_s=float(duration_s), warm_up_s=float(warm_up_s), seed=seed)
        self.plan: DroppingPlan = make_plan(system)
        self.policies: tuple[Policy, ...] = resolve_policies(self.plan, policies, mechanisms)
        self.quantiles = tuple(quantiles)
        self.traces = _periods(system, traces)

    def run(self, run: int) -> DroppingRunResult:
        """One run. The compiled queues let other threads work beside them."""
        return simulate_run(self.plan, self.policies, self.settings, self.traces, run)

    def width(self, results: list[DroppingRunResult]) -> float:
        return relative_half_width(results, len(self.policies))

    def report(self, results: list[DroppingRunResult]) -> ReportBuilder:
        """A builder with everything but warnings about the number of runs."""
        system, settings = self.plan.system, self.settings
        parameters: dict[str, float | str] = {
            "method": "queues",
            "runs": len(results),
            "duration_s": settings.duration_s,
            "warm_up_s": settings.warm_up_s,
        }
        builder = ReportBuilder(system.name, "simulated", seed=settings.seed, parameters=parameters, notes=system.notes)
        builder.note("events are published at random moments (Poisson)")
        if any(mechanism.expires for policy in self.policies for mechanism in policy.mechanisms):
            builder.note("the broker also processes events that expire in its input queue; nobody gets them")
        if self.traces:
            builder.note(f"the connected periods of {len(self.traces)} subscribers were given, not drawn")
        unreached = len(system.subscribers) - len(self.plan.subscribers)
        if unreached:
            builder.note(f"{unreached} subscribers have no matching publisher, and so no figures")
        for sentence in left_out(system, "the simulation of dropping"):
            builder.warn(sentence)
        for index, policy in enumerate(self.policies):
            add_policy(builder, self.plan, settings, policy, results, index, self.quantiles)
        return builder


def _periods(system: System, traces: GivenPeriods | None) -> dict[str, Switches]:
    names = {subscriber.name for subscriber in system.subscribers}
    for name in traces or {}:
        if name not in names:
            raise ConfigurationError(f"traces: there is no subscriber {name!r}")
    return {name: given_switches(name, periods) for name, periods in (traces or {}).items()}
