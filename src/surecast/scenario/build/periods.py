"""Resolves the periods of a workload of filter classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.documents.source import FieldPath
from surecast.scenario.build.collect import Collector
from surecast.scenario.spec.workload import PeriodSpec

__all__ = ["RatePeriod", "build_periods"]

PERIODS: FieldPath = ("workload", "periods")


@dataclass(frozen=True)
class RatePeriod:
    """A share of the time in which the rates of each class are these factors times the workload's."""

    name: str
    share: float
    publications: NDArray[np.float64]
    subscriptions: NDArray[np.float64]


def build_periods(
    periods: Sequence[PeriodSpec], classes: Sequence[tuple[str, str]], collect: Collector
) -> tuple[RatePeriod, ...]:
    """Returns the periods with a factor for every class; shares are made to sum to 1 exactly.

    `classes` has the name of each class and the name of its group, which are the same for a class alone.

    >>> day = [PeriodSpec(name="busy", share=0.25, classes=[{"name": "b", "publications": 3}]),
    ...        PeriodSpec(name="rest", share=0.75)]
    >>> busy = build_periods(day, [("a", "a"), ("b-1", "b"), ("b-2", "b")], Collector(None, "example"))[0]
    >>> busy.publications.tolist(), busy.subscriptions.tolist()
    ([1.0, 3.0, 3.0], [1.0, 1.0, 1.0])
    """
    total = sum(period.share for period in periods)
    built = []
    for i, period in enumerate(periods):
        publications = np.full(len(classes), float(period.publications))
        subscriptions = np.full(len(classes), float(period.subscriptions))
        for j, change in enumerate(period.classes):
            meant = [k for k, names in enumerate(classes) if change.name in names]
            if not meant:
                existing = list(dict.fromkeys(name for pair in classes for name in pair))
                collect.unknown((*PERIODS, i, "classes", j, "name"), "class", change.name, existing)
            if change.publications is not None:
                publications[meant] = change.publications
            if change.subscriptions is not None:
                subscriptions[meant] = change.subscriptions
        built.append(RatePeriod(period.name, period.share / total, publications, subscriptions))
    return tuple(built)
