"""Events that all live equally long: the queue with a deterministic lifetime, exactly.

Events leave in the order of their arrival, whether they are delivered or expire, so it is enough to follow the age of
the oldest one. It grows with time; when the oldest event leaves, it falls by the time between two arrivals, which is
exponential; at the lifetime it must fall. A fall may be seen as a movement downwards that takes no time, and ends at
the arrival rate. Then the flows upwards f(x) and downwards g(x) through each age x, by phase, solve linear differential
equations

    f' = f (T - M) + a g,    g' = a g - f M,

with T the generator of the phases, M the rates of transmission and a the arrival rate. At the lifetime g = f; at age 0
the flow downwards empties the queue and an arrival starts the flow upwards. A delivered event's response time is the
age at which it is delivered, so its density is f M up to a factor. The boundary problem is solved by multiple shooting:
matrix exponentials over short stretches, joined by one sparse linear system, which stays well conditioned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.sparse import coo_array
from scipy.sparse.linalg import splu

from surecast.errors import AssumptionError
from surecast.prediction.dropping.connection_phases import Phases
from surecast.prediction.dropping.response_distributions import quantile_of_law

__all__ = ["AgeLaw", "LifetimeQueue", "lifetime_queue"]

Array = NDArray[np.float64]
_STRETCH = 3.0
"""Largest exponent over one stretch."""
_TERMS = 32
"""Terms of a power series over one stretch: 3**32 / 32! is below 1e-19."""
_STRETCHES_MAX = 200_000


@dataclass(frozen=True, eq=False)
class AgeLaw:
    """The response time of delivered events, from the flows at the ends of stretches of equal length."""

    step_s: float
    rates: Array
    """The matrix of the differential equations (acting on rows)."""
    flows: Array
    """Flows upwards and downwards at the start of each stretch."""
    before: Array
    """Share of the delivered events with a response time up to the start of each stretch."""
    weight: Array
    """The share of the delivered events that each flow delivers."""
    lifetime_s: float

    def within(self, time_s: float) -> float:
        if time_s >= self.lifetime_s:
            return 1.0
        if time_s <= 0.0:
            return 0.0
        stretch = min(int(time_s / self.step_s), len(self.flows) - 1)
        part = (time_s / self.step_s - stretch) ** np.arange(1, _TERMS + 1)
        return float(np.clip(self.before[stretch] + self.flows[stretch] @ self._series @ part, 0.0, 1.0))

    @cached_property
    def _series(self) -> Array:
        """The integral of exp(H x) over a part of a stretch, times the weights: a column for each power of the part."""
        columns = [self.step_s * self.weight]
        for k in range(1, _TERMS):
            columns.append(self.step_s * self.rates @ columns[-1] / (k + 1))
        return np.array(columns).T

    def quantile_s(self, quantile: float) -> float:
        return quantile_of_law(self.within, quantile, self.lifetime_s, self.lifetime_s)


@dataclass(frozen=True, slots=True)
class LifetimeQueue:
    """The queue with a deterministic lifetime: shares are of all events that arrive."""

    success_share: float
    response_mean_s: float
    expired_share: Array
    """Share that expires in each phase."""
    mean_number: float
    law: AgeLaw


def lifetime_queue(phases: Phases, arrival_per_s: float, service_per_s: float, lifetime_s: float) -> LifetimeQueue:
    """Returns the queue in which every event lives equally long from its arrival, also while it is transmitted.

    >>> from surecast.prediction.dropping.connection_phases import exponential_phases
    >>> answer = lifetime_queue(exponential_phases(20.0, 20.0), 2.0, 8.0, 25.0)
    >>> round(answer.success_share, 4), round(answer.response_mean_s, 4)
    (0.8265, 5.8791)
    """
    size = len(phases.generator)
    serve = np.diag(phases.by_state(0.0, service_per_s))
    eye = np.eye(size)
    # rows (f, g) move by y' = y H
    rates = np.block([[phases.generator - serve, -serve], [arrival_per_s * eye, arrival_per_s * eye]])
    fastest = float(np.abs(rates).sum(axis=1).max())
    stretches = max(1, math.ceil(fastest * lifetime_s / _STRETCH))
    if stretches > _STRETCHES_MAX:
        raise AssumptionError(
            f"a lifetime of {lifetime_s:.6g} s spans {fastest * lifetime_s:.3g} transitions of the queue, too many to "
            "compute; simulate it. Without expiry the answer may be another one: what waits longer than it lives is "
            "then delivered"
        )
    step = lifetime_s / stretches
    over, integral, moment = _stretch(rates, step)
    flows, empty = _boundary_problem(phases.generator, arrival_per_s, over, stretches)
    areas = flows[:-1] @ integral
    starts = step * np.arange(stretches)
    # where the oldest event of a queue that is not empty is in age: the time is shared as the flows upwards are
    total = float(empty.sum() + areas[:, :size].sum())
    flows, empty, areas = flows / total, empty / total, areas / total
    weight = np.concatenate([np.diag(serve), np.zeros(size)])
    by_stretch = areas @ weight
    delivered = float(by_stretch.sum())
    time = float((starts @ areas + (flows[:-1] @ moment).sum(axis=0)) @ weight)
    expired = np.maximum(flows[-1, :size], 0.0)
    number = time + lifetime_s * float(expired.sum())
    before = np.concatenate([[0.0], np.cumsum(by_stretch)[:-1]]) / delivered
    law = AgeLaw(step, rates, flows[:-1], before, weight / delivered, lifetime_s)
    return LifetimeQueue(delivered / arrival_per_s, time / delivered, expired / arrival_per_s, number, law)


def _stretch(rates: Array, step: float) -> tuple[Array, Array, Array]:
    """exp(H step), its integral over the stretch, and the integral of x exp(H x)."""
    size = len(rates)
    zero, eye = np.zeros_like(rates), np.eye(size)
    chain = np.block([[rates, eye, zero], [zero, zero, eye], [zero, zero, zero]])
    big = expm(chain * step)
    over, first, second = big[:size, :size], big[:size, size : 2 * size], big[:size, 2 * size :]
    # first = int exp(H x) dx; second = int (step - x) exp(H x) dx
    return over, first, step * first - second


def _boundary_problem(generator: Array, arrival: float, over: Array, stretches: int) -> tuple[Array, Array]:
    """Returns flows at the ends of all stretches (rows) and the empty queue by phase, up to a common factor."""
    size = len(generator)
    width, flows = 2 * size, 2 * size * (stretches + 1)
    rows: list[NDArray[np.signedinteger]] = []
    columns: list[NDArray[np.signedinteger]] = []
    values: list[Array] = []

    def put(block: Array, row: int, column: int) -> None:
        source, target = np.nonzero(block)
        rows.append(source + row)
        columns.append(target + column)
        values.append(block[source, target])

    # y[j + 1] = y[j] over, for every stretch at once
    source, target = np.nonzero(over.T)
    shift = width * np.arange(stretches)
    rows.append((shift[:, None] + source).ravel())
    columns.append((shift[:, None] + target).ravel())
    values.append(np.tile(over.T[source, target], stretches))
    each = np.arange(width * stretches)
    rows.append(each)
    columns.append(each + width)
    values.append(np.full(len(each), -1.0))
    eye, base = np.eye(size), width * stretches
    put(eye, base, 0)
    put(-arrival * eye, base, flows)
    put(eye, base + size, size)
    put((generator - arrival * eye).T, base + size, flows)
    # at the lifetime g = f; what flows up flows down, so one equation is redundant and gives way to the scale
    last = eye.copy()
    last[-1] = 0.0
    put(last, base + width, base)
    put(-last, base + width, base + size)
    put(np.ones((1, size)), base + width + size - 1, base)
    put(np.ones((1, size)), base + width + size - 1, flows)
    total = flows + size
    place = (np.concatenate(rows), np.concatenate(columns))
    matrix = coo_array((np.concatenate(values), place), shape=(total, total)).tocsc()
    right = np.zeros(total)
    right[base + width + size - 1] = 1.0
    solution = splu(matrix).solve(right)
    return solution[:flows].reshape(stretches + 1, width), solution[flows:]
