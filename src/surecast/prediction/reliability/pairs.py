"""Connection probabilities of the pairs of home brokers that events flow between: exact, bounded or sampled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from surecast.errors import OverloadError
from surecast.prediction.reliability.component_chains import Components
from surecast.prediction.reliability.disjoint import disjoint_path_bound
from surecast.prediction.reliability.sampling import sample_connections
from surecast.prediction.reliability.two_terminal import STATES_MAX, ConnectionSolver
from surecast.scenario.streams import Streams
from surecast.scenario.system import System

__all__ = ["Connection", "PairConnections", "connect_pairs"]

Connection = Literal["auto", "exact", "bound", "monte-carlo"]
Array = NDArray[np.float64]
Index = NDArray[np.intp]

WORK_MAX = 20_000_000
"""States times steps that `auto` spends on exact probabilities, a few seconds' worth."""
BOUNDS_MAX = 300
"""Pairs up to which sampled probabilities are accompanied by the paper's bound."""


@dataclass(frozen=True)
class PairConnections:
    """P[connected] of each pair, how it was obtained, its interval where it was sampled, and the paper's bound where
    that was computed as well."""

    value: Array
    low: Array | None
    high: Array | None
    how: str
    note: str
    samples: int | None = None
    bound: Array | None = None


def connect_pairs(
    system: System, components: Components, pairs: Index, mode: Connection, samples: int
) -> PairConnections:
    """Returns the connection probability of each row of `pairs`."""
    if mode == "bound":
        note = "bypass: connection probabilities are the lower bound by disjoint paths (reliability Eq. 12)"
        return PairConnections(_bounds(system, components, pairs), None, None, "lower_bound", note)
    if mode != "monte-carlo":
        exact = _exact(system, components, pairs, None if mode == "exact" else WORK_MAX)
        if exact is not None:
            return PairConnections(exact, None, None, "exact", "")
    ends = np.array([(link.a, link.b) for link in system.overlay.links], dtype=np.intp).reshape(-1, 2)
    seed = int(Streams(system.seed).generator("predict/connection").integers(2**63))
    estimates = sample_connections(components.broker_up, ends, components.link_up, pairs, samples, seed)
    note = f"bypass: connection probabilities are from {samples:,} sampled states of the overlay, with 95 % intervals"
    bound = _bounds(system, components, pairs) if len(pairs) <= BOUNDS_MAX else None
    return PairConnections(*estimates, "approximation", note, samples, bound)


def _bounds(system: System, components: Components, pairs: Index) -> Array:
    graph, up, links = system.overlay.graph, components.broker_up.tolist(), components.link_up.tolist()
    return np.array([disjoint_path_bound(graph, up, links, int(a), int(b)) for a, b in pairs], dtype=np.float64)


def _exact(system: System, components: Components, pairs: Index, work_max: int | None) -> Array | None:
    """Returns the exact probabilities; None if they would take more than `work_max`, a refusal if that is not given."""
    graph = system.overlay.graph
    solver = ConnectionSolver(graph, components.broker_up.tolist(), components.link_up.tolist())
    if work_max is not None and not _is_affordable(solver, pairs, work_max):
        return None
    values = np.empty(len(pairs))
    for i, (a, b) in enumerate(pairs.tolist()):
        value = solver.probability(a, b)
        if value is None:
            if work_max is not None:
                return None
            names = [system.overlay.brokers[v].name for v in (a, b)]
            raise OverloadError(
                f"brokers {names[0]} and {names[1]}: their connection probability takes more than {STATES_MAX:,} "
                "states at a time; ask for connection='monte-carlo' or 'bound'"
            )
        values[i] = value
    return values


def _is_affordable(solver: ConnectionSolver, pairs: Index, work_max: int) -> bool:
    """Returns whether all pairs can be expected to stay within the limit, judged by one pair in each block."""
    queries: Counter[int] = Counter()
    counted: set[tuple[int, int, int]] = set()
    cost: dict[int, int] = {}
    for a, b in pairs.tolist():
        for block, first, second in solver.chain(a, b):
            key = (block, min(first, second), max(first, second))
            if block < 0 or solver.is_trivial(block) or key in counted:
                continue
            counted.add(key)
            queries[block] += 1
            if block not in cost:
                before = solver.work
                if solver.in_block(*key) is None:
                    return False
                # planning a sweep takes about as long as some hundred of its steps for each broker
                cost[block] = solver.work - before + 200 * solver.size(block)
    return sum(queries[block] * cost[block] for block in cost) <= work_max
