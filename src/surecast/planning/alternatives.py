"""The reliability of every subscriber at every home broker under every scheme, predicted together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.prediction import predict_reliability
from surecast.report import QoSReport
from surecast.scenario import Subscriber, System
from surecast.scenario.spec.delivery import SCHEMES as ALL_SCHEMES

__all__ = ["SCHEMES", "Alternatives", "alternatives_of", "current_scheme", "message_price", "reliabilities"]

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


def reliabilities(system: System, scheme: str) -> dict[str, float]:
    """Returns the predicted reliability of each subscriber that has one."""
    return predict_reliability(system, [scheme]).values("reliability", scope="subscriber", variant=scheme)
