"""The mechanism of each subscriber; parameters that a scenario leaves open are searched for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from surecast.errors import AssumptionError, ConfigurationError, SaturationError, refuse_unknown
from surecast.prediction.dropping.onoff import TargetVerdict
from surecast.prediction.dropping.optimal import optimal_policy, threshold_policy
from surecast.prediction.dropping.queue import OnOffQueue, QueueAnswer, evaluate
from surecast.prediction.dropping.search import Parameter, ParameterAnswer, ResponseTarget, largest_parameter
from surecast.prediction.dropping.stages_before import SubscriberQueue, outlets_of
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.spec.delivery import Dropping
from surecast.scenario.system import System

__all__ = [
    "POLICIES",
    "MechanismOutcome",
    "PolicyRule",
    "best_admission",
    "choose",
    "find_mechanisms",
    "register_policy",
    "through_input",
    "unregister_policy",
]

_OWN: Final = ("none", "probabilistic", "expiry", "finite-buffer", "optimal")

POLICIES: Final[list[str]] = list(_OWN)
"""The dropping policies: those that scenarios name, and those that `register_policy` added."""

PolicyRule: TypeAlias = Callable[[OnOffQueue, ResponseTarget], Mechanism | None]
"""The rule of a policy. It takes the queue of a subscriber and the response time to meet there, counted from the
arrival at the queue, and returns a mechanism with all its parameters; None if the target cannot be met."""

_RULES: Final[dict[str, PolicyRule]] = {}

_PARAMETER: dict[str, Parameter] = {
    "probabilistic": "join_probability",
    "expiry": "lifetime_s",
    "finite-buffer": "buffer_size",
}


def register_policy(name: str, rule: PolicyRule) -> None:
    """Adds a dropping policy, so that predictions, simulations and `--policy` know it by its name.

    >>> def half(queue: OnOffQueue, target: ResponseTarget) -> Mechanism | None:
    ...     mechanism = Mechanism(join_probability=0.5)
    ...     return mechanism if target.excess(evaluate(queue, mechanism)) <= 0 else None
    >>> register_policy("half", half)
    >>> POLICIES[-1]
    'half'
    >>> unregister_policy("half")
    """
    if name in _OWN or name in ("", "all"):
        raise ConfigurationError(f"a dropping policy of one's own cannot be called {name!r}; choose another name")
    _RULES[name] = rule
    if name not in POLICIES:
        POLICIES.append(name)


def unregister_policy(name: str) -> None:
    """Takes a registered policy away again; for tests and for extensions that are unloaded."""
    if _RULES.pop(name, None) is not None:
        POLICIES.remove(name)


@dataclass(frozen=True, eq=False)
class MechanismOutcome:
    """The service to a subscriber under a mechanism, counted from publication on."""

    mechanism: Mechanism
    answer: QueueAnswer
    """At the subscriber's queue."""
    input_s: float
    """Mean time before the queue, of the events that get there."""
    reaching: float
    """Share of the events that get to the queue before they expire."""
    exact: bool

    @property
    def success_share(self) -> float:
        return self.reaching * self.answer.success_share

    @property
    def delay_mean_s(self) -> float:
        """dropping Eq. 1."""
        return self.input_s + self.answer.response_mean_s

    @property
    def dropped(self) -> dict[str, float]:
        shares = {reason: self.reaching * lost for reason, lost in self.answer.dropped.items()}
        if self.reaching < 1.0:
            shares["expired in input queue"] = 1.0 - self.reaching
        return shares


def through_input(outlet: SubscriberQueue, mechanism: Mechanism) -> MechanismOutcome:
    """Returns the outcome of a mechanism for a subscriber, with lifetimes counted from publication.

    Without an input queue this is exact. With one, an exponential lifetime goes on in the subscriber's queue as it
    was, and a deterministic one is shorter there by the mean time before.
    """
    before = outlet.before_s
    if not mechanism.expires or before == 0.0:
        return MechanismOutcome(mechanism, evaluate(outlet.queue, mechanism), before, 1.0, outlet.exact)
    queue, lifetime = outlet.queue, mechanism.lifetime_s
    if mechanism.lifetime_distribution == "exponential":
        reaching, input_s = lifetime / (lifetime + before), 1.0 / (1.0 / before + 1.0 / lifetime)
        at_queue = mechanism
    elif lifetime > before:
        reaching, input_s = 1.0, before
        at_queue = replace(mechanism, lifetime_s=lifetime - before)
    else:
        raise AssumptionError(
            f"subscriber {outlet.subscriber.name}: a lifetime of {lifetime:.6g} s ends before the {before:.6g} s that "
            "events take on average to get to its queue"
        )
    arriving = OnOffQueue(queue.arrival_per_s * reaching, queue.service_per_s, queue.phases)
    return MechanismOutcome(mechanism, evaluate(arriving, at_queue), input_s, reaching, False)


