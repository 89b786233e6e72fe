"""Replicas of one group are one broker: when it served."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from surecast.pipeline.learn.component_times import process_periods
from surecast.pipeline.learn.log_statistics import ReplicaSet, UptimeRow

__all__ = ["Membership", "join_replicas", "serving"]

Membership = Mapping[str, tuple[str, int]]
"""The group of each replica, by the name in its log, and how many replicas it has."""


def join_replicas(
    incarnations: Iterable[UptimeRow], membership: Membership, alive_s: Mapping[str, float]
) -> tuple[tuple[UptimeRow, ...], dict[str, ReplicaSet]]:
    """Returns the incarnations of brokers, each group as a single broker, and the groups.

    >>> incarnations = [UptimeRow(name, 0.0, 60.0, "open", True) for name in ("g-1", "g-2", "alone")]
    >>> joined, groups = join_replicas(incarnations, {"g-1": ("g", 3), "g-2": ("g", 3)}, {})
    >>> [incarnation.broker for incarnation in joined], groups["g"].size
    (['alone', 'g'], 3)
    """
    alone: list[UptimeRow] = []
    of_group: dict[str, list[UptimeRow]] = defaultdict(list)
    for incarnation in incarnations:
        if incarnation.broker in membership:
            of_group[membership[incarnation.broker][0]].append(incarnation)
        else:
            alone.append(incarnation)
    groups = {}
    for name, own in sorted(of_group.items()):
        logs = len({incarnation.broker for incarnation in own})
        stated = max(size for group, size in membership.values() if group == name)
        groups[name] = ReplicaSet(max(stated, logs), tuple(own))
        alone += serving(name, groups[name], alive_s)
    return tuple(alone), groups


def serving(name: str, group: ReplicaSet, alive_s: Mapping[str, float]) -> list[UptimeRow]:
    """Returns the intervals in which a majority was up, and so the group served. Replicas without a log count as up.

    >>> three = ReplicaSet(3, (UptimeRow("g-1", 0.0, 9.0, "open", True), UptimeRow("g-2", 1.0, 4.0, "crash", True),
    ...                        UptimeRow("g-2", 6.0, 9.0, "open", True), UptimeRow("g-3", 0.0, 5.0, "open", True)))
    >>> [(incarnation.up_from_s, incarnation.up_to_s) for incarnation in serving("g", three, {})]
    [(0.0, 5.0), (6.0, 9.0)]
    """
    processes = process_periods(group.incarnations, alive_s)
    needed = max(1, group.size // 2 + 1 - (group.size - len(processes)))
    ups = [period for periods in processes.values() for period in periods if period.up]
    # At the same time, one that comes up goes before one that goes down.
    edges = sorted([(up.start_s, -1) for up in ups] + [(up.end_s, 1) for up in ups])
    spans: list[tuple[float, float]] = []
    count, since_s = 0, 0.0
    for at_s, step in edges:
        before, count = count, count - step
        if before < needed <= count:
            since_s = at_s
        elif count < needed <= before and at_s > since_s:
            spans.append((since_s, at_s))
    last = len(spans) - 1
    return [
        UptimeRow(name, start_s, end_s, "open" if i == last else "crash", True)
        for i, (start_s, end_s) in enumerate(spans)
    ]
