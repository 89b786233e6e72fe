"""The availability of a group: a Markov chain of its replicas, failing and being repaired, and of its elections.

The group serves while a majority is up and somebody leads. A replica that fails was the leader with a chance of one in
those up; then, and whenever a majority is up again, nobody leads until an election is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import brentq

from surecast.errors import AssumptionError
from surecast.prediction.reliability.phase_fit import fit_phase_type
from surecast.scenario.distributions import Exponential, PhaseType
from surecast.scenario.group import Group
from surecast.scenario.system import Failures

__all__ = ["GroupChain", "group_chain", "reversible_chain"]

Array = NDArray[np.float64]
Counts = tuple[int, ...]
State = tuple[Counts, Counts, int, int]
"""Replicas in each phase of an up time; in each phase of a repair; waiting for repair; stages left of an election."""

STAGES_MAX = 3
"""Stages of an Erlang fit of a replica's times, as for other components of the reliability model."""
TERMS = 30
"""Terms of the exponential of a matrix whose entries are at most 1: what is left out is below all rounding."""
STATES_MAX = 1500
"""States of a chain at most."""


@dataclass(frozen=True)
class GroupChain:
    """A group as a chain: `generator` moves it between its states, in the first `up` of which it serves.

    `is_exact` says whether the times of a replica were taken as they are, not fitted.
    """

    generator: Array
    up: int
    is_exact: bool

    @cached_property
    def stationary(self) -> Array:
        """Long-run share of time in each state, by elimination without subtractions: small shares are as accurate."""
        work = self.generator.copy()
        np.fill_diagonal(work, 0.0)
        n = len(work)
        for last in range(n - 1, 0, -1):
            work[:last, last] /= work[last, :last].sum()
            work[:last, :last] += np.outer(work[:last, last], work[last, :last])
        share = np.zeros(n)
        share[0] = 1.0
        for i in range(1, n):
            share[i] = share[:i] @ work[:i, i]
        return np.asarray(share / share.sum(), dtype=np.float64)

    @property
    def availability(self) -> float:
        """Share of time in which the group serves."""
        return 1.0 - self.unavailability

    @property
    def unavailability(self) -> float:
        return float(self.stationary[self.up :].sum())

    @property
    def outages_per_s(self) -> float:
        """The rate of outages of the group."""
        return float((self.stationary[: self.up] @ self.generator[: self.up, self.up :]).sum())

    @property
    def up_mean_s(self) -> float:
        """Mean time from the end of an outage to the next."""
        return self.availability / self.outages_per_s

    @property
    def down_mean_s(self) -> float:
        """Mean length of an outage."""
        return self.unavailability / self.outages_per_s

    @cached_property
    def down(self) -> tuple[Array, Array]:
        """The length of an outage as a phase type: initial probabilities and sub-generator."""
        entered = self.stationary[: self.up] @ self.generator[: self.up, self.up :]
        return entered / entered.sum(), self.generator[self.up :, self.up :]

    @cached_property
    def up_time(self) -> tuple[Array, Array]:
        """The time between outages as a phase type: initial probabilities and sub-generator."""
        entered = self.stationary[self.up :] @ self.generator[self.up :, : self.up]
        return entered / entered.sum(), self.generator[: self.up, : self.up]

    def down_tail(self, time_s: float) -> float:
        """Returns P[an outage lasts longer]."""
        initial, matrix = self.down
        return float(np.clip(initial @ expm(matrix * time_s).sum(axis=1), 0.0, 1.0))

    def down_quantiles_s(self, shares: Sequence[float]) -> list[float]:
        """Returns for each share the length that so many of the outages do not exceed.

        The times of a chain span from milliseconds of elections to days of repairs. So it is moved by steps of a time
        that is short for all of them, by two of these, by four and so on: each step's matrix is the square of the one
        before. A length is then put together from the longest steps that still fall short of it.
        """
        initial, matrix = self.down
        step_s = 1.0 / float(-matrix.diagonal().min())
        powers = [np.asarray(expm(matrix * step_s), dtype=np.float64)]
        least = 1.0 - max(shares, default=0.0)
        while float((initial @ powers[-1]).sum()) > least:
            powers.append(powers[-1] @ powers[-1])
        return [_quantile_s(initial, matrix, step_s, powers, share) for share in shares]

    def failures(self) -> Failures:
        """Up and down times for whatever takes those of a broker: right in distribution, taken as independent."""
        up, down = (_phase_type(*part) for part in (self.up_time, self.down))
        return Failures(up, down)