def choose(
    outlet: SubscriberQueue, policy: str, dropping: Dropping, *, protect_connected: bool = True
) -> MechanismOutcome:
    """Returns the outcome for one subscriber under a policy; refuses with the reason where the target cannot be met.

    Parameters come from the scenario where it has this policy and gives them; otherwise they are the largest that meet
    the subscriber's target.
    """
    name = outlet.subscriber.name
    refuse_unknown("policy", [policy], POLICIES)
    base = Mechanism(lifetime_distribution=dropping.lifetime_distribution) if policy == "expiry" else Mechanism()
    if policy == "none":
        if not outlet.queue.is_stable():
            raise SaturationError(
                f"subscriber {name}: its queue is unstable without dropping: {outlet.queue.arrival_per_s:.6g} events/s "
                f"arrive, and {outlet.queue.service_per_s * outlet.queue.phases.connected_share:.6g}/s can be sent"
            )
        return through_input(outlet, base)
    parameters = _scenario_parameters(policy, dropping)
    if parameters is not None:
        return through_input(outlet, replace(base, **parameters))  # type: ignore[arg-type]
    wanted = outlet.subscriber.response_target_s
    if wanted is None:
        raise ConfigurationError(
            f"subscriber {name}: policy {policy} works towards a target; give targets.response_time or response_target"
        )
    if wanted <= outlet.before_s:
        raise AssumptionError(
            f"subscriber {name}: the target of {wanted:.6g} s is below the {outlet.before_s:.6g} s that events take to "
            "get to its queue, so that no dropping there can meet it"
        )
    if policy == "optimal":
        return _optimal(outlet, wanted - outlet.before_s, protect_connected)
    if policy in _RULES:
        return _by_rule(outlet, policy, wanted)
    return _automatic(outlet, _PARAMETER[policy], base, wanted)


def _scenario_parameters(policy: str, dropping: Dropping) -> dict[str, float] | None:
    """Returns the parameter that the scenario gives for this policy, if it does."""
    if policy != dropping.policy or policy == "optimal":
        return None
    field = {"probabilistic": "join_probability", "expiry": "lifetime", "finite-buffer": "buffer_size"}[policy]
    value = getattr(dropping, field)
    return None if value == "auto" else {_PARAMETER[policy]: value}


def _automatic(outlet: SubscriberQueue, parameter: Parameter, base: Mechanism, wanted: float) -> MechanismOutcome:
    before, queue = outlet.before_s, outlet.queue
    search = largest_parameter(queue, parameter, ResponseTarget(wanted - before), base)
    if search.mechanism is None:
        raise AssumptionError(f"subscriber {outlet.subscriber.name}: {_why(outlet, search, parameter, base, wanted)}")
    if not search.mechanism.expires or before == 0.0:
        return through_input(outlet, search.mechanism)
    if base.lifetime_distribution == "deterministic":
        return through_input(outlet, replace(base, lifetime_s=search.mechanism.lifetime_s + before))
    for _ in range(3):
        # what expires before the queue depends, a little, on the lifetime that is sought
        lifetime = search.mechanism.lifetime_s
        thinned = OnOffQueue(queue.arrival_per_s * lifetime / (lifetime + before), queue.service_per_s, queue.phases)
        again = largest_parameter(
            thinned, parameter, ResponseTarget(wanted - 1.0 / (1.0 / before + 1.0 / lifetime)), base
        )
        if again.mechanism is None or not again.mechanism.expires:
            break
        search = again
    assert search.mechanism is not None
    return through_input(outlet, search.mechanism)


