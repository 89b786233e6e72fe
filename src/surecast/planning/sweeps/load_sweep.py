"""Scaling of configurations: the delay of a placement under an algorithm against the number of subscriptions.

A configuration is a placement with the algorithm that suits it best at the load that the scenario describes. It is kept
as it is while the load changes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.planning.placement import PlacementProblem, evaluate, search_placement
from surecast.report.report_files import save_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LoadCurve", "LoadSweep", "SweptConfiguration", "at_load", "one_per_domain", "saturation_load", "sweep_load"]

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]
Progress = Callable[[int, int], None]

BEST, ROBUST, FULL, DOMAINS = "best at the design load", "most robust", "all candidates", "one broker per domain"
_CLOSE = 1e-7
_APART = 1.0 / 400.0
_NEAR_THE_END = (0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995)


@dataclass(frozen=True)
class SweptConfiguration:
    """Brokers and a routing algorithm, with what they come to at the load of the scenario.

    The delay is None where a component is overloaded. `saturates_at` is the number of active subscriptions at which the
    first component saturates, inf if none does within ten times the largest load of the sweep.
    """

    brokers: tuple[str, ...]
    algorithm: str
    delay_s: float | None
    utilisation: float
    saturates_at: float
    saturates: str


@dataclass(frozen=True)
class LoadCurve:
    """A configuration over the loads of a sweep; its delay is NaN from where it saturates. `role` says why it is shown:
    the best at the design load, the most robust, all candidates, or one of those with one broker per domain."""

    role: str
    configuration: SweptConfiguration
    delay_s: Array
    utilisation: Array


@dataclass(frozen=True)
class LoadSweep:
    """Delays on the worst path against load. `design` is the number of subscriptions that the scenario describes."""

    name: str
    design: float
    subscriptions: Array
    curves: tuple[LoadCurve, ...]
    exact: bool

    def curve(self, role: str) -> LoadCurve | None:
        """Returns the first curve of a role, if there is one."""
        return next((curve for curve in self.curves if curve.role == role), None)

    @property
    def by_domain(self) -> tuple[LoadCurve, ...]:
        """The curves of the placements with one broker in each domain."""
        return tuple(curve for curve in self.curves if curve.role in (DOMAINS, ROBUST))

    def table(self) -> pa.Table:
        """Returns one row per configuration and load; null where a delay is not known."""
        import pyarrow as pa

        points = len(self.subscriptions)

        def words(values: Sequence[str]) -> pa.Array:
            return pa.array(np.repeat(values, points).tolist(), pa.string()).dictionary_encode()

        delays = np.concatenate([curve.delay_s for curve in self.curves])
        ends = np.repeat([curve.configuration.saturates_at for curve in self.curves], points)
        return pa.table(
            {
                "role": words([curve.role for curve in self.curves]),
                "placement": words([", ".join(curve.configuration.brokers) for curve in self.curves]),
                "algorithm": words([curve.configuration.algorithm for curve in self.curves]),
                "subscriptions": pa.array(np.tile(self.subscriptions, len(self.curves))),
                "notification_delay_worst_s": pa.array(delays, mask=np.isnan(delays)),
                "utilisation": pa.array(np.concatenate([curve.utilisation for curve in self.curves])),
                "saturates_at": pa.array(ends),
            }
        )

    def save(self, path: Path | str) -> Path:
        """Writes the table as Parquet, whole or not at all, and returns the path."""
        return save_table(self.table(), path)


def sweep_load(
    problem: PlacementProblem,
    subscriptions: Sequence[float] | Array,
    *,
    algorithms: Sequence[str] | None = None,
    refined: bool = False,
    progress: Progress | None = None,
) -> LoadSweep:
    """Returns the worst-path delay of representative configurations at each mean number of active subscriptions.

    These are the best placement of all at the load of the problem, every placement with one broker per domain, of which
    the one that saturates last is the most robust, and all candidates together. A load of 0 stands for one
    subscription: without any, nothing is passed on. With `refined`, the design load is added, and loads shortly before
    each of them saturates, where delays rise steeply.

    >>> from surecast.planning.placement import placement_problem
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> sweep = sweep_load(placement_problem(system, scenario), [10_000, 50_000, 100_000])
    >>> for curve in sweep.curves[:3]:
    ...     print(curve.role, (1000 * curve.delay_s).round(2).tolist(), round(curve.configuration.saturates_at))
    best at the design load [3.78, 6.81, nan] 93991
    most robust [4.82, 7.83, 31.86] 109454
    all candidates [9.16, 12.41, 22.88] 122109
    """
    loads = np.asarray(subscriptions, dtype=np.float64)
    if loads.ndim != 1 or not len(loads) or not (np.isfinite(loads) & (loads >= 0.0)).all():
        raise ConfigurationError("the loads of a sweep must be numbers of subscriptions of 0 or more")
    loads = np.unique(np.maximum(loads, 1.0))
    plan = search_placement(problem, algorithms=algorithms, front=("worst-delay",))
    chosen = plan.evaluation.algorithms
    if plan.best is None:
        raise AssumptionError(
            f"{problem.name}: every placement is overloaded at {problem.active_subscriptions:,.0f} active "
            "subscriptions, so that none is best; give less load or more capacity"
        )
    best = np.array([[name in plan.best.brokers for name in problem.candidates]])
    everything = np.ones((1, len(problem.candidates)), dtype=np.bool_)
    masks = np.concatenate([best, everything, one_per_domain(problem)])
    configurations = _configurations(problem, masks, chosen, 10.0 * max(float(loads[-1]), problem.active_subscriptions))
    robust = max(
        range(2, len(configurations)),
        key=lambda i: (configurations[i].saturates_at, -(configurations[i].delay_s or math.inf)),
    )
    if refined:
        thick = {0, 1, robust}
        loads = _refined(
            loads,
            problem.active_subscriptions,
            [configurations[i].saturates_at for i in thick],
            [configuration.saturates_at for i, configuration in enumerate(configurations) if i not in thick],
        )
    delays, utilisation = _over_loads(problem, masks, [each.algorithm for each in configurations], loads, progress)
    roles = [BEST, FULL, *[DOMAINS] * (len(configurations) - 2)]
    roles[robust] = ROBUST
    order = sorted(range(len(configurations)), key=lambda i: ((BEST, ROBUST, FULL, DOMAINS).index(roles[i]), i))
    curves = tuple(LoadCurve(roles[i], configurations[i], delays[i], utilisation[i]) for i in order)
    return LoadSweep(problem.name, problem.active_subscriptions, loads, curves, plan.exact)


def saturation_load(problem: PlacementProblem, placement: Masks, algorithm: str, most: float) -> tuple[float, str]:
    """Returns the number of active subscriptions at which a placement first saturates, and the component that does; inf
    beyond `most`.

    Looks in steps of an eighth of a decade and then between two of them: load need not grow with subscriptions under
    identity routing, where they make control messages rarer.
    """
    mask = np.atleast_2d(placement)

    def state(load: float) -> tuple[float, str]:
        evaluation = evaluate(at_load(problem, load), mask, [algorithm], headroom=False)
        return float(evaluation.utilisation[0, 0]), problem.component(int(evaluation.utilisation_at[0, 0]))

    steps = math.ceil(8.0 * math.log10(max(most, 10.0)))
    low = 0.0
    for high in np.geomspace(1.0, most, steps + 1).tolist():
        if state(high)[0] >= 1.0:
            while high - low > _CLOSE * high and high > 1e-3:
                middle = 0.5 * (low + high)
                low, high = (middle, high) if state(middle)[0] < 1.0 else (low, middle)
            return high, state(high)[1]
        low = high
    return math.inf, ""


def _configurations(
    problem: PlacementProblem, masks: Masks, algorithms: tuple[str, ...], most: float
) -> list[SweptConfiguration]:
    """Returns each placement with its best algorithm at the load of the problem: by delay, by utilisation if all
    overload."""
    evaluation = evaluate(problem, masks, algorithms, headroom=False)
    delay = np.where(evaluation.overloaded, np.inf, evaluation.notification_delay_worst_s)
    chosen = np.where(np.isfinite(delay).any(axis=1), delay.argmin(axis=1), evaluation.utilisation.argmin(axis=1))
    configurations = []
    for row, column in enumerate(chosen.tolist()):
        names = tuple(name for name, used in zip(problem.candidates, masks[row], strict=True) if used)
        end, component = saturation_load(problem, masks[row], algorithms[column], most)
        seconds = float(delay[row, column])
        configurations.append(
            SweptConfiguration(
                names,
                algorithms[column],
                seconds if math.isfinite(seconds) else None,
                float(evaluation.utilisation[row, column]),
                end,
                component,
            )
        )
    return configurations


def _refined(loads: Array, design: float, ends: list[float], other_ends: list[float]) -> Array:
    """Loads with the design load and those where curves rise; of the other curves those that are not almost there."""
    low, high = loads[0], loads[-1]
    more = np.append(np.outer(ends, _NEAR_THE_END).ravel(), design)
    refined = np.union1d(loads, more[(more >= low) & (more <= high)])
    others = np.outer(other_ends, _NEAR_THE_END[2:]).ravel()
    apart = (high - low) * _APART
    for load in np.unique(others[(others > low) & (others < high)]).tolist():
        if np.abs(refined - load).min() > apart:
            refined = np.union1d(refined, [load])
    return refined


def _over_loads(
    problem: PlacementProblem, masks: Masks, algorithms: list[str], loads: Array, progress: Progress | None
) -> tuple[Array, Array]:
    """Returns delay and utilisation by configuration and load; a delay is NaN where a component is overloaded."""
    delays, utilisation = np.empty((len(masks), len(loads))), np.empty((len(masks), len(loads)))
    rows = {
        name: [i for i, algorithm in enumerate(algorithms) if algorithm == name] for name in sorted(set(algorithms))
    }
    for i, load in enumerate(loads.tolist()):
        there = at_load(problem, load)
        for name, some in rows.items():
            evaluation = evaluate(there, masks[some], [name], headroom=False)
            delays[some, i] = evaluation.notification_delay_worst_s[:, 0]
            utilisation[some, i] = evaluation.utilisation[:, 0]
        if progress is not None:
            progress(i + 1, len(loads))
    return delays, utilisation


_MOST = 4096


def at_load(problem: PlacementProblem, subscriptions: float) -> PlacementProblem:
    """Returns the problem with another mean number of active subscriptions; publications stay as frequent.

    >>> from surecast.planning.placement import placement_problem
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> round(at_load(placement_problem(system, scenario), 1000).active_subscriptions)
    1000
    """
    if not (math.isfinite(subscriptions) and subscriptions > 0.0):
        raise ConfigurationError(f"a load of {subscriptions:g} active subscriptions: it must be above 0 and finite")
    now = problem.active_subscriptions
    if now <= 0.0:
        raise AssumptionError(
            f"{problem.name} has no subscriptions, so there is nothing to scale; give workload.subscriptions.active"
        )
    return problem.scaled(subscriptions=subscriptions / now)


def one_per_domain(problem: PlacementProblem) -> NDArray[np.bool_]:
    """Returns every placement with exactly one broker in each domain that has candidates, a row of booleans each.

    >>> from surecast.planning.placement import placement_problem
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> one_per_domain(placement_problem(system, scenario)).shape
    (32, 10)
    """
    members: dict[str, list[int]] = {}
    for i, domain in enumerate(problem.domains):
        members.setdefault(domain, []).append(i)
    count = math.prod(len(places) for places in members.values())
    if count > _MOST:
        raise AssumptionError(
            f"{problem.name} has {count:,} placements with one broker in each of its {len(members)} domains; a sweep "
            f"draws at most {_MOST:,} of them"
        )
    chosen = list(itertools.product(*members.values()))
    placements = np.zeros((len(chosen), len(problem.candidates)), dtype=np.bool_)
    for row, places in enumerate(chosen):
        placements[row, list(places)] = True
    return placements
