"""A machine in virtual time, between a plain protocol object and whatever carries its messages.

A protocol object has no clock and no network. It is told messages and times, and answers with effects: messages to
send, records to store, events to deliver. A host has the one timer of its object and tells it when that is due; what
was meant for an earlier incarnation of a machine that has failed since is dropped. The world around it performs the
effects, as it has the network, the disks and the accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from surecast.scenario.streams import Streams
from surecast.scenario.system import Failures
from surecast.simulation.equilibrium import residual_times
from surecast.simulation.experiment.clock import TIMERS, Clock

__all__ = ["FailureTrace", "Host", "Machine", "TimedNode", "run_streams"]

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class TimedNode(Protocol[E_co]):
    """A protocol object with a timer."""

    def next_timer(self) -> float:
        """Returns the time at which to call `handle_timer` next; infinite if never."""
        ...

    def handle_timer(self, now: float) -> Iterable[E_co]:
        """Does what is due and returns the effects."""
        ...


class Machine:
    """A machine that fails and starts again: what it does later it does in the same incarnation, or not at all.

    >>> clock, heard = Clock(), []
    >>> machine = Machine(clock)
    >>> machine.later(1.0, 0, heard.append, "first")
    >>> machine.later(3.0, 0, heard.append, "third")
    >>> clock.at(2.0, 0, machine.end_incarnation)
    >>> clock.run(4.0), heard
    (True, ['first'])
    """

    def __init__(self, clock: Clock):
        self.clock = clock
        self.incarnation = 0

    def end_incarnation(self) -> None:
        """Drops all that this incarnation was going to do."""
        self.incarnation += 1

    def later(self, time_s: float, rank: int, action: Callable[..., None], *arguments: Any) -> None:
        """Does something at a time if the machine has not failed by then."""
        self.clock.at(time_s, rank, self._if_same, self.incarnation, action, arguments)

    def _if_same(self, incarnation: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.incarnation == incarnation:
            action(*arguments)


class Host(Machine, Generic[E]):
    """A machine that runs a protocol object; `handler` does what the object wants done.

    >>> class Echo:
    ...     due_s = 5.0
    ...     def next_timer(self): return self.due_s
    ...     def handle_timer(self, now):
    ...         self.due_s = inf
    ...         return [f"timer at {now:g}"]
    >>> clock, seen = Clock(), []
    >>> Host(Echo(), clock, lambda host, effects: seen.extend(effects)).perform(["heard"])
    >>> clock.run(10.0), seen
    (True, ['heard', 'timer at 5'])
    """

    def __init__(
        self,
        node: TimedNode[E],
        clock: Clock,
        handler: Callable[[Any, Iterable[E]], None],
        timer_rank: int = TIMERS,
    ):
        super().__init__(clock)
        self.node = node
        self._handler = handler
        self._rank = timer_rank
        self._timer_s = inf

    def end_incarnation(self) -> None:
        """Drops the timer too."""
        super().end_incarnation()
        self._timer_s = inf

    def perform(self, effects: Iterable[E]) -> None:
        """Has performed what the object answered, and sets the timer that it wants now."""
        self._handler(self, effects)
        timer_s = self.node.next_timer()
        if timer_s < self._timer_s:
            self._timer_s = timer_s
            self.clock.at(timer_s, self._rank, self._timer, self.incarnation, timer_s)

    def _timer(self, incarnation: int, timer_s: float) -> None:
        if self.incarnation == incarnation and self._timer_s == timer_s:
            self._timer_s = inf
            self.perform(self.node.handle_timer(self.clock.now))


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