def _by_rule(outlet: SubscriberQueue, policy: str, wanted: float) -> MechanismOutcome:
    mechanism = _RULES[policy](outlet.queue, ResponseTarget(wanted - outlet.before_s))
    if mechanism is None:
        raise AssumptionError(
            f"subscriber {outlet.subscriber.name}: the policy finds no way to meet the target of {wanted:.6g} s"
        )
    if mechanism.expires and mechanism.lifetime_distribution == "deterministic":
        # a rule sees the queue alone, and lifetimes count from publication
        mechanism = replace(mechanism, lifetime_s=mechanism.lifetime_s + outlet.before_s)
    return through_input(outlet, mechanism)


def _why(outlet: SubscriberQueue, search: ParameterAnswer, parameter: Parameter, base: Mechanism, wanted: float) -> str:
    queue = outlet.queue
    if search.verdict is TargetVerdict.UNSTABLE:
        return (
            f"its queue is unstable even if everything is dropped while it is disconnected: {queue.arrival_per_s:.6g} "
            f"events/s arrive while connected, and {queue.service_per_s:.6g}/s can be sent"
        )
    least: dict[str, float] = {parameter: 0.0 if parameter == "join_probability" else 1}
    reached = through_input(outlet, replace(base, **least)).delay_mean_s  # type: ignore[arg-type]
    return (
        f"the target of {wanted:.6g} s is below the {reached:.6g} s that even {parameter} {least[parameter]:g} leaves; "
        "ask for no less than that, or transmit faster"
    )


def _optimal(outlet: SubscriberQueue, target_s: float, protect_connected: bool) -> MechanismOutcome:
    queue, name = outlet.queue, outlet.subscriber.name
    if queue.periods_s is None:
        if queue.is_stable():
            free = evaluate(queue, Mechanism())
            if free.response_mean_s <= target_s:
                return through_input(outlet, Mechanism())
        mechanism = best_admission(queue, ResponseTarget(target_s))
    else:
        mechanism = optimal_policy(queue, target_s, protect_connected=protect_connected).mechanism
    if mechanism is None:
        raise AssumptionError(
            f"subscriber {name}: no policy that lets events join or not meets a mean of {target_s:.6g} s at its queue"
        )
    return through_input(outlet, mechanism)


def best_admission(queue: OnOffQueue, target: ResponseTarget) -> Mechanism | None:
    """Returns what delivers most by dropping nothing while connected: a threshold or a join probability; None if
    neither meets the target. Unless periods are exponential, either may win.

    >>> queue = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0)
    >>> round(sum(best_admission(queue, ResponseTarget(7.0)).join_table[0]), 3)
    22.042
    """
    threshold = threshold_policy(queue, target) if queue.is_stable(0.0) else None
    join = largest_parameter(queue, "join_probability", target).mechanism
    mechanisms = [mechanism for mechanism in (threshold, join) if mechanism is not None]
    return max(mechanisms, key=lambda mechanism: evaluate(queue, mechanism).success_share, default=None)


def find_mechanisms(
    system: System, policy: str | None = None, *, protect_connected: bool = True
) -> Mapping[str, Mechanism]:
    """Returns the mechanism of each subscriber that disconnects, by name, with all parameters found.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: commuter
    ... overlay: {brokers: [{name: b, capacity: 16/s}]}
    ... workload:
    ...   topics: [t]
    ...   publishers: [{name: p, home: b, topics: [t], rate: 2/s}]
    ...   subscribers:
    ...     - {name: s, home: b, topics: [t], connectivity: {on: 20s, off: 20s}, service: 8/s, response_target: 7s}
    ... delivery: {dropping: {policy: probabilistic, join_probability: auto}}
    ... '''))
    >>> round(find_mechanisms(system)["s"].join_probability, 4)
    0.3498
    """
    ignore: Callable[[str], None] = lambda _: None  # noqa: E731
    outlets, _ = outlets_of(system, ignore, ignore)
    dropping = system.delivery.dropping
    chosen = dropping.policy if policy is None else policy
    return {
        outlet.subscriber.name: choose(outlet, chosen, dropping, protect_connected=protect_connected).mechanism
        for outlet in outlets
    }
