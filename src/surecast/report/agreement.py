"""The agreement of two reports, family by family, and the figures that only one of them has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.report.columns import Columns, Floats, Groups
from surecast.report.report_summary import FAMILY

__all__ = ["Agreement", "Unmatched"]

_EXAMPLES = 3
UNKNOWN = -1
"""Stands in a column of yes (1) and no (0) where there is nothing to decide by."""
ROUNDING = 1e-12
"""Values that differ by no more than this, relatively, are equal but for rounding."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """All compared figures of one variant, scope, metric and detail.

    `mean_difference` has a sign (b - a); `largest` is the largest |b - a| and `largest_name` the component it is at;
    `correlation` is Pearson's, None where one side does not vary; `inside` is the share of consistent pairs among
    the `inside_count` pairs where an interval or a bound allows to decide, None where there are none.
    """

    variant: str
    scope: str
    metric: str
    detail: str
    count: int
    mean_difference: float
    mean_absolute: float
    root_mean_square: float
    largest: float
    largest_name: str
    disagreement: float
    correlation: float | None
    inside: float | None
    inside_count: int


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Figures of one variant, scope, metric and detail that only one of two reports has."""

    variant: str
    scope: str
    metric: str
    detail: str
    count: int
    examples: tuple[str, ...]


def agreements(a: Columns, b: Columns, distance: Floats, inside: NDArray[np.int8]) -> list[Agreement]:
    """Returns one row per family, in the order in which the families first appear."""
    families = Groups(a.keys(FAMILY))
    difference = b.value - a.value
    size = np.abs(difference)
    bias, mean_size = families.mean(difference), families.mean(size)
    squares = np.sqrt(families.mean(size**2))
    largest = families.largest_row(size)
    correlation = _correlation(families, a.value, b.value)
    decided = families.sum((inside >= 0).astype(np.float64))
    consistent = families.sum((inside == 1).astype(np.float64))
    rows = []
    for i, first in enumerate(families.first.tolist()):
        row = int(largest[i])
        r = float(correlation[i])
        rows.append(
            Agreement(
                *a.family(first),
                count=int(families.size[i]),
                mean_difference=float(bias[i]),
                mean_absolute=float(mean_size[i]),
                root_mean_square=float(squares[i]),
                largest=float(size[row]),
                largest_name=a.name[row],
                disagreement=float(distance[row]),
                correlation=None if r != r else r,
                inside=float(consistent[i] / decided[i]) if decided[i] else None,
                inside_count=int(decided[i]),
            )
        )
    return rows


def _correlation(families: Groups, a: Floats, b: Floats) -> Floats:
    """Returns Pearson's correlation by family; NaN where a side is constant."""
    deviations, spreads = [], []
    constant = np.zeros(len(families), dtype=np.bool_)
    for values in (a, b):
        top, bottom = values[families.largest_row(values)], values[families.largest_row(-values)]
        constant |= top == bottom
        width = np.where(top > bottom, top - bottom, 1.0)
        scaled = (values - bottom[families.of]) / width[families.of]
        deviation = scaled - (families.sum(scaled) / families.size)[families.of]
        deviations.append(deviation)
        spreads.append(np.sqrt(families.sum(deviation**2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        r = families.sum(deviations[0] * deviations[1]) / (spreads[0] * spreads[1])
    return np.where(constant, np.nan, np.clip(r, -1.0, 1.0))


def unmatched(columns: Columns) -> list[Unmatched]:
    """Returns one row per family, with the first few components as examples."""
    families = Groups(columns.keys(FAMILY))
    order = np.argsort(families.of, kind="stable")
    rows, start = [], 0
    for i, first in enumerate(families.first.tolist()):
        count = int(families.size[i])
        examples = tuple(columns.name[row] for row in order[start : start + min(count, _EXAMPLES)].tolist())
        named = tuple(name for name in examples if name)
        rows.append(Unmatched(*columns.family(first), count=count, examples=named))
        start += count
    return rows


def consistent(a: Columns, b: Columns) -> NDArray[np.int8]:
    """Returns whether each pair of figures is consistent with what is known about its accuracy: 1 yes, 0 no, -1
    unknown.

    The interval of b must contain the value of a; where only a has an interval, it must contain the value of b. The
    value of a bound stands for all values on its right side: 0.9 as a lower bound fits an interval from 0.94 to 0.96.
    """
    has_a, has_b = (~np.isnan(side.low) | ~np.isnan(side.high) for side in (a, b))
    (a_low, a_high, a_bound), (b_low, b_high, b_bound) = _reach(a), _reach(b)
    low_a, high_a = _interval(a)
    low_b, high_b = _interval(b)
    slack = ROUNDING * np.maximum(np.abs(a.value), np.abs(b.value))
    in_b = (low_b <= a_high + slack) & (a_low <= high_b + slack)
    in_a = (low_a <= b_high + slack) & (b_low <= high_a + slack)
    bounds = (a_low <= b_high + slack) & (b_low <= a_high + slack)
    answer = np.where(has_b, in_b, np.where(has_a, in_a, bounds)).astype(np.int8)
    return np.where(has_a | has_b | a_bound | b_bound, answer, np.int8(UNKNOWN)).astype(np.int8)


def _reach(side: Columns) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Returns the values a figure stands for, its interval aside: itself, or a half line where it is a bound."""
    lower, upper = side.how.is_word("lower_bound"), side.how.is_word("upper_bound")
    return np.where(upper, -np.inf, side.value), np.where(lower, np.inf, side.value), lower | upper


def _interval(side: Columns) -> tuple[Floats, Floats]:
    """Returns the interval, without end where an end is absent."""
    return np.where(np.isnan(side.low), -np.inf, side.low), np.where(np.isnan(side.high), np.inf, side.high)
