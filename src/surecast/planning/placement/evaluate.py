"""The capacity of placements under routing algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError, refuse_unknown
from surecast.planning.placement.problem import PlacementProblem
from surecast.prediction.capacity.capacity_model import ALGORITHMS, known_algorithms
from surecast.prediction.capacity.filter_probabilities import ROUTINGS

__all__ = ["Evaluation", "as_masks", "checked_algorithms", "evaluate", "figures_of"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Masks = NDArray[np.bool_]


@dataclass(frozen=True)
class Evaluation:
    """Figures by placement (row) and algorithm (column).

    `placements` has a row per placement and a column per candidate. Delays are NaN where `overloaded` is set, and where
    nobody publishes or subscribes. The mean delay of notifications is over the brokers whose own clients want them, the
    publisher's broker among them. `utilisation` is the largest of any broker or queue and `utilisation_at` says of
    which (`PlacementProblem.component` names it). `headroom_factor` is inf where nothing ever saturates, NaN where it
    was not asked for.
    """

    placements: Masks
    algorithms: tuple[str, ...]
    brokers: Index
    cost: Array
    overloaded: Masks
    notification_delay_worst_s: Array
    subscription_delay_worst_s: Array
    notification_delay_mean_s: Array
    notification_rate_per_s: Array
    control_rate_per_s: Array
    utilisation: Array
    utilisation_at: Index
    headroom_factor: Array
    headroom_at: Index
    table_entries: Array

    @property
    def message_rate_per_s(self) -> Array:
        """Messages of both kinds over all overlay links."""
        return self.notification_rate_per_s + self.control_rate_per_s


def evaluate(
    problem: PlacementProblem,
    placements: Sequence[int] | NDArray[np.bool_],
    algorithms: Sequence[str] | None = None,
    *,
    headroom: bool = True,
) -> Evaluation:
    """Returns the figures of each placement under each algorithm, all nine if left out.

    A placement is a row of booleans, one per candidate, or a number whose bit i stands for candidate i. The headroom
    takes most of the time and may be left out.

    >>> from surecast.planning.placement import *
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> problem = placement_problem(system, scenario)
    >>> found = evaluate(problem, [0b1, 0b1111111111], ["flooding", "hierarchical merging"])
    >>> found.brokers.tolist(), found.message_rate_per_s.round(1).tolist(), found.overloaded.tolist()
    ([1, 10], [[0.0, 0.0], [4500.0, 3187.9]], [[True, True], [False, False]])
    """
    chosen = checked_algorithms(algorithms)
    masks = as_masks(problem, placements)
    return as_evaluation(problem, masks, chosen, figures_of(problem, masks, chosen, headroom))


def figures_of(problem: PlacementProblem, masks: Masks, algorithms: tuple[str, ...], headroom: bool) -> Array:
    """Returns the figures by placement, algorithm and figure: of compiled code, or of the plain model where it must be
    used."""
    if not problem.is_compiled:
        return problem.plain.figures(problem.arrays, masks, algorithms, headroom)
    own = [i for i, algorithm in enumerate(algorithms) if algorithm not in ALGORITHMS]
    if own:
        compiled = [i for i in range(len(algorithms)) if i not in own]
        parts = [figures_of(problem, masks, tuple(algorithms[i] for i in compiled), headroom)] if compiled else []
        # what was registered has its laws in Python only
        parts.append(problem.plain.figures(problem.arrays, masks, tuple(algorithms[i] for i in own), headroom))
        return np.concatenate(parts, axis=1)[:, np.argsort([*compiled, *own])]
    from surecast.prediction.capacity.placement_kernel import evaluate_placements

    codes = np.array(
        [
            (ROUTINGS.index(algorithm.rpartition(" ")[2]) - 1, algorithm.startswith("hierarchical"))
            for algorithm in algorithms
        ],
        dtype=np.int64,
    ).reshape(-1, 2)
    figures = evaluate_placements(problem.arrays, problem.tables, masks, codes, headroom)
    return np.asarray(figures, dtype=np.float64)


def as_evaluation(problem: PlacementProblem, masks: Masks, algorithms: tuple[str, ...], figures: Array) -> Evaluation:
    """Returns figures of compiled code under their names."""
    from surecast.prediction.capacity.placement_kernel import FIGURES

    named = {name: np.ascontiguousarray(figures[:, :, i]) for i, name in enumerate(FIGURES)}
    columns: dict[str, Any] = {
        field.name: np.nan_to_num(named[field.name], nan=-1.0).astype(np.int64)
        if field.name.endswith("_at")
        else named[field.name]
        for field in fields(Evaluation)
        if field.name in named
    }
    return Evaluation(
        masks,
        algorithms,
        masks.sum(axis=1).astype(np.int64),
        np.asarray(masks @ problem.costs, dtype=np.float64),
        ~(named["utilisation"] < 1.0),
        **columns,
    )


def checked_algorithms(algorithms: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the algorithms asked for, each once; all nine without any."""
    chosen = ALGORITHMS if algorithms is None else tuple(dict.fromkeys(algorithms))
    refuse_unknown("algorithm", chosen, known_algorithms())
    if not chosen:
        raise ConfigurationError("no routing algorithm was named; name one, or leave them out for all nine")
    return chosen


def as_masks(problem: PlacementProblem, placements: Sequence[int] | NDArray[np.bool_]) -> Masks:
    """Placements as rows of booleans; refuses one without brokers."""
    count = len(problem.candidates)
    if isinstance(placements, np.ndarray) and placements.dtype == np.bool_:
        masks = np.ascontiguousarray(placements)
        if masks.ndim != 2 or masks.shape[1] != count:
            raise ConfigurationError(f"placements must have a column for each of the {count} candidates")
    else:
        numbers = [int(number) for number in placements]
        for number in numbers:
            if not 0 < number < 1 << count:
                raise ConfigurationError(
                    f"placement {number}: its bits stand for candidates, so it must be from 1 to {(1 << count) - 1}"
                )
        masks = np.array([[number >> i & 1 == 1 for i in range(count)] for number in numbers], dtype=np.bool_)
        masks = masks.reshape(len(numbers), count)
    if not masks.any(axis=1).all():
        raise ConfigurationError("a placement has no broker at all; every placement needs one")
    return masks
