"""Advice by reliability: promises, home brokers, components to improve, and the cheapest scheme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.prediction.reliability import predict_reliability, subscriber_reliabilities
from surecast.report import QoSReport
from surecast.scenario import Failures, Subscriber, System
from surecast.scenario.spec.delivery import SCHEMES as ALL_SCHEMES

__all__ = [
    "SCHEMES",
    "Alternatives",
    "HomeChoice",
    "Improvement",
    "ReliabilityPromise",
    "SchemeChoice",
    "admit",
    "alternatives_of",
    "choose_homes",
    "compare_schemes",
    "current_scheme",
    "improvements",
    "message_price",
]

SCHEMES = ALL_SCHEMES[1:]
"""The schemes worth choosing between: without any, nothing arrives in the long run."""


@dataclass(frozen=True)
class Alternatives:
    """Reliability by scheme, topics and home broker; NaN where nobody publishes the topics.

    `topics` lists the distinct sets of topics, `wants` has the index of each subscriber's; `reliability[scheme]` has
    one row per set of topics and one column per broker; `price[scheme]` is in messages per event.
    """

    topics: tuple[tuple[str, ...], ...]
    wants: tuple[int, ...]
    reliability: dict[str, NDArray[np.float64]]
    price: dict[str, float]

    def by_price(self) -> list[str]:
        """Schemes, the cheapest first."""
        return sorted(self.reliability, key=lambda scheme: self.price[scheme])


def current_scheme(system: System) -> str:
    """Returns the scheme the scenario asks for."""
    return system.delivery.fault_tolerance.scheme


def alternatives_of(system: System, schemes: Sequence[str] = SCHEMES) -> Alternatives:
    """Predicts all home brokers and schemes for all interests of a system."""
    if not system.subscribers:
        raise AssumptionError("there are no subscribers to plan for; add workload.subscribers")
    index: dict[tuple[str, ...], int] = {}
    wants = tuple(index.setdefault(tuple(sorted(s.topics)), len(index)) for s in system.subscribers)
    topics, brokers = tuple(index), range(len(system.overlay.brokers))
    stand_ins = tuple(Subscriber(f"{i}/{b}", b, wanted) for i, wanted in enumerate(topics) for b in brokers)
    report = predict_reliability(replace(system, subscribers=stand_ins), schemes, load=system)
    table = {}
    for scheme in schemes:
        reliability = report.values("reliability", scope="subscriber", variant=scheme)
        table[scheme] = np.array([[reliability.get(f"{i}/{b}", np.nan) for b in brokers] for i in range(len(topics))])
    actual = predict_reliability(system, schemes)
    return Alternatives(topics, wants, table, {scheme: message_price(actual, scheme) for scheme in schemes})


def message_price(report: QoSReport, scheme: str) -> float:
    """Returns messages over overlay links for one published event, of all kinds together."""
    figures = list(report.figures(scope="system", metric="messages_per_event", variant=scheme))
    total = [figure.value for figure in figures if not figure.detail]
    return total[0] if total else sum(figure.value for figure in figures)


@dataclass(frozen=True, slots=True)
class ReliabilityPromise:
    """The reliability that one subscriber can be promised.

    `other_scheme` is the cheapest scheme, and `other_home` the best home broker, that would meet the target where it
    is not met; `best` is the most it can get anywhere. `reliability` is None where nobody publishes its topics.
    """

    subscriber: str
    home: str
    target: float
    reliability: float | None
    met: bool
    other_scheme: str | None = None
    other_home: str | None = None
    best: float | None = None


def admit(system: System) -> list[ReliabilityPromise]:
    """Returns one promise for each subscriber that has a target, those that cannot be promised first, worst first."""
    alternatives = alternatives_of(system)
    if current_scheme(system) not in alternatives.reliability:
        raise AssumptionError("without a fault-tolerance scheme nothing can be promised; set delivery.fault_tolerance")
    promises = [
        _promise(system, subscriber, wants, alternatives)
        for subscriber, wants in zip(system.subscribers, alternatives.wants, strict=True)
        if subscriber.reliability_target is not None
    ]
    if not promises:
        raise AssumptionError("no subscriber has a reliability target; set targets.reliability or reliability_target")
    return sorted(promises, key=lambda p: (p.met, p.reliability if p.reliability is not None else -1.0))


def _promise(system: System, subscriber: Subscriber, wants: int, alternatives: Alternatives) -> ReliabilityPromise:
    target = subscriber.reliability_target or 0.0
    names = [broker.name for broker in system.overlay.brokers]
    here = alternatives.reliability[current_scheme(system)][wants]
    value = float(here[subscriber.home])
    home = names[subscriber.home]
    if np.isnan(value):
        return ReliabilityPromise(subscriber.name, home, target, None, False)
    best = max(float(np.nanmax(table[wants])) for table in alternatives.reliability.values())
    if value >= target:
        return ReliabilityPromise(subscriber.name, home, target, value, True, best=best)
    schemes = [s for s in alternatives.by_price() if alternatives.reliability[s][wants, subscriber.home] >= target]
    other_home = int(np.nanargmax(here))
    return ReliabilityPromise(
        subscriber.name,
        home,
        target,
        value,
        False,
        schemes[0] if schemes else None,
        names[other_home] if here[other_home] >= target else None,
        best,
    )


@dataclass(frozen=True)
class HomeChoice:
    """A home broker for each subscriber, with the reliability before and after; NaN where nobody publishes to it."""

    subscribers: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    reliability_before: NDArray[np.float64]
    reliability_after: NDArray[np.float64]

    @property
    def moved(self) -> int:
        return sum(a != b for a, b in zip(self.before, self.after, strict=True))


def choose_homes(system: System, *, limit: int | None = None) -> HomeChoice:
    """Returns the home brokers that give the largest mean reliability, with at most `limit` subscribers at a broker.

    Subscribers that want the same topics are interchangeable, so this is a transportation problem: the answer is
    optimal. Nobody moves where moving gains nothing.
    """
    scheme, brokers = current_scheme(system), len(system.overlay.brokers)
    if limit is not None and limit * brokers < len(system.subscribers):
        fewest = -(-len(system.subscribers) // brokers)
        raise AssumptionError(f"{len(system.subscribers)} subscribers do not fit: the limit must be at least {fewest}")
    alternatives = alternatives_of(system, [scheme])
    table, wants = alternatives.reliability[scheme], np.array(alternatives.wants)
    homes = np.array([subscriber.home for subscriber in system.subscribers])
    gain = np.nan_to_num(table[wants])
    # Where two homes are equally good, staying is better than moving.
    gain[np.arange(len(homes)), homes] += 1e-9
    chosen = np.argmax(gain, axis=1) if limit is None else _within(gain, limit)
    names = [broker.name for broker in system.overlay.brokers]
    return HomeChoice(
        tuple(subscriber.name for subscriber in system.subscribers),
        tuple(names[i] for i in homes),
        tuple(names[i] for i in chosen),
        table[wants, homes],
        table[wants, chosen],
    )


def _within(gain: NDArray[np.float64], limit: int) -> NDArray[np.intp]:
    """Returns the best assignment with `limit` places at each broker."""
    from scipy.optimize import linear_sum_assignment

    slots = np.repeat(np.arange(gain.shape[1]), min(limit, gain.shape[0]))
    rows, columns = linear_sum_assignment(gain[:, slots], maximize=True)
    chosen = np.empty(len(rows), dtype=np.intp)
    chosen[rows] = slots[columns]
    return chosen


STEP = 0.02


@dataclass(frozen=True, slots=True)
class Improvement:
    """The gain of a better component for the subscribers, on average.

    `derivative` is the gain in mean reliability per unit of availability; `gain_half_repair` the gain if repairs took
    half as long, `gain_perfect` if it never failed.
    """

    component: str
    kind: str
    availability: float
    derivative: float
    gain_half_repair: float
    gain_perfect: float


def improvements(system: System) -> list[Improvement]:
    """Returns every component that fails, the most worthwhile to improve first."""
    scheme = current_scheme(system)
    base = _mean(system, scheme)
    ranking = []
    overlay = system.overlay
    parts = [("broker", i, b.name, b.failures) for i, b in enumerate(overlay.brokers)]
    parts += [("link", i, link.name, link.failures) for i, link in enumerate(overlay.links)]
    for kind, i, name, failures in parts:
        if failures is None:
            continue
        slower, faster = (_with(system, kind, i, _repairs(failures, 1 + s * STEP)) for s in (1, -1))
        step = _repairs(failures, 1 - STEP).availability - _repairs(failures, 1 + STEP).availability
        derivative = (_mean(faster, scheme) - _mean(slower, scheme)) / step
        half = _mean(_with(system, kind, i, _repairs(failures, 0.5)), scheme) - base
        perfect = _mean(_with(system, kind, i, None), scheme) - base
        ranking.append(Improvement(name, kind, failures.availability, derivative, half, perfect))
    if not ranking:
        raise AssumptionError("no component of the overlay ever fails: there is nothing to improve")
    return sorted(ranking, key=lambda improvement: -improvement.gain_half_repair)


def _repairs(failures: Failures, factor: float) -> Failures:
    return replace(failures, down=failures.down.with_mean(failures.mttr_s * factor))


def _with(system: System, kind: str, index: int, failures: Failures | None) -> System:
    overlay = system.overlay
    if kind == "broker":
        brokers = list(overlay.brokers)
        brokers[index] = replace(brokers[index], failures=failures)
        return replace(system, overlay=replace(overlay, brokers=tuple(brokers)))
    links = list(overlay.links)
    links[index] = replace(links[index], failures=failures)
    return replace(system, overlay=replace(overlay, links=tuple(links)))


def _mean(system: System, scheme: str) -> float:
    values = subscriber_reliabilities(system, scheme)
    if not values:
        raise AssumptionError("no subscriber wants what is published: there is no reliability to improve")
    return sum(values.values()) / len(values)


@dataclass(frozen=True, slots=True)
class SchemeChoice:
    """One scheme: its price in messages per event, and what subscribers get. `meets_all` is None without targets.

    `targets` counts the subscribers that have one; those whose topics nobody publishes are left aside.
    """

    scheme: str
    messages_per_event: float
    mean: float
    worst: float
    targets: int
    met: int
    meets_all: bool | None
    cheapest: bool


def compare_schemes(system: System) -> list[SchemeChoice]:
    """Returns all schemes, the cheapest first; the first that meets all targets is marked."""
    report = predict_reliability(system, SCHEMES)
    targets = {s.name: s.reliability_target for s in system.subscribers if s.reliability_target is not None}
    choices: list[SchemeChoice] = []
    for scheme in sorted(SCHEMES, key=lambda name: message_price(report, name)):
        values = report.values("reliability", scope="subscriber", variant=scheme)
        served = {name: target for name, target in targets.items() if name in values}
        met = sum(values[name] >= target for name, target in served.items())
        meets_all = met == len(served) if served else None
        cheapest = meets_all is True and not any(choice.cheapest for choice in choices)
        numbers = np.array(list(values.values())) if values else np.array([np.nan])
        choices.append(
            SchemeChoice(
                scheme,
                message_price(report, scheme),
                float(numbers.mean()),
                float(numbers.min()),
                len(served),
                met,
                meets_all,
                cheapest,
            )
        )
    return choices
