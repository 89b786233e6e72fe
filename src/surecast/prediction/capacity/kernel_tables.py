"""The functions of x that forwarding needs, tabulated for compiled code.

Each octave of x is cut into equal cells, and a polynomial interpolates each function in each cell. The cell follows
from the exponent and the leading bits of x, so that a look-up takes no logarithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surecast.prediction.capacity.filter_probabilities import (
    ROUTINGS,
    notification_probability,
    remote_entries,
    subscription_probability,
)

__all__ = ["NOTIFY", "REMOTE", "SUBSCRIBE", "FilterFunctions", "ForwardingTables", "forwarding_tables", "look_up"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

NOTIFY, SUBSCRIBE, REMOTE = range(3)
"""Columns of `ForwardingTables.slots`: P_n, P_s and routing entries."""

CELLS: Final = 32
"""Cells of an octave."""
ORDER: Final = 6
"""Coefficients of a polynomial."""
LOWEST: Final = -40
OCTAVES: Final = 90
"""The tables go from 2**LOWEST to 2**(LOWEST + OCTAVES) subscriptions: below a function is linear, above a power."""


class FilterFunctions(Protocol):
    """Functions of x that say how filters of a class match and cover each other; by default those of uniform
    intervals."""

    def notification_probability(self, routing: str, x: ArrayLike) -> Array: ...

    def subscription_probability(self, routing: str, x: ArrayLike) -> Array: ...

    def remote_entries(self, routing: str, x: ArrayLike) -> Array: ...

    def __hash__(self) -> int: ...


class ForwardingTables(NamedTuple):
    """Tables of the distinct functions, one row of `slots` per routing but flooding, as `NOTIFY` and so on say.

    `coefficients` are by group of statistics, cell, slot and power. `ends` are by group, slot and: the value at 0, at
    the first point, at the last point, and the exponent of the power law beyond. `textbook_identity` says that under
    identity routing P_s is exp(-x) in every group.
    """

    slots: Index
    coefficients: Array
    ends: Array
    textbook_identity: bool


@dataclass(frozen=True)
class _Uniform:
    """The statistics of uniform intervals."""

    def notification_probability(self, routing: str, x: ArrayLike) -> Array:
        return notification_probability(routing, x)

    def subscription_probability(self, routing: str, x: ArrayLike) -> Array:
        return subscription_probability(routing, x)

    def remote_entries(self, routing: str, x: ArrayLike) -> Array:
        return remote_entries(routing, x)


_UNIFORM = _Uniform()


def forwarding_tables(groups: Sequence[FilterFunctions] = ()) -> ForwardingTables:
    """Tables for groups of filter statistics; without any, one group with the statistics of uniform intervals.

    >>> tables = forwarding_tables()
    >>> look_up(tables, "covering", NOTIFY, [0.0, 1.0, 1e6]).round(4).tolist()
    [0.0, 0.2752, 1.0]
    """
    return _tables(tuple(groups) or (_UNIFORM,))


def look_up(tables: ForwardingTables, routing: str, which: int, x: ArrayLike, group: int = 0) -> Array:
    """Returns the tabulated values that compiled code uses for an array of x; `which` is `NOTIFY`, `SUBSCRIBE` or
    `REMOTE`.
    """
    from surecast.prediction.capacity.kernel_lookup import look_up_all

    values = np.asarray(x, dtype=np.float64)
    slot = int(tables.slots[ROUTINGS.index(routing) - 1, which])
    return np.asarray(look_up_all(tables, group, slot, values.ravel()), dtype=np.float64).reshape(values.shape)


def _nodes() -> Array:
    """Returns the Chebyshev points of a cell, which spans -1/2 to 1/2."""
    return np.asarray(0.5 * np.cos(np.pi * (np.arange(ORDER) + 0.5) / ORDER), dtype=np.float64)


def _points() -> Array:
    """Returns all points where the functions are computed: those of the cells, then 0 and the ends."""
    octaves = 2.0 ** np.arange(LOWEST, LOWEST + OCTAVES)
    x = octaves[:, None, None] * (1.0 + (np.arange(CELLS)[:, None] + 0.5 + _nodes()) / CELLS)
    return np.concatenate([x.ravel(), [0.0, octaves[0], 2.0 * octaves[-1], octaves[-1]]])


@lru_cache(maxsize=64)
def _values(group: FilterFunctions) -> Array:
    """Returns the values of every function of one group at all points, by routing but flooding and column; measured
    ones take seconds.
    """
    points = _points()
    return np.array([[_function(group, column)(routing, points) for column in range(3)] for routing in ROUTINGS[1:]])


def _tables(groups: tuple[FilterFunctions, ...]) -> ForwardingTables:
    points, cell_points = _points(), OCTAVES * CELLS * ORDER
    to_powers = np.linalg.inv(np.vander(_nodes(), increasing=True))
    every = [_values(group) for group in groups]
    distinct: list[Array] = []
    slots = np.empty((len(ROUTINGS) - 1, 3), dtype=np.int64)
    for row in range(len(ROUTINGS) - 1):
        for column in (NOTIFY, SUBSCRIBE, REMOTE):
            values = np.stack([each[row, column] for each in every])
            same = [i for i, function in enumerate(distinct) if np.array_equal(function, values)]
            slots[row, column] = same[0] if same else len(distinct)
            if not same:
                distinct.append(values)
    values = np.stack(distinct, axis=1)
    cells = values[:, :, :cell_points].reshape(len(groups), len(distinct), OCTAVES * CELLS, ORDER)
    coefficients = np.ascontiguousarray(np.moveaxis(cells @ to_powers.T, 1, 2))
    last, before = values[:, :, -2], values[:, :, -1]
    both = (last > 0.0) & (before > 0.0)
    power = np.log2(np.where(both, last, 1.0) / np.where(both, before, 1.0))
    identity = values[:, slots[ROUTINGS.index("identity") - 1, SUBSCRIBE]]
    textbook = bool(np.allclose(identity, np.exp(-points), rtol=0.0, atol=1e-12))
    return ForwardingTables(
        slots, coefficients, np.stack([values[:, :, -4], values[:, :, -3], last, power], axis=2), textbook
    )


def _function(group: FilterFunctions, column: int):  # type: ignore[no-untyped-def]
    return (group.notification_probability, group.subscription_probability, group.remote_entries)[column]
