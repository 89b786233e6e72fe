"""The QoS report of simulated runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.saturation import refuse_saturated_events
from surecast.scenario.spec.delivery import SCHEMES
from surecast.scenario.system import System
from surecast.simulation.experiment import (
    Progress,
    check_at_least_one,
    interval_ends,
    ratio_estimate,
    replications,
)
from surecast.simulation.reliability.protocol.options import Options
from surecast.simulation.reliability.protocol.protocol_run import simulate_world
from surecast.simulation.reliability.protocol.result import WorldResult

__all__ = ["add_scheme", "simulate_protocol"]

Floats = NDArray[np.float64]


def simulate_protocol(
    system: System,
    schemes: Sequence[str] | None = None,
    *,
    runs: int,
    duration_s: float,
    seed: int,
    warm_up_s: float | None = None,
    options: Options | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> QoSReport:
    """Simulates each scheme in several runs and reports what each subscriber gets, with 95 % confidence intervals.

    All schemes see the same failures and publications. `progress` is called with the number of runs done and in all.
    `workers` above 1 spreads the runs over so many processes, and changes nothing in the report.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: pair
    ... overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}
    ... availability: {links: {mtbf: 90s, mttr: 10s}}
    ... workload:
    ...   topics: [t]
    ...   deadline: 5s
    ...   publishers: [{name: p, home: a, topics: [t], rate: 1/s}]
    ...   subscribers: [{name: s, home: b, topics: [t]}]
    ... '''))
    >>> report = simulate_protocol(system, ["buffering"], runs=3, duration_s=500, seed=1)
    >>> reliability = report.figure("reliability", name="s")
    >>> reliability.low < reliability.value < reliability.high
    True
    """
    check_at_least_one("runs", runs)
    refuse_saturated_events(system)
    names = list(SCHEMES) if schemes is None else list(schemes)
    warm_up = system.experiment.warm_up if warm_up_s is None else warm_up_s
    chosen = options or Options()
    parameters = {"method": "protocol", "runs": runs, "duration_s": duration_s, "warm_up_s": warm_up}
    builder = ReportBuilder(system.name, "simulated", seed=seed, notes=system.notes, parameters=parameters)
    _add_notes(builder, system, chosen)
    for sentence in left_out(system, "the simulation of the protocol"):
        builder.warn(sentence)
    simulate = partial(_simulate_run, system, duration_s, seed, warm_up, chosen)
    jobs = [(scheme, run) for scheme in names for run in range(runs)]
    with replications(simulate, total=len(jobs), workers=workers, progress=progress) as do:
        results = do.all(jobs)
    for i, scheme in enumerate(names):
        add_scheme(builder, system, scheme, results[i * runs : (i + 1) * runs])
    return builder.build()


def _simulate_run(
    system: System, duration_s: float, seed: int, warm_up_s: float, options: Options, scheme: str, run: int
) -> WorldResult:
    return simulate_world(
        system, scheme, duration_s=duration_s, seed=seed, warm_up_s=warm_up_s, run=run, options=options
    )


def _add_notes(builder: ReportBuilder, system: System, options: Options) -> None:
    if options.merges_subscribers:
        builder.note("subscribers with the same home broker and topic refresh together and get the same")
    builder.note("subscriptions are kept on disk by the buffering schemes, and do not time out there")


def add_scheme(builder: ReportBuilder, system: System, scheme: str, results: list[WorldResult]) -> None:
    """Adds what each subscriber got under one scheme in some runs, and their means."""
    names = tuple(subscriber.name for subscriber in system.subscribers)
    published = np.array([result.published for result in results], dtype=np.float64)
    exists: NDArray[np.bool_] = np.all(published > 0, axis=0)
    total = published.sum(axis=0)
    columns = {
        "on_time": np.array([result.on_time for result in results], dtype=np.float64),
        "late": np.array([result.late for result in results], dtype=np.float64),
        "queued": np.array([result.queued for result in results], dtype=np.float64),
    }
    lost = {
        reason: np.array([result.lost[reason] for result in results], dtype=np.float64) for reason in results[0].lost
    }

    def add(metric: str, values: Floats, detail: str = "", where: NDArray[np.bool_] = exists) -> None:
        builder.add_many(
            "subscriber",
            names,
            metric,
            np.where(where, values, 0.0),
            how="simulated",
            variant=scheme,
            detail=detail,
            where=where,
        )

    with np.errstate(invalid="ignore", divide="ignore"):
        value, half = _mean_over_runs(columns["on_time"] / published)
        builder.add_many(
            "subscriber",
            names,
            "reliability",
            np.where(exists, value, 0.0),
            how="simulated",
            variant=scheme,
            low=np.maximum(value - half, 0.0),
            high=np.minimum(value + half, 1.0),
            samples=total.astype(np.int64),
            where=exists,
        )
        add("count_published", total)
        for name, counts in columns.items():
            add(f"share_{name}", (counts / published).mean(axis=0))
            add(f"count_{name}", counts.sum(axis=0))
        for reason, counts in lost.items():
            if counts.any():
                add("share_dropped", (counts / published).mean(axis=0), reason)
                add("count_dropped", counts.sum(axis=0), reason)
        arrived = (columns["on_time"] + columns["late"]).sum(axis=0)
        delay_s = np.array([result.delay_sum_s for result in results]).sum(axis=0) / arrived
        add("delay_mean_s", delay_s, where=exists & (arrived > 0))
    _add_system(builder, scheme, results, exists)


def _add_system(builder: ReportBuilder, scheme: str, results: list[WorldResult], exists: NDArray[np.bool_]) -> None:
    if exists.any():
        means = np.array([[result.reliability[exists].mean()] for result in results])
        value, half = (float(part[0]) for part in _mean_over_runs(means))
        ends = interval_ends(value, half, most=1.0)
        builder.add(
            "system",
            "",
            "reliability",
            value,
            how="simulated",
            variant=scheme,
            low=ends[0],
            high=ends[1],
        )
    events = sum(result.events_published for result in results)
    if not events:
        return
    for kind in results[0].messages:
        sent = sum(result.messages[kind] for result in results)
        if sent:
            builder.add("system", "", "messages_per_event", sent / events, how="simulated", variant=scheme, detail=kind)
    sent = sum(sum(result.messages.values()) for result in results)
    builder.add("system", "", "messages_per_event", sent / events, how="simulated", variant=scheme)


def _mean_over_runs(values: Floats) -> tuple[Floats, Floats]:
    """The mean over runs of a share that each run has, and its half-width."""
    return ratio_estimate(values, np.ones_like(values))
