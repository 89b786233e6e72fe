"""From statistics to a scenario: brokers, links, availability, workload, and what could not be learned."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any, Final

import numpy as np

from surecast.errors import AssumptionError, ConfigurationError
from surecast.pipeline.learn.component_times import (
    ObservedComponent,
    find_components,
    fit_estimate,
    fit_pair,
    law_fields,
)
from surecast.pipeline.learn.distribution_choice import choose_lifetime
from surecast.pipeline.learn.drift import change_of, drift_of, trend_of
from surecast.pipeline.learn.filter_samples import FilterSamples, fit_attributes
from surecast.pipeline.learn.learned_scenario import Learned, Missing, estimate_at
from surecast.pipeline.learn.learned_workload import (
    Findings,
    distribution,
    exposures,
    learn_workload,
    rate_text,
    topic_choices,
    window_counts,
)
from surecast.pipeline.learn.log_statistics import Client, Statistics
from surecast.pipeline.learn.rates import fit_rate, share_interval
from surecast.scenario import Scenario, System, parse_text

__all__ = ["WORKLOADS", "learn_scenario"]

WORKLOADS: Final = ("topics", "classes")


def learn_scenario(
    statistics: Statistics,
    *,
    name: str = "learned",
    workload: str = "topics",
    samples: FilterSamples | None = None,
    base: tuple[Scenario, System] | None = None,
) -> Learned:
    """Returns a scenario with all that the statistics contain, which `predict`, `simulate` and `plan` accept.

    `workload` is `topics` for named topics and clients, `classes` for filter classes whose subscriptions come and go.
    Network, overlay, delivery and targets are those of `base` where one is given.

    >>> from surecast.pipeline.learn.log_statistics import UptimeRow
    >>> incarnations = (UptimeRow("b1", 0.0, 9e4, "crash", True), UptimeRow("b1", 9.1e4, 2e5, "open", True))
    >>> learned = learn_scenario(Statistics(incarnations=incarnations))
    >>> learned.data["availability"]
    {'each': {'b1': {'mtbf': '199000s', 'mttr': '1000s'}}}
    """
    if workload not in WORKLOADS:
        raise ConfigurationError(f"--workload {workload}: write {' or '.join(WORKLOADS)}")
    findings = Findings()
    components = find_components(statistics)
    brokers = _brokers(statistics, components, base)
    data: dict[str, Any] = {} if base is None else base[0].to_data()
    data |= {"surecast": 1, "name": name, "description": "Learned from logs."}
    data.pop("workload", None)
    links = [each for each in components if each.kind == "link"]
    if base is None:
        data["overlay"] = {"brokers": [{"name": each} for each in brokers]}
        joined = _links(brokers, links, findings)
        if joined:
            data["overlay"]["links"] = joined
    placed = set(brokers) | ({link.name for link in base[1].overlay.links} if base else _both_ways(data["overlay"]))
    _replication(data, statistics, brokers, findings)
    _availability(data, components, placed, findings)
    connections = [each for each in components if each.kind == "connection"]
    _note_aside(statistics, findings)
    learned = learn_workload(statistics, connections, findings)
    subscriptions = _subscriptions(statistics, findings)
    local = _locality(statistics, findings)
    filters = _filters(samples, workload, findings)
    if workload == "classes":
        learned = _classes(data, statistics, subscriptions, local, filters, findings)
    if learned:
        data["workload"] = learned
    _always_missing(data, findings)
    answer = Learned(data, tuple(findings.paths), tuple(findings.missing), tuple(findings.notes))
    parse_text(answer.to_yaml())  # what is not accepted is an error here, and never a file
    return answer


def _brokers(
    statistics: Statistics, components: list[ObservedComponent], base: tuple[Scenario, System] | None
) -> list[str]:
    logged = {incarnation.broker for incarnation in statistics.incarnations}
    if base is not None:
        index = base[1].overlay.index
        strange = sorted(logged - set(index))
        if strange:
            raise ConfigurationError(
                f"broker_events: {', '.join(strange[:5])} is no broker of the scenario {base[0].name}; it has "
                f"{', '.join(list(index)[:10])}"
            )
        return list(index)
    ends = {end for each in components if each.kind == "link" for end in each.name.split("--", 1)}
    # Machines of a trace are brokers where there is no log; beside logs they are others.
    traced = {each.name for each in components if each.kind == "broker"} if not logged else set()
    brokers = sorted(logged | ends | traced)
    if not brokers and any(each.kind == "connection" for each in components):
        return ["broker"]
    if not brokers:
        raise AssumptionError(
            "the tables broker_events, broker_uptime and availability are empty: there is nothing to learn from; run "
            "surecast pipeline run on a broker's log, or on an availability trace"
        )
    return brokers


def _replication(data: dict[str, Any], statistics: Statistics, brokers: list[str], findings: Findings) -> None:
    """Sets the number of replicas of brokers: a scenario has one number for all."""
    # An even group tolerates as many failures as one with a replica less.
    sizes = {name: max(1, group.size - (group.size + 1) % 2) for name, group in sorted(statistics.groups.items())}
    for name, group in sorted(statistics.groups.items()):
        logs = len({incarnation.broker for incarnation in group.incarnations})
        findings.notes.append(
            f"{name} is a group of {group.size} replicas, with the logs of {logs}: what they have in common counts "
            "once, and its availability is that of one replica."
        )
    logged = {incarnation.broker for incarnation in statistics.incarnations}
    numbers = {sizes.get(name, 1) for name in (logged or brokers)}
    if not sizes or numbers == {1}:
        return
    if len(numbers) > 1:
        why = f"brokers have {', '.join(map(str, sorted(numbers)))} replicas, and a scenario has one number for all"
        findings.missing.append(Missing("delivery.replication.replicas", why, "learn from the logs of equal groups"))
        return
    delivery = dict(data.get("delivery", {}))
    data["delivery"] = {**delivery, "replication": {**delivery.get("replication", {}), "replicas": numbers.pop()}}


def _note_aside(statistics: Statistics, findings: Findings) -> None:
    """Notes which messages are left out."""
    own = [row for row in statistics.aside if not row.client]
    for rows, whose in (
        (own, "that brokers published themselves"),
        ([row for row in statistics.aside if row.client], "of probes"),
    ):
        if rows:
            topics = sorted({row.topic for row in rows})
            named = f"{', '.join(topics[:3])}{' and more' if len(topics) > 3 else ''}"
            findings.notes.append(f"{sum(row.messages for row in rows)} messages {whose}, on {named}, are left out.")


def _links(brokers: list[str], links: list[ObservedComponent], findings: Findings) -> list[list[str]]:
    """Returns the links in traces, and as many more as make the overlay connected."""
    group = {name: name for name in brokers}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    joined: dict[frozenset[str], list[str]] = {}
    for link in links:
        a, b = link.name.split("--", 1)
        joined.setdefault(frozenset((a, b)), [a, b])
        group[root(a)] = root(b)
    assumed = 0
    for name in brokers[1:]:
        if root(name) != root(brokers[0]):
            joined[frozenset((brokers[0], name))] = [brokers[0], name]
            group[root(name)] = root(brokers[0])
            assumed += 1
    if assumed:
        why = f"logs do not tell how brokers are linked; {assumed} links to {brokers[0]} are assumed"
        to_log = "give the overlay with --base, or traces of links named a--b"
        findings.missing.append(Missing("overlay.links", why, to_log))
    return list(joined.values())


def _both_ways(overlay: dict[str, Any]) -> set[str]:
    return {f"{x}--{y}" for a, b in overlay.get("links", []) for x, y in ((a, b), (b, a))}


def _availability(
    data: dict[str, Any], components: list[ObservedComponent], placed: set[str], findings: Findings
) -> None:
    each = dict(data.get("availability", {}).get("each", {}))
    unknown = []
    drifts = {kind: _drifts(components, kind, findings) for kind in ("broker", "link")}
    for component in components:
        if component.kind == "connection":
            continue
        turned = "--".join(reversed(component.name.split("--", 1)))
        if component.name not in placed and turned not in placed:
            unknown.append(component.name)
            continue
        pair = fit_pair(component.times.up, component.times.down)
        if isinstance(pair, str):
            to_log = "it is taken as never failing; log for longer, or give it a value of your own"
            findings.missing.append(Missing(f"availability of {component.kind} {component.name}", pair, to_log))
            continue
        each.pop(turned, None)
        each[component.name] = {**law_fields(pair[0], "mtbf", "up"), **law_fields(pair[1], "mttr", "down")}
        path = ("availability", "each", component.name)
        for fit, field, drift in zip(pair, ("mtbf", "mttr"), drifts[component.kind], strict=True):
            findings.paths.append(fit_estimate((*path, field), f"{component.name} {field}", fit, drift))
        _note_changes(component, findings)
    if each:
        data["availability"] = {**data.get("availability", {}), "each": each}
    if unknown:
        why = f"{', '.join(unknown[:5])}{' and more' if len(unknown) > 5 else ''} are in traces only"
        to_log = "give traces the names of brokers, or of links as a--b"
        findings.missing.append(Missing(f"place of {len(unknown)} components", why, to_log))
    if not any("--" in name for name in each) and len([name for name in placed if "--" not in name]) > 1:
        to_log = "put a trace of each link, with the component a--b, among the inputs"
        findings.missing.append(Missing("availability of links", "brokers do not log their links", to_log))


def _drifts(components: list[ObservedComponent], kind: str, findings: Findings) -> tuple[float, float]:
    """Returns how the mean times up and down of components of a kind drift, and notes it."""
    periods = [component.periods for component in components if component.kind == kind]
    drifts = drift_of(periods, up=True), drift_of(periods, up=False)
    if any(drifts):
        factors = " and ".join(f"{math.exp(drift):.3g}" for drift in drifts)
        findings.notes.append(
            f"From the first to the second half of the observation the mean times up and down of {len(periods)} "
            f"{kind}s drift by factors of about {factors} beyond chance; the intervals have it in them."
        )
    return drifts


def _note_changes(component: ObservedComponent, findings: Findings) -> None:
    """Notes a trend of a component, and the time at which its failures changed."""
    trend = trend_of(component.periods)
    if trend is not None:
        factor, word = (trend, "rarer") if trend > 1.0 else (1.0 / trend, "more frequent")
        findings.notes.append(
            f"Failures of {component.name} have a trend: in the second half of the observation they are {word} by a "
            f"factor of {factor:.3g}."
        )
    change = change_of(component.periods)
    if change is not None:
        findings.notes.append(f"{component.name}: {change}. The means before and after it are in one estimate.")


def _subscriptions(statistics: Statistics, findings: Findings) -> dict[str, Any] | None:
    """Returns rate and lifetime of subscriptions; None where none ended."""
    observed_s = sum(incarnation.up_to_s - incarnation.up_from_s for incarnation in statistics.incarnations)
    lifetimes = statistics.lifetimes
    if lifetimes is None or lifetimes.ends <= 0 or not statistics.arrivals or observed_s <= 0:
        why = "no subscription ended while the log was written"
        findings.missing.append(Missing("subscription lifetime", why, "log `subscribed` and `unsubscribed` for longer"))
        return None
    span_s = max(incarnation.up_to_s for incarnation in statistics.incarnations) - statistics.start_s
    rate = fit_rate(np.array([float(statistics.arrivals)]), np.array([span_s]))
    fit = choose_lifetime(lifetimes)
    path = ("workload", "subscriptions")
    numbers = (rate.rate_per_s, rate.low_per_s, rate.high_per_s)
    verdict = "Poisson taken"
    findings.paths.append(
        estimate_at((*path, "rate"), "new subscriptions", numbers, "1/s", statistics.arrivals, verdict)
    )
    findings.paths.append(fit_estimate((*path, "lifetime"), "subscription lifetime", fit))
    return {"rate": rate_text(rate.rate_per_s), "lifetime": distribution(fit)}


def _uses(statistics: Statistics) -> dict[str, tuple[Counter[str], Counter[str]]]:
    """Returns messages and subscriptions of each topic, by broker."""
    uses: dict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for row in statistics.published:
        uses[row.topic][0][row.broker] += row.messages
    for (broker, _), topics in topic_choices(statistics).items():
        for topic in topics:
            uses[topic][1][broker] += 1
    return dict(uses)


def _locality(statistics: Statistics, findings: Findings) -> dict[str, tuple[str, float]]:
    """Returns the hot spot of each topic that has one, and the share of its publications that come from there."""
    brokers = {incarnation.broker for incarnation in statistics.incarnations}
    if len(brokers) < 2:
        to_log = "put the logs of all brokers among the inputs"
        findings.missing.append(Missing("locality", "there is the log of one broker only", to_log))
        return {}
    local: dict[str, tuple[str, float]] = {}
    for topic, (published, _) in sorted(_uses(statistics).items()):
        whole = sum(published.values())
        if not whole:
            continue
        broker, part = max(published.items(), key=lambda item: (item[1], item[0]))
        low, high = share_interval(part, whole)
        even = 1.0 / len(brokers)
        hot = low > even
        verdict = f"hot spot {broker}" if hot else "no more than an even share"
        path = ("workload", "classes", "locality")
        findings.paths.append(estimate_at(path, f"locality of {topic}", (part / whole, low, high), "", whole, verdict))
        if hot:
            local[topic] = (broker, part / whole)
    return local


def _filters(samples: FilterSamples | None, workload: str, findings: Findings) -> list[dict[str, Any]]:
    fits = [] if samples is None else fit_attributes(samples)
    if not fits:
        why = "brokers log no attributes and no content filters" if samples is None else "no attribute has both"
        to_log = "give samples of notifications and of filters with --filters"
        findings.missing.append(Missing("workload.filters", why, to_log))
        return []
    for fit in fits:
        numbers = (fit.constrained, fit.low, fit.high)
        verdict = f"histograms of {fit.values} values and {fit.intervals} intervals, {fit.half_open} of them half open"
        subject = f"share of subscriptions that ask for {fit.spec['name']}"
        path = ("workload", "filters")
        findings.paths.append(estimate_at(path, subject, numbers, "", fit.intervals, verdict))
    if samples is not None and samples.skipped:
        findings.notes.append(f"{samples.skipped} attributes of samples are no numbers, and in no histogram.")
    if workload == "topics":
        findings.notes.append("Filter statistics belong to filter classes: write them with --workload classes.")
    return [fit.spec for fit in fits]


def _classes(
    data: dict[str, Any],
    statistics: Statistics,
    subscriptions: dict[str, Any] | None,
    local: dict[str, tuple[str, float]],
    filters: list[dict[str, Any]],
    findings: Findings,
) -> dict[str, Any]:
    """Returns the workload of filter classes: each topic is a class; publications and subscriptions have one weight."""
    if subscriptions is None or not statistics.published:
        raise AssumptionError(
            "--workload classes: broker_events has no subscription that ended, or no publication; use --workload topics"
        )
    findings.paths = [each for each in findings.paths if each[0][:2] not in _TOPIC_FIELDS]
    uses = _uses(statistics)
    totals = [max(sum(sum(each[i].values()) for each in uses.values()), 1) for i in (0, 1)]
    weights = {
        topic: sum(sum(each[i].values()) / totals[i] for i in (0, 1)) / 2.0 for topic, each in sorted(uses.items())
    }
    clients: Counter[str] = Counter()
    everyone = {(row.broker, row.client) for row in statistics.published}
    everyone |= {(row.broker, row.client) for row in statistics.subscriptions}
    for broker, _ in everyone:
        clients[broker] += 1
    placed = "network" not in data and len(clients) > 1 and _given_network(data)
    classes = []
    for topic, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        entry: dict[str, Any] = {"name": topic, "weight": float(f"{weight:.6g}")}
        if placed and topic in local and clients[local[topic][0]]:
            entry |= {"hot_spot": local[topic][0], "locality": float(f"{local[topic][1]:.6g}")}
        classes.append(entry)
    rate = _all_publications(statistics, sorted(everyone), findings)
    return {
        "classes": classes,
        **({"filters": filters} if filters else {}),
        "clients": [
            {"name": f"client of {each}", "count": count, "home": each} for each, count in sorted(clients.items())
        ],
        "subscriptions": subscriptions,
        "publications": rate,
    }


_TOPIC_FIELDS: Final = tuple(
    ("workload", each) for each in ("publishers", "subscribers", "deadline", "popularity_exponent")
)


def _given_network(data: dict[str, Any]) -> bool:
    """Returns one router and one domain for each broker, so that classes can have a hot spot."""
    overlay = data["overlay"]
    names = [each["name"] for each in overlay["brokers"]]
    data["network"] = {
        "kind": "given",
        "routers": [{"name": name, "domain": name} for name in names],
        "links": [{"between": link} for link in overlay.get("links", [])],
    }
    overlay["brokers"] = [{"name": name, "at": name} for name in names]
    return True


def _all_publications(statistics: Statistics, clients: list[Client], findings: Findings) -> str:
    exposure = np.zeros(1)
    for broker in sorted({incarnation.broker for incarnation in statistics.incarnations}):
        publishers = [client for home, client in statistics.held if home == broker]
        exposure = exposure + np.max([exposures(statistics, broker, each) for each in (None, *publishers)], axis=0)
    watched = np.minimum(exposure, statistics.window_s)
    fit = fit_rate(window_counts(statistics, clients, len(exposure)), watched)
    numbers = (fit.rate_per_s, fit.low_per_s, fit.high_per_s)
    path = ("workload", "publications")
    findings.paths.append(estimate_at(path, "publications", numbers, "1/s", fit.events, fit.verdict))
    return rate_text(fit.rate_per_s)


def _always_missing(data: dict[str, Any], findings: Findings) -> None:
    if not any("capacity" in each or "service" in each for each in data["overlay"]["brokers"]):
        to_log = "give overlay.brokers a capacity, from a load test of your machine"
        why = "a log does not say how long a broker works on a message"
        findings.missing.append(Missing("service time of brokers", why, to_log))
