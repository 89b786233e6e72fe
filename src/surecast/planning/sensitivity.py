"""The component to improve first: the derivative of reliability by the availability of each component."""

from __future__ import annotations

from dataclasses import dataclass, replace

from surecast.errors import AssumptionError
from surecast.planning.alternatives import current_scheme, reliabilities
from surecast.scenario import Failures, System

__all__ = ["Improvement", "improvements"]

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
    values = reliabilities(system, scheme)
    if not values:
        raise AssumptionError("no subscriber wants what is published: there is no reliability to improve")
    return sum(values.values()) / len(values)
