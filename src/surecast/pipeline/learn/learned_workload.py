"""Publishers and subscribers with their topics and rates, and when subscribers are connected."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.pipeline.learn.component_times import (
    ObservedComponent,
    Pathed,
    duration,
    fit_estimate,
    fit_pair,
    law_fields,
)
from surecast.pipeline.learn.distribution_choice import SIGNIFICANCE, LifetimeFit, choose_lifetime
from surecast.pipeline.learn.learned_scenario import Missing, estimate_at
from surecast.pipeline.learn.log_statistics import Client, Statistics
from surecast.pipeline.learn.popularity import fit_popularity
from surecast.pipeline.learn.rates import even_shares, fit_rate
from surecast.protocol.mqtt.topics import match

__all__ = ["Findings", "distribution", "exposures", "learn_workload", "topic_choices"]

Array = NDArray[np.float64]
SERVICE_MIN = 5
"""Deliveries to a waiting subscriber below which its service time is left out."""


@dataclass
class Findings:
    """The findings that accumulate while a scenario is learned."""

    paths: list[Pathed] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def rate_text(rate_per_s: float) -> str:
    return f"{rate_per_s:.6g}/s"


def distribution(fit: LifetimeFit) -> dict[str, Any]:
    """Returns a fit as one distribution with its mean."""
    spec = fit.spec()
    return spec if "means" in spec or "rates" in spec else {**spec, "mean": duration(fit.mean_s)}


def exposures(statistics: Statistics, broker: str, client: str | None = None) -> Array:
    """Returns how long a publisher of a broker, or the broker, was observed in each window.

    That is while the broker's log was written; and also while the broker was down, as long as the publisher's messages
    from then came later. A publisher that kept nothing for the broker was out of sight.

    >>> from surecast.pipeline.learn.log_statistics import UptimeRow
    >>> incarnations = (UptimeRow("b", 0.0, 10.0, "crash", True), UptimeRow("b", 30.0, 40.0, "open", True))
    >>> statistics = Statistics(incarnations=incarnations, window_s=20.0, held={("b", "p"): ((25.0, 30.0),)})
    >>> exposures(statistics, "b").tolist(), exposures(statistics, "b", "p").tolist()
    ([10.0, 10.0], [10.0, 15.0])
    """
    spans = [
        (incarnation.up_from_s, incarnation.up_to_s)
        for incarnation in statistics.incarnations
        if incarnation.broker == broker
    ]
    spans += statistics.held.get((broker, client), ()) if client is not None else ()
    last = max(incarnation.up_to_s for incarnation in statistics.incarnations)
    count = max(1, int(np.ceil((last - statistics.start_s) / statistics.window_s)))
    edges = statistics.start_s + np.arange(count + 1) * statistics.window_s
    covered = np.zeros(count)
    seen_s = -np.inf
    for start_s, end_s in sorted(spans):
        covered += np.maximum(np.minimum(edges[1:], end_s) - np.maximum(edges[:-1], max(start_s, seen_s)), 0.0)
        seen_s = max(seen_s, end_s)
    return covered


def window_counts(statistics: Statistics, clients: list[Client], size: int) -> Array:
    """Returns the messages of clients together, by window; a message at the very end belongs to the last window."""
    counts = np.zeros(size)
    for client in clients:
        for number, messages in statistics.windows.get(client, {}).items():
            counts[min(max(number, 0), size - 1)] += messages
    return counts


def topic_choices(statistics: Statistics) -> dict[Client, list[str]]:
    """Returns the topics that match each subscriber's filters: those held to the end, or else all of them."""
    topics = {row.topic for row in statistics.published}
    filters: dict[Client, list[tuple[str, bool]]] = defaultdict(list)
    for row in statistics.subscriptions:
        wanted = row.filter.split("/", 2)[2] if row.filter.startswith("$share/") else row.filter
        filters[row.broker, row.client].append((wanted, row.held))
        if not any(mark in wanted for mark in "+#"):
            topics.add(wanted)
    # Topics in which a broker reports on itself have subscribers too, but are no workload.
    topics -= {row.topic for row in statistics.aside} - {row.topic for row in statistics.published}
    ordered, cache = sorted(topics), dict[str, list[str]]()
    choices: dict[Client, list[str]] = {}
    for client, each in sorted(filters.items()):
        names = [name for name, held in each if held] or [name for name, _ in each]
        for name in names:
            if name not in cache:
                cache[name] = [topic for topic in ordered if match(name, topic)]
        choices[client] = sorted({topic for name in names for topic in cache[name]})
    return choices


