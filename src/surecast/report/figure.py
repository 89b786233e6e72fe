"""One figure of a report, and the words a figure is described with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["HOW", "SCOPES", "SOURCES", "Figure"]

SCOPES: Final[dict[str, str]] = {
    "system": "whole system",
    "subscriber": "subscriber",
    "publisher": "publisher",
    "broker": "broker",
    "overlay_link": "overlay link",
    "physical_link": "physical link",
    "router": "router",
    "class": "filter class",
}
"""The kinds of component that a figure can be about, and the words for them in a sentence."""

HOW: Final[dict[str, tuple[str, str]]] = {
    "exact": ("=", "exact under the model's assumptions"),
    "lower_bound": ("≥", "lower bound: the true value is at least this"),
    "upper_bound": ("≤", "upper bound: the true value is at most this"),
    "approximation": ("≈", "approximation"),
    "simulated": ("~", "simulated, with its 95 % confidence interval where one is shown"),
    "measured": ("•", "measured on the running system"),
}
"""The ways in which figures are obtained: the mark of each in tables, and its meaning."""

SOURCES: Final[tuple[str, ...]] = ("predicted", "simulated", "measured")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a report: what it is about, its value, and how it was obtained.

    `low` and `high` are the ends of a 95 % confidence interval, or bounds; None where there are none.

    >>> figure = Figure("subscriber", "s1", "reliability", 0.912, "simulated", low=0.909, high=0.915)
    >>> print(figure)
    subscriber s1, reliability: 0.912 [0.909, 0.915] (simulated)
    """

    scope: str
    name: str
    metric: str
    value: float
    how: str
    detail: str = ""
    variant: str = ""
    low: float | None = None
    high: float | None = None
    samples: int | None = None

    def __str__(self) -> str:
        low, high = ("" if end is None else f"{end:.6g}" for end in (self.low, self.high))
        interval = f" [{low}, {high}]" if low or high else ""
        return f"{self.where()}: {self.value:.6g}{interval} ({self.how})"

    def where(self) -> str:
        """Returns the key of the figure, in words.

        >>> Figure("broker", "b1", "rate_in_per_s", 5.0, "exact", detail="control", variant="covering").where()
        'covering: broker b1, rate_in_per_s by control'
        """
        return describe_key(self.variant, self.scope, self.name, self.metric, self.detail)


def describe_key(variant: str, scope: str, name: str, metric: str, detail: str) -> str:
    """Returns the key of a figure, in words."""
    component = f"{SCOPES.get(scope, scope)} {name}".rstrip()
    return f"{variant + ': ' if variant else ''}{component}, {metric}{' by ' + detail if detail else ''}"
