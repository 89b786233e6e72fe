"""The best routing algorithm by load and locality: over every placement, the share that each one wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.planning.placement import CASES_MAX, PlacementProblem, evaluate, placement_problem
from surecast.planning.sweeps.load_sweep import at_load
from surecast.prediction.capacity.capacity_model import ALGORITHMS
from surecast.report.report_files import save_table
from surecast.scenario import Scenario, build

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OVERLOAD", "TIE", "AlgorithmSweep", "count_optimal", "locality_problems", "sweep_algorithms"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Progress = Callable[[int, int], None]

TIE, OVERLOAD = "several alike", "all overloaded"
_CLOSE: Final = 1e-9
_PIECE: Final = 4096


@dataclass(frozen=True)
class AlgorithmSweep:
    """In how many placements each algorithm has the least delay on the worst path.

    `counts` are by locality, load and outcome; the outcomes are the algorithms, then several of them alike, then all of
    them overloaded. `localities` holds one None if the scenario's own locality was kept.
    """

    name: str
    algorithms: tuple[str, ...]
    localities: tuple[float | None, ...]
    subscriptions: Array
    counts: Counts
    placements: int

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of the last axis of `counts`."""
        return (*self.algorithms, TIE, OVERLOAD)

    def by_load(self) -> Array:
        """Shares of the outcomes at each load, all localities pooled."""
        return _shares(self.counts.sum(axis=0))

    def by_locality(self) -> Array:
        """Shares of the outcomes at each locality, all loads pooled."""
        return _shares(self.counts.sum(axis=1))

    def table(self) -> pa.Table:
        """Returns one row per locality, load and outcome."""
        import pyarrow as pa

        shape = self.counts.shape
        locality_index, load, outcome = (axis.ravel() for axis in np.indices(shape))
        return pa.table(
            {
                "locality": pa.array([self.localities[i] for i in locality_index.tolist()], pa.float64()),
                "subscriptions": pa.array(self.subscriptions[load]),
                "outcome": pa.array([self.outcomes[i] for i in outcome.tolist()], pa.string()).dictionary_encode(),
                "placements": pa.array(self.counts.ravel()),
                "share": pa.array(self.counts.ravel() / self.placements),
            }
        )

    def save(self, path: Path | str) -> Path:
        """Writes the table as Parquet, whole or not at all, and returns the path."""
        return save_table(self.table(), path)


def sweep_algorithms(
    problems: Mapping[float | None, PlacementProblem],
    subscriptions: Sequence[float] | Array,
    *,
    algorithms: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> AlgorithmSweep:
    """Counts the best algorithms over all placements, for the problems of several localities and many loads.

    >>> from surecast.planning.placement import placement_problem
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> four = [f"{scheme} {how}" for scheme in ("peer-to-peer", "hierarchical") for how in ("covering", "merging")]
    >>> sweep = sweep_algorithms({0.8: placement_problem(system, scenario)}, [100, 3_000, 50_000], algorithms=four)
    >>> sweep.counts[0].tolist()
    [[1013, 0, 0, 0, 10, 0], [3, 1001, 9, 0, 10, 0], [0, 132, 12, 657, 0, 222]]
    """
    loads = np.unique(np.asarray(subscriptions, dtype=np.float64))
    chosen = ALGORITHMS if algorithms is None else tuple(dict.fromkeys(algorithms))
    if not problems or not len(loads):
        raise ConfigurationError("a sweep of algorithms needs at least one locality and one load")
    first = next(iter(problems.values()))
    candidates = len(first.candidates)
    if ((1 << candidates) - 1) * len(chosen) > CASES_MAX:
        raise AssumptionError(
            f"{first.name} has {candidates} candidates, too many to evaluate every placement; keep fewer candidates"
        )
    counts = np.zeros((len(problems), len(loads), len(chosen) + 2), dtype=np.int64)
    for i, problem in enumerate(problems.values()):
        for j, load in enumerate(loads.tolist()):
            counts[i, j] = count_optimal(problem, load, chosen)
            if progress is not None:
                progress(i * len(loads) + j + 1, len(problems) * len(loads))
    return AlgorithmSweep(first.name, chosen, tuple(problems), loads, counts, (1 << candidates) - 1)


def count_optimal(problem: PlacementProblem, subscriptions: float, algorithms: Sequence[str]) -> Counts:
    """Returns the numbers of placements in which each algorithm alone is best, then several are, then none carries the
    load.

    Delays that differ by less than a billionth are alike.
    """
    loaded, everything = at_load(problem, subscriptions), range(1, 1 << len(problem.candidates))
    counts = np.zeros(len(algorithms) + 2, dtype=np.int64)
    for start in range(0, len(everything), _PIECE):
        each = evaluate(loaded, everything[start : start + _PIECE], algorithms, headroom=False)
        delay = np.where(each.overloaded, np.inf, each.notification_delay_worst_s)
        # Without publications there is no delay, and all algorithms are alike.
        delay = np.where(np.isnan(delay), 0.0, delay)
        least = delay.min(axis=1, keepdims=True)
        carried = np.isfinite(least[:, 0])
        near = delay <= least * (1.0 + _CLOSE)
        alone = carried & (near.sum(axis=1) == 1)
        counts[:-2] += near[alone].sum(axis=0)
        counts[-2] += np.count_nonzero(carried & ~alone)
        counts[-1] += np.count_nonzero(~carried)
    return counts


def locality_problems(
    scenario: Scenario, localities: Sequence[float], **options: Any
) -> dict[float | None, PlacementProblem]:
    """Returns the placement problem of a scenario at several localities of all classes that have a hot spot.

    `options` are those of `placement_problem`. Hot spots, clients and candidates stay where they are.
    """
    if not any(each.hot_spot is not None for each in scenario.workload.classes):
        raise AssumptionError(
            f"{scenario.name}: no class has a hot spot, so that locality means nothing; write hot_spot: random"
        )
    problems: dict[float | None, PlacementProblem] = {}
    for locality in localities:
        if not 0.0 <= locality <= 1.0:
            raise ConfigurationError(f"a locality of {locality:g}: it is a share, from 0 to 1")
        classes = [
            each if each.hot_spot is None else each.model_copy(update={"locality": locality})
            for each in scenario.workload.classes
        ]
        workload = scenario.workload.model_copy(update={"classes": classes})
        changed = scenario.model_copy(update={"workload": workload})
        problems[locality] = placement_problem(build(changed), changed, **options)
    return problems


def _shares(counts: Counts) -> Array:
    return np.asarray(counts / counts.sum(axis=1, keepdims=True), dtype=np.float64)