def learn_workload(statistics: Statistics, connections: list[ObservedComponent], findings: Findings) -> dict[str, Any]:
    """Returns the workload of named topics."""
    choices = topic_choices(statistics)
    popularity = Counter(topic for topics in choices.values() for topic in topics)
    messages: Counter[str] = Counter()
    for row in statistics.published:
        messages[row.topic] += row.messages
    # The most wanted first: the exponent is over the order given.
    topics = sorted({*popularity, *messages}, key=lambda name: (-popularity[name], -messages[name], name))
    workload: dict[str, Any] = {}
    if topics:
        workload["topics"] = topics
        _exponents(workload, topics, popularity, messages, findings)
    publishers = _publishers(statistics, workload, findings)
    if publishers:
        workload["publishers"] = publishers
    subscribers = _subscribers(statistics, choices, connections, findings)
    if not subscribers and connections:
        subscribers = _traced(statistics, connections, workload, findings)
    if subscribers:
        workload["subscribers"] = subscribers
    return workload


def _exponents(
    workload: dict[str, Any], topics: list[str], popularity: Counter[str], messages: Counter[str], findings: Findings
) -> None:
    for counts, subject in ((popularity, "subscriptions"), (messages, "publications")):
        try:
            fit = fit_popularity(np.array([counts[name] for name in topics], dtype=np.float64))
        except AssumptionError as refusal:
            reason = f"{refusal}"
            findings.missing.append(
                Missing(f"popularity exponent by {subject}", reason, "log for longer, or more topics")
            )
            continue
        numbers = (fit.exponent, fit.low, fit.high)
        # Popularity is the share of subscriptions; the share of publications is reported beside it.
        path = ("workload", "popularity_exponent")
        findings.paths.append(estimate_at(path, f"exponent by {subject}", numbers, "", fit.choices, fit.verdict))
        if subject == "subscriptions":
            workload["popularity_exponent"] = float(f"{fit.exponent:.6g}")


def _publishers(statistics: Statistics, workload: dict[str, Any], findings: Findings) -> list[dict[str, Any]]:
    by_client: dict[Client, dict[str, int]] = defaultdict(dict)
    for row in statistics.published:
        by_client[row.broker, row.client][row.topic] = row.messages
    names = Counter(client for _, client in by_client)
    usual = {each.deadline_s for each in statistics.deadlines.values()}
    same = len(usual) == 1 and len(statistics.deadlines) == len(by_client)
    entries: list[dict[str, Any]] = []
    for (broker, client), topics in sorted(by_client.items()):
        name = client if names[client] == 1 else f"{client} at {broker}"
        exposure = exposures(statistics, broker, client)
        if not exposure.sum() > 0:
            why = f"the log of {broker} has no two records at different times"
            findings.missing.append(Missing(f"rate of {name}", why, "log for longer"))
            continue
        variation = statistics.gap_variation.get((broker, client))
        counted = window_counts(statistics, [(broker, client)], len(exposure))
        fit = fit_rate(counted, exposure, gap_variation_squared=variation)
        bursts = "" if variation is None else f"; squared variation of gaps {variation:.3g}"
        # A publisher divides its rate evenly; one that does not is written as one for each topic.
        counts = np.array(list(topics.values()), dtype=np.float64)
        uneven = even_shares(counts) < SIGNIFICANCE
        parts = [[topic] for topic in sorted(topics)] if uneven else [sorted(topics)]
        deadline = statistics.deadlines.get((broker, client))
        for part in parts:
            share = sum(topics[topic] for topic in part) / float(counts.sum())
            entry: dict[str, Any] = {"name": f"{name}: {part[0]}" if uneven else name, "home": broker, "topics": part}
            entry["rate"] = rate_text(fit.rate_per_s * share)
            path = ("workload", "publishers", len(entries))
            if deadline is not None and not same:
                entry["deadline"] = duration(deadline.deadline_s)
            numbers = (fit.rate_per_s * share, fit.low_per_s * share, fit.high_per_s * share)
            findings.paths.append(
                estimate_at(
                    (*path, "rate"), f"rate of {entry['name']}", numbers, "1/s", fit.events, fit.verdict + bursts
                )
            )
            entries.append(entry)
    _deadlines(statistics, workload, same, findings)
    if not entries:
        findings.missing.append(Missing("publishers", "no message is in broker_events", "log `published` records"))
    return entries


def _deadlines(statistics: Statistics, workload: dict[str, Any], same: bool, findings: Findings) -> None:
    if not statistics.deadlines:
        why = "no `published` record has deadline_s"
        findings.missing.append(Missing("deadlines", why, "publish with the user property deadline-ms"))
        return
    part = sum(each.messages for each in statistics.deadlines.values())
    whole = sum(each.of for each in statistics.deadlines.values())
    if part < whole:
        findings.notes.append(
            f"{whole - part} of {whole} messages had another deadline than their publisher's usual one."
        )
    if same:
        value = next(iter(statistics.deadlines.values())).deadline_s
        workload["deadline"] = duration(value)
        verdict = "as published" if part == whole else "the most frequent one"
        findings.paths.append(
            estimate_at(("workload", "deadline"), "deadline", (value, value, value), "s", part, verdict)
        )


