"""The QoS report of a simulation: shares, intervals and messages from the accounts of all runs."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import has_part
from surecast.simulation.experiment.confidence import interval_ends, ratio_estimate
from surecast.simulation.reliability.compiled.compiled_plan import NONE, CompiledPlan
from surecast.simulation.reliability.compiled.outcomes import (
    KINDS,
    OUTCOMES,
    CompiledRunResult,
    ReliabilitySettings,
    reasons_of,
)

__all__ = ["add_time_notes", "build_report", "mean_half_width"]

Floats = NDArray[np.float64]

_TIMES = ("broker queues", "ordering", "link capacity", "physical queues", "transmission", "matching", "connectivity")
"""The parts of a scenario that take time and are left out of the delays of the compiled simulation."""


def mean_half_width(plan: CompiledPlan, results: list[CompiledRunResult], scheme: str) -> float:
    """The mean 95 % half-width of the reliability over all subscribers that are published to."""
    on_time, published = _on_time(results, scheme)
    half = ratio_estimate(on_time, published)[1]
    chosen = plan.interest_of[plan.interest_of != NONE]
    widths = half[chosen][published.sum(axis=0)[chosen] > 0]
    return float(widths.mean()) if len(widths) else 0.0


def build_report(
    plan: CompiledPlan, settings: ReliabilitySettings, results: list[CompiledRunResult], builder: ReportBuilder
) -> QoSReport:
    """Adds the figures of all schemes to a builder that has the head, and builds the report."""
    for scheme in settings.schemes:
        _subscribers(plan, settings, results, scheme, builder)
        _system(plan, settings, results, scheme, builder)
        _messages(settings, results, scheme, builder)
    return builder.build()


def _on_time(results: list[CompiledRunResult], scheme: str) -> tuple[Floats, Floats]:
    """Events on time and events published, by run and interest."""
    outcomes = np.array([result.accounts[scheme].outcomes for result in results], dtype=np.float64)
    return outcomes[:, :, 0], outcomes.sum(axis=2)


def _parts(plan: CompiledPlan, settings: ReliabilitySettings, scheme: str) -> list[tuple[str, str, str]]:
    """The outcomes that a scheme can have, with the metric and the detail they are reported under."""
    client_links = plan.system.client_failures is not None
    ideal = settings.refresh_interval_s <= 0
    reasons = reasons_of(scheme, ideal_refresh=ideal, client_links=client_links, detection=settings.detection_s > 0)
    parts = [("on time", "share_on_time", ""), *((reason, "share_dropped", reason) for reason in reasons)]
    parts += [("late", "share_late", "")] if plan.has_latency else []
    return [*parts, ("queued", "share_queued", "")] if "buffering" in scheme else parts


def add_time_notes(builder: ReportBuilder, plan: CompiledPlan) -> None:
    """Says what the delays of the compiled simulation are made of."""
    if plan.has_latency:
        builder.note(
            "delays come from failures and the latency of links, which is added at the end of a way; a detour has the "
            "latency of the way that it replaces"
        )
    else:
        builder.note("delays come from failures only: events take no time on brokers and links")


def _leaves_out_time(plan: CompiledPlan) -> bool:
    """Returns whether delays of 0 s would show only that the simulation leaves out what takes time."""
    return not plan.has_latency and any(has_part(plan.system, part) for part in _TIMES)


def _subscribers(
    plan: CompiledPlan,
    settings: ReliabilitySettings,
    results: list[CompiledRunResult],
    scheme: str,
    builder: ReportBuilder,
) -> None:
    on_time, published = _on_time(results, scheme)
    value, half = ratio_estimate(on_time, published)
    events = published.sum(axis=0).astype(np.int64)
    exists = (plan.interest_of != NONE) & (events[plan.interest_of] > 0)
    index = plan.interest_of[exists]
    names = tuple(s.name for s, there in zip(plan.system.subscribers, exists.tolist(), strict=True) if there)
    if not names:
        return
    add = partial(builder.add_many, "subscriber", names, how="simulated", variant=scheme)
    low, high = np.maximum(value - half, 0.0), np.minimum(value + half, 1.0)
    add("reliability", value[index], low=low[index], high=high[index], samples=events[index])
    outcomes = np.sum([result.accounts[scheme].outcomes for result in results], axis=0)
    for outcome, metric, detail in _parts(plan, settings, scheme):
        shares = outcomes[index, OUTCOMES.index(outcome)] / events[index]
        add(metric, shares, detail=detail, samples=events[index])
    delays = np.array([result.accounts[scheme].delay_s for result in results])
    if not delays.any() and _leaves_out_time(plan):
        return
    mean, half = ratio_estimate(delays, on_time)
    arrived = on_time.sum(axis=0).astype(np.int64)
    low, high = np.maximum(mean - half, 0.0), mean + half
    ends = {"low": low[index], "high": high[index]}
    add("delay_mean_s", mean[index], samples=arrived[index], where=arrived[index] > 0, **ends)


def _system(
    plan: CompiledPlan,
    settings: ReliabilitySettings,
    results: list[CompiledRunResult],
    scheme: str,
    builder: ReportBuilder,
) -> None:
    """Means over subscribers; their interval comes from the means of the single runs."""
    outcomes = np.array([result.accounts[scheme].outcomes for result in results], dtype=np.float64)
    events = outcomes.sum(axis=2)
    index = plan.interest_of[plan.interest_of != NONE]
    index = index[events.sum(axis=0)[index] > 0]
    if not len(index):
        return
    samples = int(events[:, index].sum())
    seen = events[:, index] > 0
    shares = np.divide(outcomes[:, index, 0], events[:, index], out=np.zeros(seen.shape), where=seen)
    by_run = (shares.sum(axis=1) / np.maximum(seen.sum(axis=1), 1))[seen.any(axis=1)]
    pooled = outcomes.sum(axis=0)[index] / events.sum(axis=0)[index][:, None]
    value = float(pooled[:, 0].mean())
    _, half = ratio_estimate(by_run[:, None], np.ones((len(by_run), 1)))
    low, high = interval_ends(value, float(half[0]), most=1.0)
    add = partial(builder.add, "system", "", how="simulated", variant=scheme)
    add("reliability", value, low=low, high=high, samples=samples)
    for outcome, metric, detail in _parts(plan, settings, scheme):
        share = float(pooled[:, OUTCOMES.index(outcome)].mean())
        add(metric, share, detail=detail, samples=samples)
    delays = np.sum([result.accounts[scheme].delay_s for result in results], axis=0)[index]
    arrived = outcomes[:, index, 0].sum(axis=0)
    if (arrived > 0).any() and (delays.any() or not _leaves_out_time(plan)):
        mean = float((delays[arrived > 0] / arrived[arrived > 0]).mean())
        add("delay_mean_s", mean, samples=int(arrived.sum()))


def _messages(
    settings: ReliabilitySettings, results: list[CompiledRunResult], scheme: str, builder: ReportBuilder
) -> None:
    published = np.array([[result.published] for result in results], dtype=np.float64)
    if not published.sum():
        return
    refreshes = ("subscription",) if settings.refresh_interval_s > 0 else ()
    buffered = ("notification", "acknowledgement", "retransmission")
    kinds = {
        "none": ("notification",),
        "periodic-subscription": ("notification", *refreshes),
        "buffering": (*buffered, *refreshes),
        "bypass": ("notification", "detour", "link-state", *refreshes),
        "bypass-buffering": (*buffered, "detour", "duplicate", "link-state", *refreshes),
    }[scheme]
    messages = np.array([result.accounts[scheme].messages for result in results], dtype=np.float64)
    counted = {kind: messages[:, KINDS.index(kind)] for kind in kinds}
    total = np.sum([counts for kind, counts in counted.items() if kind != "duplicate"], axis=0)
    for kind, counts in (*counted.items(), ("", total)):
        value, half = ratio_estimate(counts[:, None], published)
        low, high = interval_ends(float(value[0]), float(half[0]))
        builder.add(
            "system",
            "",
            "messages_per_event",
            float(value[0]),
            how="simulated",
            variant=scheme,
            detail=kind,
            low=low,
            high=high,
            samples=int(published.sum()),
        )
