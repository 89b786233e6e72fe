"""The statistics that estimation needs of the tables: counts, incarnations, and times in bins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from surecast.pipeline.learn.samples import Times

__all__ = [
    "BINS_PER_E",
    "AvailabilityRow",
    "Client",
    "Deadline",
    "ObservedPublications",
    "ObservedSubscription",
    "ReplicaSet",
    "Statistics",
    "UptimeRow",
    "binned",
]

BINS_PER_E = 500.0
"""Times that differ by less than a five-hundredth of themselves are counted together, with their mean."""

Client = tuple[str, str]
"""A broker's name, and that of a client of it."""


@dataclass(frozen=True, slots=True)
class UptimeRow:
    """A row of `broker_uptime`."""

    broker: str
    up_from_s: float
    up_to_s: float
    ended_by: str
    seen_start: bool


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """A broker that is a group: how many replicas it has, and the incarnations of those whose logs there are."""

    size: int
    incarnations: tuple[UptimeRow, ...]


@dataclass(frozen=True, slots=True)
class AvailabilityRow:
    """A row of `availability`."""

    source: str
    trace: str
    component: str
    up: bool
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class ObservedPublications:
    """Messages that a client published on a topic."""

    broker: str
    client: str
    topic: str
    messages: int


@dataclass(frozen=True, slots=True)
class ObservedSubscription:
    """A topic filter that a client subscribed to; `held` if it still did when the log ended."""

    broker: str
    client: str
    filter: str
    held: bool


@dataclass(frozen=True, slots=True)
class Deadline:
    """The deadline that most messages of a publisher had, and how many of all."""

    deadline_s: float
    messages: int
    of: int


@dataclass(frozen=True)
class Statistics:
    """All of it. `windows` has the messages of each publisher by number of the window of `window_s` since `start_s`."""

    incarnations: tuple[UptimeRow, ...] = ()
    """The periods in which each broker served; a group serves while a majority of its replicas is up."""
    groups: Mapping[str, ReplicaSet] = field(default_factory=dict)
    """The brokers that are groups, by name."""
    alive_s: Mapping[str, float] = field(default_factory=dict)
    """Time between two signs that it is up of each broker or replica: what the time of a crash is known to."""
    intervals: tuple[AvailabilityRow, ...] = ()
    on: Mapping[Client, Times] = field(default_factory=dict)
    off: Mapping[Client, Times] = field(default_factory=dict)
    published: tuple[ObservedPublications, ...] = ()
    aside: tuple[ObservedPublications, ...] = ()
    """Messages that are no publisher's: the broker's own, which have no client, and those of probes."""
    deadlines: Mapping[Client, Deadline] = field(default_factory=dict)
    windows: Mapping[Client, Mapping[int, int]] = field(default_factory=dict)
    held: Mapping[Client, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """Spans before a broker was up again from which it then got messages of a publisher: it had gone on publishing."""
    start_s: float = 0.0
    window_s: float = 60.0
    gap_variation: Mapping[Client, float] = field(default_factory=dict)
    subscriptions: tuple[ObservedSubscription, ...] = ()
    arrivals: int = 0
    """Subscriptions that were made while the log was written."""
    lifetimes: Times | None = None
    """Of subscriptions."""
    service: Mapping[Client, Times] = field(default_factory=dict)
    """Between two deliveries to a subscriber for whom more was waiting."""


def binned(rows: Iterable[tuple[bool, int, float]]) -> Times:
    """Returns times from rows (ended, count, sum) of bins.

    >>> binned([(True, 2, 6.0), (False, 1, 5.0)]).ends
    2.0
    """
    bins = [(ended, count, total / count) for ended, count, total in rows if count and total > 0]
    return Times(
        np.array([mean for _, _, mean in bins], dtype=np.float64),
        np.array([count for _, count, _ in bins], dtype=np.float64),
        np.array([ended for ended, _, _ in bins], dtype=np.bool_),
    )


def bin_of(length_s: float) -> int:
    """Returns the bin of a time."""
    return math.floor(math.log(length_s) * BINS_PER_E)
