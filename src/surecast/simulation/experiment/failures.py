"""Components that fail and are repaired: brokers and links, each with a random stream of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from surecast.scenario.streams import Streams
from surecast.scenario.system import Failures
from surecast.simulation.equilibrium import residual_times

__all__ = ["FailureTrace", "run_streams"]

_BLOCK = 64


def run_streams(seed: int, run: int) -> Streams:
    """The random streams of one of several runs.

    >>> run_streams(7, 0).seed == run_streams(7, 0).seed != run_streams(7, 1).seed
    True
    """
    return Streams(int(Streams(seed).generator("run", str(run)).integers(2**63)))


class FailureTrace:
    """The times at which a component changes its state, from a stationary start.

    >>> from surecast.scenario import parse_distribution
    >>> failures = Failures(parse_distribution("90s"), parse_distribution("10s"))
    >>> trace = FailureTrace(failures, Streams(1).generator("failures", "b1"))
    >>> trace.starts_up
    True
    >>> changes = iter(trace)
    >>> next(changes) < next(changes)
    True
    """

    def __init__(self, failures: Failures, rng: np.random.Generator):
        self.starts_up = bool(rng.random() < failures.availability)
        self._failures = failures
        self._rng = rng

    def __iter__(self) -> Iterator[float]:
        """Times of the changes, in order and without end."""
        up = self.starts_up
        time_s = float(residual_times(self._failures.up if up else self._failures.down, self._rng, 1)[0])
        blocks: dict[bool, Iterator[float]] = {True: iter(()), False: iter(())}
        while True:
            yield time_s
            up = not up
            period_s = next(blocks[up], None)
            if period_s is None:
                law = self._failures.up if up else self._failures.down
                blocks[up] = iter(law.sample(self._rng, _BLOCK).tolist())
                period_s = next(blocks[up])
            time_s += period_s
