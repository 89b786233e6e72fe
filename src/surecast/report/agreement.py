"""How well two reports agree, family by family, and what only one of them has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.report.columns import Columns, Floats, Groups
from surecast.report.summary import FAMILY

__all__ = ["Agreement", "Unmatched"]

_EXAMPLES = 3


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
    """One row per family, in the order in which the families first appear."""
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
        at = int(largest[i])
        r = float(correlation[i])
        rows.append(
            Agreement(
                *a.family(first),
                count=int(families.size[i]),
                mean_difference=float(bias[i]),
                mean_absolute=float(mean_size[i]),
                root_mean_square=float(squares[i]),
                largest=float(size[at]),
                largest_name=a.name[at],
                disagreement=float(distance[at]),
                correlation=None if r != r else r,
                inside=float(consistent[i] / decided[i]) if decided[i] else None,
                inside_count=int(decided[i]),
            )
        )
    return rows


def _correlation(families: Groups, a: Floats, b: Floats) -> Floats:
    """Pearson's correlation by family; NaN where a side is constant."""
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
    """One row per family, with the first few components as examples."""
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