def _quantile_s(initial: Array, matrix: Array, step_s: float, powers: Sequence[Array], share: float) -> float:
    """Returns a quantile of a phase type; `powers` move it by `step_s`, twice that, four times that, ..."""
    reached, time_s, aim = initial, 0.0, 1.0 - share
    for doublings in reversed(range(len(powers))):
        moved = reached @ powers[doublings]
        if float(moved.sum()) > aim:
            reached, time_s = moved, time_s + step_s * 2.0**doublings
    # What is missing is less than the short step: there the tail is a power series that ends soon.
    terms, series = reached, [float(reached.sum())]
    for order in range(1, TERMS + 1):
        terms = terms @ matrix * (step_s / order)
        series.append(float(terms.sum()))

    def excess(part: float) -> float:
        return float(np.polyval(series[::-1], part)) - aim

    return time_s + step_s * (float(brentq(excess, 0.0, 1.0, xtol=1e-12)) if excess(1.0) < 0.0 else 1.0)


def group_chain(group: Group, gap_s: float = 0.0, stages: int = 1) -> GroupChain | None:
    """Returns the chain of a group with elections of `gap_s` on average, in `stages`; None if its replicas never fail.

    With exponential times of failure and repair it is exact for such elections: exponential ones with one stage, less
    variable ones with more. Other times of failure and repair are replaced
    by their phases, as in the reliability model; the leader is then any replica alike, whatever its age.

    >>> from surecast.scenario import Failures, parse_distribution
    >>> failures = Failures(parse_distribution("90s"), parse_distribution("10s"))
    >>> round(group_chain(Group(3, failures=failures)).availability, 12)  # 0.9**3 + 3 * 0.9**2 * 0.1
    0.972
    """
    if group.failures is None:
        return None
    up, down = (fit_phase_type(law, STAGES_MAX) for law in (group.failures.up, group.failures.down))
    step = _Step(group, up, down, stages if gap_s > 0 and group.replicas > 1 else 0, gap_s)
    states: dict[State, int] = {}
    moves: list[tuple[int, int, float]] = []
    pending = [step.first]
    states[step.first] = 0
    while pending:
        state = pending.pop()
        for rate, after in step.moves(state):
            if after not in states:
                states[after] = len(states)
                pending.append(after)
                if len(states) > STATES_MAX:
                    raise AssumptionError(
                        f"a group of {group.replicas} replicas whose times have {len(up[0])} and {len(down[0])} phases "
                        f"has more than {STATES_MAX} states; give availability.brokers times with fewer phases"
                    )
            moves.append((states[state], states[after], rate))
    order = sorted(states, key=lambda state: (not step.serves(state), states[state]))
    position = np.empty(len(states), dtype=np.intp)
    for i, state in enumerate(order):
        position[states[state]] = i
    generator = np.zeros((len(states), len(states)))
    for source, target, rate in moves:
        generator[position[source], position[target]] += rate
    np.fill_diagonal(generator, 0.0)
    np.fill_diagonal(generator, -generator.sum(axis=1))
    exact_laws = (Exponential, PhaseType)
    exact = isinstance(group.failures.up, exact_laws) and isinstance(group.failures.down, exact_laws)
    return GroupChain(generator, sum(map(step.serves, order)), exact)


def reversible_chain(group: Group, gap_s: float = 0.0) -> GroupChain | None:
    """Returns a small chain of a group with exponential times that looks the same backwards; None for other times.

    Forwards and backwards alike, it has real eigenvalues and is solved as accurately as a symmetric matrix. For that,
    an election begins and ends with the same replicas up, at the rate of failing leaders; one that follows the return
    of a majority, short after a long outage, is left out.

    >>> from surecast.scenario import Failures, parse_distribution
    >>> failures = Failures(parse_distribution("30d"), parse_distribution("4h"))
    >>> small, exact = (make(Group(3, failures=failures), 0.3) for make in (reversible_chain, group_chain))
    >>> abs(small.unavailability / exact.unavailability - 1) < 1e-3, abs(small.up_mean_s / exact.up_mean_s - 1) < 1e-2
    (True, True)
    """
    failures = group.failures
    if failures is None or not all(isinstance(law, Exponential) for law in (failures.up, failures.down)):
        return None
    fails, mends = 1.0 / failures.mtbf_s, 1.0 / failures.mttr_s
    n, elections = group.replicas, group.tolerated if gap_s > 0 else 0
    # states: 0 to f replicas down; an election with 0 to f-1 down; f+1 to n down
    state_of = [k if k <= group.tolerated else k + elections for k in range(n + 1)]
    generator = np.zeros((n + 1 + elections, n + 1 + elections))
    for k in range(n):
        generator[state_of[k], state_of[k + 1]] = (n - k) * fails
        generator[state_of[k + 1], state_of[k]] = mends if group.repair == "single" else (k + 1) * mends
    for k in range(elections):
        generator[state_of[k], group.majority + k] = fails
        generator[group.majority + k, state_of[k]] = 1.0 / gap_s
    np.fill_diagonal(generator, -generator.sum(axis=1))
    return GroupChain(generator, group.majority, True)