def _subscribers(
    statistics: Statistics, choices: dict[Client, list[str]], connections: list[ObservedComponent], findings: Findings
) -> list[dict[str, Any]]:
    names = Counter(client for _, client in choices)
    traced = {component.name: component for component in connections}
    entries: list[dict[str, Any]] = []
    idle = []
    for (broker, client), topics in choices.items():
        name = client if names[client] == 1 else f"{client} at {broker}"
        if not topics:
            idle.append(name)
            continue
        entry: dict[str, Any] = {"name": name, "home": broker, "topics": topics}
        path = ("workload", "subscribers", len(entries))
        on, off = statistics.on.get((broker, client)), statistics.off.get((broker, client))
        if (on is None or off is None) and client in traced:
            on, off = traced[client].times.up, traced[client].times.down
        if on is not None and off is not None:
            pair = fit_pair(on, off)
            if not isinstance(pair, str):
                entry["connectivity"] = connectivity(pair)
                for fit, state in zip(pair, ("on", "off"), strict=True):
                    findings.paths.append(fit_estimate((*path, "connectivity", state), f"{name} {state}", fit))
        service = statistics.service.get((broker, client))
        if service is not None and service.ends >= SERVICE_MIN:
            fit = choose_lifetime(service)
            entry["service"] = distribution(fit)
            findings.paths.append(fit_estimate((*path, "service"), f"service time of {name}", fit))
            second = float(service.count @ service.value_s**2) / service.ends
            mean = service.total_s / service.ends
            findings.notes.append(f"Service of {name}: squared coefficient of variation {second / mean**2 - 1.0:.3g}.")
        entries.append(entry)
    _missing_subscribers(entries, idle, findings)
    return entries


def _traced(
    statistics: Statistics, connections: list[ObservedComponent], workload: dict[str, Any], findings: Findings
) -> list[dict[str, Any]]:
    """Returns subscribers that only traces of connections contain: when they are connected is known, their topics are
    not."""
    workload.setdefault("topics", ["events"])
    home = min((incarnation.broker for incarnation in statistics.incarnations), default="broker")
    entries: list[dict[str, Any]] = []
    for component in connections:
        pair = fit_pair(component.times.up, component.times.down)
        entry: dict[str, Any] = {"name": component.name, "home": home, "topics": list(workload["topics"])}
        if isinstance(pair, str):
            findings.missing.append(Missing(f"connectivity of {component.name}", pair, "observe it for longer"))
        else:
            entry["connectivity"] = connectivity(pair)
            path = ("workload", "subscribers", len(entries), "connectivity")
            for fit, state in zip(pair, ("on", "off"), strict=True):
                findings.paths.append(fit_estimate((*path, state), f"{component.name} {state}", fit))
        entries.append(entry)
    why = "a trace of connections does not say what a user subscribes to; all topics are assumed"
    findings.missing.append(Missing("topics of subscribers", why, "put the log of their broker among the inputs"))
    return entries


def connectivity(pair: tuple[LifetimeFit, LifetimeFit]) -> dict[str, Any]:
    """Returns connected and disconnected periods in the form of a scenario file."""
    return {**law_fields(pair[0], "on", "on_shape"), **law_fields(pair[1], "off", "off_shape")}


def _missing_subscribers(entries: list[dict[str, Any]], idle: list[str], findings: Findings) -> None:
    if not entries:
        findings.missing.append(
            Missing("subscribers", "no subscription is in broker_events", "log `subscribed` records")
        )
        return
    if idle:
        why = f"no topic is known that the filters of {', '.join(idle[:5])} match"
        findings.missing.append(Missing(f"{len(idle)} subscribers", why, "log what is published to them"))
    steady = [entry["name"] for entry in entries if "connectivity" not in entry]
    if steady:
        why = f"{', '.join(steady[:5])}{' and more' if len(steady) > 5 else ''} did not both leave and come back"
        to_log = "they are taken as always connected; log for longer"
        findings.missing.append(Missing(f"connectivity of {len(steady)} subscribers", why, to_log))
    unserved = [entry["name"] for entry in entries if "service" not in entry]
    if unserved:
        why = (
            f"{', '.join(unserved[:5])}{' and more' if len(unserved) > 5 else ''} never had a queue that was worked off"
        )
        to_log = "their service is taken as negligible; log deliveries under load"
        findings.missing.append(Missing(f"service time of {len(unserved)} subscribers", why, to_log))
