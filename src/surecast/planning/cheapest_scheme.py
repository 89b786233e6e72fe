"""The cheapest fault-tolerance scheme that meets all targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surecast.planning.alternatives import SCHEMES, message_price
from surecast.prediction import predict_reliability
from surecast.scenario import System

__all__ = ["SchemeChoice", "compare_schemes"]


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
