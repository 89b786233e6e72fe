"""One subscriber that comes and goes: what each way of dropping events gives it, and which parameters meet a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from surecast.errors import AssumptionError, ConfigurationError, SaturationError, refuse_unknown
from surecast.prediction.dropping import (
    OnOffQueue,
    QueueAnswer,
    ResponseTarget,
    TargetVerdict,
    largest_parameter,
    threshold_policy,
)
from surecast.prediction.dropping.choose import MechanismOutcome, choose, through_input
from surecast.prediction.dropping.queue import after
from surecast.prediction.dropping.response_distributions import ResponseLaw, quantile_of_law
from surecast.prediction.dropping.search import Parameter
from surecast.prediction.dropping.stages_before import SubscriberQueue
from surecast.scenario.mechanism import Mechanism, parameter_text
from surecast.scenario.spec.delivery import Dropping
from surecast.scenario.system import Subscriber

__all__ = [
    "MECHANISMS",
    "UNPROTECTED",
    "Case",
    "Gives",
    "RateRange",
    "all_gives",
    "find",
    "gives_of",
    "rates_meeting",
]

MECHANISMS = ("none", "probabilistic", "finite-buffer", "expiry", "exponential-expiry", "optimal")
"""The mechanisms that are compared: the policies of scenarios, and expiry with exponential lifetimes."""
UNPROTECTED = "unprotected"
"""The optimal policy where it may turn events away while the subscriber is connected, too; on request."""

_PARAMETER: dict[str, Parameter] = {
    "probabilistic": "join_probability",
    "finite-buffer": "buffer_size",
    "expiry": "lifetime_s",
    "exponential-expiry": "lifetime_s",
}
_SHORTEST, _LONGEST = 1e-4, 1e2
"""Arrival rates that are tried, as multiples of the service rate."""


@dataclass(frozen=True)
class Case:
    """The queue of a subscriber with exponential connected and disconnected periods, and what is wanted of it.

    `input_per_s` is the rate of the broker's input queue, infinite where it takes no time. The target bounds the mean
    time from publication to the end of transmission or, with a `quantile`, the time of that share of the events.

    >>> Case(2.0, 8.0, 20.0, 20.0, target_s=7.0).before_s
    0.0
    """

    arrival_per_s: float
    service_per_s: float
    on_s: float
    off_s: float
    input_per_s: float = math.inf
    target_s: float | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        for name in ("arrival_per_s", "service_per_s", "on_s", "off_s"):
            value = getattr(self, name)
            if not 0.0 < value < math.inf:
                raise ConfigurationError(f"{name}: {value!r} must be above 0 and finite")
        if not self.input_per_s > 0.0:
            raise ConfigurationError(f"input_per_s: {self.input_per_s!r} must be above 0")
        if self.quantile is not None and not 0.0 < self.quantile < 1.0:
            raise ConfigurationError(f"quantile: {self.quantile!r} must be between 0 and 1, both excluded")
        if self.target_s is not None:
            ResponseTarget(self.target_s, self.quantile)
        if self.arrival_per_s >= self.input_per_s:
            raise SaturationError(
                f"the broker's input queue is unstable: {self.arrival_per_s:.6g} events/s arrive and it processes "
                f"{self.input_per_s:.6g}/s; publish less, or give the broker more capacity"
            )

    @property
    def before_s(self) -> float:
        """Mean time in the input queue: M/M/1 (dropping Eq. 1)."""
        return 0.0 if math.isinf(self.input_per_s) else 1.0 / (self.input_per_s - self.arrival_per_s)

    @cached_property
    def outlet(self) -> SubscriberQueue:
        """The queue as the formulas see it."""
        queue = OnOffQueue.exponential(self.arrival_per_s, self.service_per_s, self.on_s, self.off_s)
        subscriber = Subscriber("subscriber", 0, ("events",), response_target_s=self.target_s)
        return SubscriberQueue(subscriber, queue, self.before_s, True, True)


@dataclass(frozen=True, eq=False)
class Gives:
    """The outcome of a mechanism for a subscriber, or None and a `refusal` that says why there is none."""

    kind: str
    case: Case
    outcome: MechanismOutcome | None
    refusal: str = ""
    needed: bool = True
    """True if the target is missed without the mechanism."""
    is_saturated: bool = False
    """True where it is refused because the queue would grow for ever."""

    @property
    def mechanism(self) -> Mechanism:
        return Mechanism() if self.outcome is None else self.outcome.mechanism

    @cached_property
    def law(self) -> ResponseLaw:
        """Distribution of the time from publication to the end of transmission, of the events delivered."""
        assert self.outcome is not None
        return _whole(self.outcome)

    @property
    def met(self) -> bool | None:
        """True if the target is met; None where there is no target."""
        if self.case.target_s is None:
            return None
        return self.outcome is not None and _excess(self.outcome, self.case) <= 1e-9


def _whole(outcome: MechanismOutcome) -> ResponseLaw:
    law = after(outcome.answer.law, outcome.input_s)
    return _Sum(outcome.answer.law, outcome.input_s, outcome.delay_mean_s) if law is None else law


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True, eq=False)
class _Sum:
    """A response time after an independent exponential time, by quadrature over the latter."""

    law: ResponseLaw
    before_s: float
    mean_s: float

    def within(self, time_s: float) -> float:
        # beyond 30 means of the time before there is nothing left
        half = min(time_s, 30.0 * self.before_s) / 2.0
        spent = half * (_NODES + 1.0)
        inside = np.array([self.law.within(float(time_s - t)) for t in spent])
        return float(half / self.before_s * (_WEIGHTS * np.exp(-spent / self.before_s)) @ inside)

    def quantile_s(self, quantile: float) -> float:
        return quantile_of_law(self.within, quantile, self.mean_s)


class _FromPublication(ResponseTarget):
    """A quantile target for the time from publication on, met at a queue after an exponential time."""

    __slots__ = ("before_s",)
    before_s: float

    @classmethod
    def of(cls, case: Case, before_s: float) -> _FromPublication:
        assert case.target_s is not None
        target = cls(case.target_s, case.quantile)
        object.__setattr__(target, "before_s", before_s)
        return target

    def excess(self, answer: QueueAnswer) -> float:
        law = after(answer.law, self.before_s) or _Sum(answer.law, self.before_s, answer.response_mean_s)
        assert self.quantile is not None
        return self.quantile - law.within(self.time_s)


def _excess(outcome: MechanismOutcome, case: Case) -> float:
    """Above 0 where the target is missed."""
    assert case.target_s is not None
    if case.quantile is None:
        return outcome.delay_mean_s / case.target_s - 1.0
    return case.quantile - _whole(outcome).within(case.target_s)


def gives_of(case: Case, mechanism: Mechanism, kind: str = "") -> Gives:
    """Returns the outcome of a mechanism with given parameters; a refusal where the queue is unstable.

    >>> buffered = gives_of(Case(2.0, 8.0, 20.0, 20.0), Mechanism(buffer_size=22))
    >>> round(buffered.outcome.success_share, 4)
    0.6925
    """
    try:
        if mechanism == Mechanism():
            outcome = choose(case.outlet, "none", Dropping())
        else:
            _refuse_growth(case, mechanism)
            outcome = through_input(case.outlet, mechanism)
    except AssumptionError as error:
        return Gives(kind or mechanism.name, case, None, _plain(error), is_saturated=isinstance(error, SaturationError))
    return Gives(kind or mechanism.name, case, outcome)


def _refuse_growth(case: Case, mechanism: Mechanism) -> None:
    unbounded = mechanism.buffer_size is None and not mechanism.expires and mechanism.join_table is None
    queue, join = case.outlet.queue, mechanism.join_probability
    if unbounded and not queue.is_stable(join):
        share = queue.phases.connected_share
        raise SaturationError(
            f"the queue is unstable with join probability {join:.6g}: {queue.arrival_per_s:.6g} events/s arrive, "
            f"{queue.arrival_per_s * (share + (1 - share) * join):.6g}/s join and {queue.service_per_s * share:.6g}/s "
            "can be sent; let fewer join, or transmit faster"
        )


def find(case: Case, kind: str) -> Gives:
    """Returns the outcome of a mechanism with the largest parameter that meets the target of a case.

    For a quantile target the optimal policy is not known; the best threshold while disconnected takes its place.

    >>> best = find(Case(2.0, 8.0, 20.0, 20.0, 16.0, target_s=7.0), "probabilistic")
    >>> round(best.mechanism.join_probability, 4), round(best.outcome.success_share, 4)
    (0.3498, 0.6749)
    >>> find(Case(2.0, 8.0, 20.0, 20.0, target_s=0.2), "probabilistic").refusal
    'the target of 0.2 s is below the 0.333333 s that even join_probability 0 leaves; ask for no less than that, or \
transmit faster'
    """
    refuse_unknown("mechanism", [kind], (*MECHANISMS, UNPROTECTED))
    if kind == "none":
        return gives_of(case, Mechanism(), "none")
    if case.target_s is None:
        raise ConfigurationError(f"{kind}: which parameter is best depends on a target; give one")
    name = "threshold" if kind == "optimal" and case.quantile is not None else kind
    free = gives_of(case, Mechanism(), name)
    if free.met:
        return replace(free, needed=False)
    try:
        return Gives(name, case, _by_mean(case, kind) if case.quantile is None else _by_quantile(case, kind))
    except AssumptionError as error:
        return Gives(name, case, None, _plain(error), is_saturated=isinstance(error, SaturationError))


def _plain(error: AssumptionError) -> str:
    return str(error).removeprefix("subscriber subscriber: ")


def _by_mean(case: Case, kind: str) -> MechanismOutcome:
    policy = "expiry" if kind == "exponential-expiry" else kind
    distribution = "exponential" if kind == "exponential-expiry" else "deterministic"
    dropping = Dropping(policy="expiry", lifetime="auto", lifetime_distribution=distribution)
    if kind == "optimal" and case.before_s < (case.target_s or 0.0):
        # a policy that rejects no event while connected can at most drop all events while disconnected
        _by_mean(case, "probabilistic")
    if kind == UNPROTECTED:
        return choose(case.outlet, "optimal", dropping, protect_connected=False)
    return choose(case.outlet, policy, dropping)


def _by_quantile(case: Case, kind: str) -> MechanismOutcome:
    if kind == UNPROTECTED:
        raise AssumptionError("the best policy is known for a target of the mean only; leave the quantile out")
    before, queue, target = case.before_s, case.outlet.queue, _FromPublication.of(case, case.before_s)
    if kind == "optimal":
        mechanism = threshold_policy(queue, target) if queue.is_stable(0.0) else None
        if mechanism is None:
            raise AssumptionError(_least(case, Mechanism(join_probability=0.0)))
        return through_input(case.outlet, mechanism)
    base = Mechanism(lifetime_distribution="exponential" if kind == "exponential-expiry" else "deterministic")
    largest = largest_parameter(queue, _PARAMETER[kind], target, base)
    if largest.mechanism is None:
        least = {"probabilistic": Mechanism(join_probability=0.0), "finite-buffer": Mechanism(buffer_size=1)}
        unstable = largest.verdict is TargetVerdict.UNSTABLE
        if unstable:
            raise SaturationError(_unstable(case))
        raise AssumptionError(_least(case, least.get(kind, base)))
    if kind == "expiry":
        # at the queue the lifetime is shorter by the mean time before it
        return through_input(case.outlet, replace(base, lifetime_s=largest.mechanism.lifetime_s + before))
    if kind == "exponential-expiry" and before > 0.0:
        return _exponential(case, largest.mechanism)
    return through_input(case.outlet, largest.mechanism)


def _exponential(case: Case, start: Mechanism) -> MechanismOutcome:
    """The longest mean lifetime, with what expires in the input queue taken into account."""

    def excess(lifetime: float) -> float:
        return _excess(through_input(case.outlet, replace(start, lifetime_s=lifetime)), case)

    low = high = start.lifetime_s
    while excess(low) > 0.0:
        low *= 0.9
    while excess(high) <= 0.0:
        high *= 1.1
    root = float(brentq(excess, low, high, rtol=1e-12)) if high > low else low
    return through_input(case.outlet, replace(start, lifetime_s=root))


def _unstable(case: Case) -> str:
    return (
        "the queue is unstable even if everything is dropped while the subscriber is disconnected: "
        f"{case.arrival_per_s:.6g} events/s arrive while connected, and {case.service_per_s:.6g}/s can be sent"
    )


def _least(case: Case, mechanism: Mechanism) -> str:
    """Returns why a quantile target is out of reach, with the least that is within reach."""
    assert case.target_s is not None
    assert case.quantile is not None
    if mechanism.buffer_size is None and not case.outlet.queue.is_stable(mechanism.join_probability):
        return _unstable(case)
    reached = _whole(through_input(case.outlet, mechanism)).quantile_s(case.quantile)
    return (
        f"{case.quantile:.6g} of the delivered events within {case.target_s:.6g} s cannot be reached: even "
        f"{parameter_text(mechanism)} leaves {reached:.6g} s; ask for no less than that, or transmit faster"
    )


def all_gives(case: Case, kinds: Sequence[str] = MECHANISMS) -> list[Gives]:
    """Returns the outcome of every mechanism, with the largest parameter that meets the target.

    >>> [f"{g.kind} {g.outcome.success_share:.3f}" for g in all_gives(Case(2.0, 8.0, 20.0, 20.0, target_s=7.0))]
    ['none 1.000', 'probabilistic 0.677', 'finite-buffer 0.692', 'expiry 0.853', 'exponential-expiry 0.782', \
'optimal 0.699']
    """
    return [find(case, kind) for kind in kinds]


@dataclass(frozen=True)
class RateRange:
    """Arrival rates at which a target is met: from `low_per_s` (0: from the lowest on) to `high_per_s`, which is
    infinite where no rate is too high."""

    low_per_s: float
    high_per_s: float


def rates_meeting(case: Case, mechanism: Mechanism) -> RateRange | None:
    """The highest arrival rates at which a mechanism meets the target of a case, whose own rate does not matter.

    None if there are none. With a small buffer low rates may miss a target that higher rates meet, for most of the
    events accepted then come while the subscriber is connected.

    >>> case = Case(1.0, 8.0, 20.0, 20.0, target_s=7.0)
    >>> round(rates_meeting(case, Mechanism(join_probability=0.35)).high_per_s, 3)
    2.059
    """

    def excess(rate: float) -> float:
        if rate >= case.input_per_s:
            return 1.0
        answer = gives_of(replace(case, arrival_per_s=rate), mechanism)
        return 1.0 if answer.outcome is None else _excess(answer.outcome, answer.case)

    top = min(_LONGEST * case.service_per_s, case.input_per_s)
    rates = np.geomspace(_SHORTEST * case.service_per_s, top, 160).tolist()
    meets = [excess(rate) <= 0.0 for rate in rates]
    if not any(meets):
        return None
    last = len(meets) - 1 - meets[::-1].index(True)
    first = last
    while first > 0 and meets[first - 1]:
        first -= 1
    high = math.inf if last == len(rates) - 1 else _crossing(excess, rates[last], rates[last + 1])
    return RateRange(0.0 if first == 0 else _crossing(excess, rates[first], rates[first - 1]), high)


def _crossing(excess: Callable[[float], float], inside: float, outside: float) -> float:
    """The last rate that meets the target between one that does and one that does not."""
    for _ in range(60):
        middle = (inside + outside) / 2.0
        inside, outside = (middle, outside) if excess(middle) <= 0.0 else (inside, middle)
    return inside