class _Step:
    """The possible transitions of each state."""

    def __init__(self, group: Group, up: tuple[Array, Array], down: tuple[Array, Array], stages: int, gap_s: float):
        self.majority = group.majority
        self.single = group.repair == "single"
        self.stages = stages
        self.stage_per_s = stages / gap_s if stages else 0.0
        self.up_initial, self.up = up
        self.down_initial, self.down = down
        self.fails = -self.up.sum(axis=1)
        self.mends = -self.down.sum(axis=1)
        fresh = int(np.argmax(self.up_initial > 0))
        counts = [0] * len(self.up_initial)
        counts[fresh] = group.replicas
        self.first: State = (tuple(counts), (0,) * len(self.down_initial), 0, 0)

    def serves(self, state: State) -> bool:
        return sum(state[0]) >= self.majority and not state[3]

    def _settled(self, up: Counts, down: Counts, waiting: int, electing: int) -> State:
        """Without a majority an election cannot begin."""
        return up, down, waiting, self.stages if sum(up) < self.majority else electing

    def moves(self, state: State) -> Iterator[tuple[float, State]]:
        up, down, waiting, electing = state
        for i, count in enumerate(up):
            if count:
                for j in np.flatnonzero(self.up[i] > 0):
                    yield count * self.up[i, j], (_moved(up, i, int(j)), down, waiting, electing)
                yield from self._failures(state, i, count * self.fails[i])
        for i, count in enumerate(down):
            if count:
                for j in np.flatnonzero(self.down[i] > 0):
                    yield count * self.down[i, j], (up, _moved(down, i, int(j)), waiting, electing)
                yield from self._repairs(state, i, count * self.mends[i])
        if electing and sum(up) >= self.majority:
            yield self.stage_per_s, (up, down, waiting, electing - 1)

    def _failures(self, state: State, phase: int, rate: float) -> Iterator[tuple[float, State]]:
        up, down, waiting, electing = state
        left = _changed(up, phase, -1)
        led = 0.0 if electing else 1.0 / sum(up)
        for chance, broken, queue in self._after_failure(down, waiting):
            for share, left_to_elect in ((led, self.stages), (1.0 - led, electing)):
                if share > 0 and chance * rate > 0:
                    yield rate * chance * share, self._settled(left, broken, queue, left_to_elect)

    def _after_failure(self, down: Counts, waiting: int) -> Iterator[tuple[float, Counts, int]]:
        """Yields the states after a failure of a replica: in repair, or waiting for it."""
        if self.single and any(down):
            yield 1.0, down, waiting + 1
            return
        for j, chance in enumerate(self.down_initial):
            if chance > 0:
                yield float(chance), _changed(down, j, 1), waiting

    def _repairs(self, state: State, phase: int, rate: float) -> Iterator[tuple[float, State]]:
        up, down, waiting, electing = state
        rest = _changed(down, phase, -1)
        if self.single and waiting:
            begun = list(self._after_failure(rest, waiting - 1))
        else:
            begun = [(1.0, rest, waiting)]
        for chance, broken, queue in begun:
            for j, start in enumerate(self.up_initial):
                if start > 0 and rate > 0:
                    yield rate * chance * start, self._settled(_changed(up, j, 1), broken, queue, electing)


def _changed(counts: Counts, index: int, by: int) -> Counts:
    return (*counts[:index], counts[index] + by, *counts[index + 1 :])


def _moved(counts: Counts, source: int, target: int) -> Counts:
    return _changed(_changed(counts, source, -1), target, 1)


def _phase_type(initial: Array, matrix: Array) -> PhaseType:
    rates = np.maximum(matrix - np.diag(np.diag(matrix)), 0.0)
    return PhaseType(
        initial=tuple((initial / initial.sum()).tolist()),
        rates=tuple(tuple(row) for row in rates.tolist()),
        exits=tuple(np.maximum(-matrix.sum(axis=1), 0.0).tolist()),
    )
