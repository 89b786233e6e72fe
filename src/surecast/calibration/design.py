"""The loads that a calibration puts on a broker: what each is made of, and in which order they come."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from surecast.load import LoadPlan
from surecast.profile import BrokerLoad

__all__ = ["FULL", "HELD_OUT", "OVERLOADS", "PATTERNS", "Pattern", "Point", "load_of", "main_points"]

Purpose = Literal["pilot", "fit", "full", "held-out", "again", "overload"]

_LEVELS: Final = (0.35, 0.6, 0.85)
_QUICK_LEVELS: Final = (0.3, 0.75)
_HELD_OUT_LEVELS: Final = (0.25, 0.5, 0.7, 0.85)


@dataclass(frozen=True, eq=False)
class Pattern:
    """A shape of load. `fields` are those of a load's plan that differ from one topic with one subscriber."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, base: LoadPlan, **more: Any) -> LoadPlan:
        """Returns the plan of a load of this shape."""
        return replace(base, **{**self.fields, **more})


def _pattern(name: str, **fields: Any) -> Pattern:
    return Pattern(name, {"publishers": 20, **fields})


PATTERNS: Final = (
    _pattern("1 subscriber"),
    _pattern("no subscriber", subscribers=0),
    _pattern("no subscriber, QoS 1", subscribers=0, qos=1),
    _pattern("1 subscriber, QoS 1", qos=1),
    _pattern("5 subscribers", subscribers=5),
    _pattern("20 pairs", subscribers=20, topics=20),
    _pattern("20 pairs, QoS 1", subscribers=20, topics=20, qos=1, size_bytes=200),
    _pattern("200 publishers", publishers=200, topics=200, wildcard=True),
    _pattern("10 subscribers, QoS 1", subscribers=10, qos=1),
    _pattern("40 subscribers, QoS 1", subscribers=40, qos=1, size_bytes=200),
    _pattern("40 subscribers", subscribers=40),
    _pattern("1,000 bytes", size_bytes=1000),
    _pattern("4,000 bytes, 5 subscribers", size_bytes=4000, subscribers=5),
    _pattern("4,000 bytes, no subscriber", size_bytes=4000, subscribers=0),
    _pattern("1,000 more subscriptions", subscribers=5, more_filters=200),
    _pattern("500 idle connections", idle=500),
)
"""The loads that costs are estimated from. Each differs from others in one respect."""

HELD_OUT: Final = (
    _pattern("50 to 3, 300 bytes, QoS 1", publishers=50, subscribers=3, size_bytes=300, qos=1),
    _pattern("30 pairs, 100 bytes", publishers=30, subscribers=30, topics=30, size_bytes=100),
    _pattern("40 to 25, 500 bytes, QoS 1", publishers=40, subscribers=25, size_bytes=500, qos=1),
    _pattern("100 to 8, 1,500 bytes", publishers=100, subscribers=8, size_bytes=1500),
)
"""Loads that only check what the costs say: other fan-outs, sizes and mixes."""

FULL: Final = (
    _pattern("200 to none, full", publishers=200, subscribers=0),
    _pattern("200 to none, QoS 1, full", publishers=200, subscribers=0, qos=1),
    _pattern("200 to 1, full", publishers=200),
    _pattern("200 to 1, QoS 1, full", publishers=200, qos=1),
    _pattern("200 to 10, full", publishers=200, subscribers=10),
    _pattern("100 to 10, QoS 1, full", publishers=100, subscribers=10, qos=1),
    _pattern("100 to 3, 2,000 bytes, full", publishers=100, subscribers=3, size_bytes=2000),
)
"""Loads without a rate, as those of `OVERLOADS`, for the costs: only a broker without rest shows its work alone."""

OVERLOADS: Final = (
    _pattern("200 to 1, QoS 1", publishers=200, topics=200, wildcard=True, qos=1, size_bytes=200),
    _pattern("100 to 5, QoS 0", publishers=100, subscribers=5),
)
"""Loads that check the largest rate: each publisher sends its next message, alone in its write, when the one before has
come."""


@dataclass(frozen=True)
class Point:
    """One measurement: a pattern at a part of the rate at which it was estimated to fill one core."""

    pattern: Pattern
    purpose: Purpose
    level: float = 0.0


def main_points(quick: bool, seed: int) -> list[Point]:
    """Returns the measurements in their order, which is drawn: drift must not look like a cost.

    Loads measured again come at the end, so that drift shows in them.
    """
    draw = random.Random(seed)
    points = [Point(pattern, "fit", level) for pattern in PATTERNS for level in (_QUICK_LEVELS if quick else _LEVELS)]
    points += [Point(pattern, "full") for pattern in FULL]
    points += [Point(p, "held-out", level) for p, level in zip(HELD_OUT, _HELD_OUT_LEVELS, strict=True)]
    draw.shuffle(points)
    again = draw.sample([point for point in points if point.purpose == "fit"], 3 if quick else 6)
    return points + [Point(point.pattern, "again", point.level) for point in again]


def load_of(plan: LoadPlan, sent_per_s: float, delivered_per_s: float) -> BrokerLoad:
    """Returns what a broker carried, from what was sent and delivered."""
    is_acknowledged = float(plan.qos > 0)
    size = (plan.size_bytes + max(plan.size_bytes, plan.size_max_bytes)) / 2.0
    return BrokerLoad(
        messages_per_s=sent_per_s,
        deliveries_per_s=delivered_per_s,
        received_bytes_per_s=sent_per_s * size,
        sent_bytes_per_s=delivered_per_s * size,
        acknowledged_messages_per_s=sent_per_s * is_acknowledged,
        acknowledged_deliveries_per_s=delivered_per_s * is_acknowledged,
        receivers=float(plan.subscribers),
        subscriptions=float(plan.subscribers * (1 + plan.more_filters)),
        connections=float(plan.publishers + plan.subscribers + plan.idle),
    )
