"""The best parameters of a mechanism, or of several at once, found by simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from surecast.errors import AssumptionError, ConfigurationError
from surecast.scenario import Distribution
from surecast.scenario.mechanism import Mechanism
from surecast.simulation.dropping.dropping_plan import DroppingSettings
from surecast.simulation.dropping.queue_sweep import Period, QueueAccounts, QueueSweep, Sweeper

__all__ = ["HybridChoice", "best_hybrid"]

PARAMETERS = ("join_probability", "lifetime_s", "buffer_size")
"""The parameters that can be varied; the search for the first runs inside those for the others."""

_STEPS, _FINE_STEPS = 9, 18
_GRID, _ZOOMS = 7, 3


@dataclass(frozen=True, slots=True)
class HybridChoice:
    """The mechanism found, the figures of its one point in runs that the search did not see, and how many points
    were simulated on the way."""

    mechanism: Mechanism
    figures: QueueSweep
    evaluations: int


def best_hybrid(
    arrival_per_s: float,
    service_per_s: float,
    on: Period,
    off: Period,
    *,
    target_s: float,
    vary: Sequence[str] = ("join_probability", "buffer_size"),
    base: Mechanism | None = None,
    input_per_s: float = math.inf,
    service: Distribution | None = None,
    runs: int = 4,
    duration_s: float = 20_000.0,
    warm_up_s: float = 500.0,
    seed: int,
) -> HybridChoice:
    """The parameters with the highest success share among those whose mean delay is at most `target_s`.

    `vary` names what is searched: join_probability, lifetime_s, buffer_size; the rest is that of `base`. Given the
    others, the first of these is bisected for the largest value that meets the target; the others are searched on a
    grid that is refined around the best. All points work on the same random numbers.

    >>> found = best_hybrid(2.0, 8.0, 20.0, 20.0, target_s=7.0, vary=["join_probability"], runs=2, seed=1)
    >>> 0.3 < found.mechanism.join_probability < 0.45
    True
    """
    unknown = [name for name in vary if name not in PARAMETERS]
    if unknown or not vary or len(set(vary)) < len(vary):
        raise ConfigurationError(f"vary: name some of {', '.join(PARAMETERS)}, each once, not {list(vary)}")
    if not 0 < target_s < math.inf:
        raise ConfigurationError(f"target_s: {target_s} must be above 0 and finite")
    names = [name for name in PARAMETERS if name in vary]
    settings = DroppingSettings(duration_s=float(duration_s), warm_up_s=float(warm_up_s), seed=seed)
    search = _Search(
        Sweeper(on, off, service, settings, arrival_per_s),
        (arrival_per_s, service_per_s, input_per_s),
        base or Mechanism(),
        target_s,
        runs,
    )
    mechanism = search.find(names)
    fresh = search.simulate([mechanism], range(runs, 2 * runs + 2))
    return HybridChoice(mechanism, fresh, search.evaluations)


class _Search:
    def __init__(
        self, sweeper: Sweeper, rates: tuple[float, float, float], base: Mechanism, target_s: float, runs: int
    ):
        self.sweeper, self.rates, self.base, self.target_s, self.runs = sweeper, rates, base, target_s, runs
        self.evaluations = 0
        sweeper.kept = {run: sweeper.draw(run) for run in range(runs)}
        self.best: tuple[float, Mechanism] | None = None
        connectivity = sweeper.connectivity
        cycle_s = 0.0 if connectivity is None else connectivity.on.mean_s + connectivity.off.mean_s
        # Beyond these ends a lifetime hardly ever ends, and a buffer is hardly ever full.
        self.ranges = {
            "join_probability": (0.0, 1.0),
            "lifetime_s": (target_s / 20.0, 20.0 * (target_s + cycle_s)),
            "buffer_size": (1.0, 50.0 + 6.0 * rates[0] * cycle_s),
        }

    def find(self, names: Sequence[str]) -> Mechanism:
        inner, outer = names[0], names[1:]
        spans = {name: self.ranges[name] for name in outer}
        best = self.base
        for _ in range(_ZOOMS if outer else 1):
            grids = [_grid(name, *spans[name]) for name in outer]
            self._bisect(inner, [dict(zip(outer, values, strict=True)) for values in itertools.product(*grids)], _STEPS)
            if self.best is None:
                raise AssumptionError(
                    f"no {' and '.join(names)} gives a mean delay of {self.target_s:g} s or less; allow more time"
                )
            best = self.best[1]
            for name, grid in zip(outer, grids, strict=True):
                spans[name] = _around(grid, float(getattr(best, name)))
        # Between the points of the grid each parameter alone may still go a little further.
        for name in names:
            self._bisect(name, [{other: getattr(best, other) for other in names if other != name}], _FINE_STEPS)
            best = best if self.best is None else self.best[1]
        return best

    def _bisect(self, inner: str, others: list[dict[str, float]], steps: int) -> None:
        """For each setting of the others, the largest value of `inner` that meets the target; keeps the best of all."""
        low, high = self.ranges[inner]
        lows, highs = np.full(len(others), low), np.full(len(others), high)
        self._try(inner, highs, others)
        self._try(inner, lows, others)
        for _ in range(steps):
            middle = (lows + highs) / 2.0 if inner == "join_probability" else np.sqrt(lows * highs)
            meets = self._try(inner, middle, others)
            lows, highs = np.where(meets, middle, lows), np.where(meets, highs, middle)

    def _try(self, inner: str, values: np.ndarray, others: list[dict[str, float]]) -> np.ndarray:
        mechanisms = [
            _with(self.base, {inner: value, **other}) for value, other in zip(values.tolist(), others, strict=True)
        ]
        result = self.simulate(mechanisms, range(self.runs))
        self.evaluations += len(mechanisms)
        meets: np.ndarray = result.delay_mean_s.value <= self.target_s
        shares = np.where(meets, result.success_share.value, -1.0)
        i = int(np.argmax(shares))
        if meets[i] and (self.best is None or shares[i] > self.best[0]):
            self.best = float(shares[i]), mechanisms[i]
        return meets

    def simulate(self, mechanisms: list[Mechanism], runs: range) -> QueueSweep:
        size = len(mechanisms)
        rates, services, inputs = (np.full(size, rate) for rate in self.rates)
        accounts = QueueAccounts((size,), self.sweeper.settings)
        for run in runs:
            accounts.add(self.sweeper.run(run, rates, services, inputs, mechanisms))
        return accounts.result()


def _with(base: Mechanism, values: dict[str, float]) -> Mechanism:
    size = values.get("buffer_size", base.buffer_size)
    return replace(
        base,
        join_probability=values.get("join_probability", base.join_probability),
        lifetime_s=values.get("lifetime_s", base.lifetime_s),
        buffer_size=None if size is None else int(size),
    )


def _grid(name: str, low: float, high: float) -> list[float]:
    """Values from low to high in equal ratios; whole ones, each once, for a buffer."""
    values = np.geomspace(low, high, _GRID).tolist()
    return sorted({float(round(value)) for value in values}) if name == "buffer_size" else values


def _around(grid: list[float], value: float) -> tuple[float, float]:
    """The neighbours of a value of the grid."""
    i = int(np.argmin(np.abs(np.array(grid) - value)))
    return grid[max(0, i - 1)], grid[min(len(grid) - 1, i + 1)]
