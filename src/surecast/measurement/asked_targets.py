"""Response targets that the subscribers of a run ask their broker for, and what the broker decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from surecast.documents.units import format_duration
from surecast.errors import AssumptionError
from surecast.protocol.broker.response_target import POLICIES, PREFIX, ResponseTarget
from surecast.protocol.mqtt import Properties
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.system import System

__all__ = ["AskedTarget", "asked_targets", "decision_remarks", "prior_limits"]

_PARAMETERS: Final = ("join_probability", "lifetime", "buffer_size")


@dataclass(frozen=True)
class AskedTarget:
    """The target that a subscriber asks for, in the scenario's time; `predicted` is the mechanism that formulas find
    for it."""

    target: ResponseTarget
    predicted: Mechanism
    connected_s: float
    disconnected_s: float

    def properties(self, scale: float) -> Properties:
        """Returns the properties of SUBSCRIBE that ask for it, in a run with this time scale.

        >>> AskedTarget(ResponseTarget(7.0, policy="expiry"), Mechanism(), 20.0, 20.0).properties(100.0).user
        (('surecast-response-mean-ms', '70'), ('surecast-response-policy', 'expiry'))
        """
        milliseconds = f"{1000.0 * self.target.time_s / scale:.6g}"
        return Properties(
            user=((f"{PREFIX}response-mean-ms", milliseconds), (f"{PREFIX}response-policy", self.target.policy))
        )


def asked_targets(system: System, mechanisms: Mapping[str, Mechanism]) -> dict[str, AskedTarget]:
    """Returns what the subscribers that come and go ask for, by name; refuses a scenario that leaves nothing to ask."""
    dropping = system.delivery.dropping
    policy = next((each for each in POLICIES if each == dropping.policy), None)
    if policy is None:
        raise AssumptionError(
            f"delivery.dropping.policy: {dropping.policy}: subscribers that ask for their targets ask for a policy, "
            f"too; write {', '.join(each for each in POLICIES if each != 'best')}"
        )
    for name in _PARAMETERS:
        if getattr(dropping, name) not in (None, "auto"):
            raise AssumptionError(
                f"delivery.dropping.{name}: {getattr(dropping, name):g}: a broker that is asked for a target chooses "
                "it; write auto"
            )
    asked = {}
    for who in system.subscribers:
        if who.name not in mechanisms or who.connectivity is None:
            continue
        if who.response_target_s is None:
            raise AssumptionError(
                f"workload.subscribers: {who.name} comes and goes and has no target to ask for; give "
                "targets.response_time, or response_target"
            )
        asked[who.name] = AskedTarget(
            ResponseTarget(who.response_target_s, policy=policy),
            mechanisms[who.name],
            who.connectivity.on.mean_s,
            who.connectivity.off.mean_s,
        )
    if not asked:
        raise AssumptionError(
            "workload.subscribers: nobody comes and goes, so nobody asks for a response target; give a connectivity"
        )
    return asked


def prior_limits(asked: Collection[AskedTarget], scale: float) -> dict[str, Any]:
    """Returns the limits by which a broker knows beforehand what periods to expect: the means over the subscribers."""
    if not asked:
        return {}
    on = sum(each.connected_s for each in asked) / len(asked)
    off = sum(each.disconnected_s for each in asked) / len(asked)
    return {
        "connected_prior": format_duration(max(0.001, on / scale)),
        "disconnected_prior": format_duration(max(0.001, off / scale)),
    }


def decision_remarks(
    asked: Mapping[str, AskedTarget], targets: Mapping[str, Mapping[str, Any]], scale: float
) -> tuple[list[str], list[str]]:
    """Returns notes of what the broker decided for each subscriber at the end, and warnings where it could not.

    `targets` are the broker's answers by name of the subscriber, in the run's own time.
    """
    notes, warnings = [], []
    for name, each in asked.items():
        view = targets.get(name)
        if view is None or view["policy"] is None:
            warnings.append(f"{name}: its broker has decided nothing for the target of {each.target.time_s:.4g} s")
            continue
        low, high = (view[key] for key in ("measured_low", "measured_high"))
        lately = "" if low is None else f"; a mean of {scale * low:.3g} to {scale * high:.3g} s lately"
        notes.append(
            f"{name}: the broker decided on {_words(view, scale)}, with success "
            f"{100 * view['expected_success']:.3g} % expected{lately}; the prediction finds "
            f"{_predicted(each.predicted)}"
        )
        if not view["can_be_met"]:
            warnings.append(f"{name}: its broker says that the target cannot be met: {view['reason']}")
    return notes, warnings


def _words(view: Mapping[str, Any], scale: float) -> str:
    """Returns the decision of a broker in words, a lifetime in the scenario's time."""
    parameter: Sequence[str] = view["parameter"].split(" ") if view["parameter"] else ()
    if len(parameter) == 3 and parameter[0] == "lifetime":
        return f"{view['policy']}: lifetime {scale * float(parameter[1]):.4g} s"
    return f"{view['policy']}: {view['parameter'] or 'nothing is dropped'}"


def _predicted(mechanism: Mechanism) -> str:
    if mechanism.join_table is not None:
        return f"threshold {sum(mechanism.join_table[0]):.5g}"
    if mechanism.expires:
        return f"lifetime {mechanism.lifetime_s:.4g} s"
    if mechanism.buffer_size is not None:
        return f"buffer {mechanism.buffer_size}"
    return f"join probability {mechanism.join_probability:.4g}"
