"""A question about a system, divided into the parts that each model answers for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from surecast.errors import AssumptionError, ConfigurationError, refuse_unknown
from surecast.scenario.group import is_replicated
from surecast.scenario.spec.delivery import SCHEMES, Dropping

if TYPE_CHECKING:
    from surecast.scenario.system import System

__all__ = ["Question", "ask", "check_algorithms"]

Names = list[str] | None


@dataclass(frozen=True)
class Question:
    """A question about a system: schemes of fault tolerance, schemes of packets, routing algorithms, drop policies.

    None of a kind stands for what the scenario says, or for all. With `compose`, a system that needs several models
    gets them composed where nothing is named: who names schemes, algorithms or policies wants these alone.
    """

    system: System
    schemes: Names = None
    packet_schemes: Names = None
    algorithms: Names = None
    policies: Names = None
    compose: bool = True

    @cached_property
    def is_composed(self) -> bool:
        """Several models are composed, and none of the parts below is answered alone."""
        from surecast.prediction.composed import composes

        named = self.schemes or self.packet_schemes or self.algorithms or self.policies
        return self.compose and not named and composes(self.system)

    @property
    def as_packets(self) -> System | None:
        """The part whose events travel as packets."""
        asked = self.packet_schemes or not (self.schemes or self.policies)
        return self._steady if self.system.delivery.coding is not None and asked else None

    @property
    def failing(self) -> System | None:
        """The part that failures of brokers and links are answered for; of packets only where something fails."""
        part = self._steady
        if part is None or self.as_packets is None or self.schemes:
            return part
        failures = [*(b.failures for b in part.overlay.brokers), *(k.failures for k in part.overlay.links)]
        return part if any(law is not None for law in failures) else None

    @property
    def coming(self) -> System | None:
        """The part whose subscribers come and go."""
        return self._parts[1]

    @property
    def has_classes(self) -> bool:
        """There are filter classes to answer for alone."""
        return self.system.class_workload is not None

    @property
    def has_groups(self) -> bool:
        """There are replicated brokers with something to order."""
        return is_replicated(self.system) and bool(self.system.publishers)

    @property
    def _steady(self) -> System | None:
        return self._parts[0]

    @cached_property
    def _parts(self) -> tuple[System | None, System | None]:
        """The system as the models of failures see it, and as those of dropping; None where there is nothing to see.

        Subscribers that come and go belong to dropping, the others to failures. Who names schemes alone wants failures
        for all, who names policies alone wants dropping only.
        """
        system, policies = self.system, self.policies
        if self.is_composed:
            return None, None
        if not system.publishers or not system.subscribers:
            self._refuse_nothing_asked()
            return None, None
        coming = [s for s in system.subscribers if s.connectivity is not None and system.publishers_of(s)]
        if policies and not coming:
            raise ConfigurationError(
                "`policies`: no subscriber both disconnects and has a publisher; give workload.subscribers a "
                "connectivity such as {on: 20s, off: 20s}"
            )
        if not coming or (self.schemes and not policies):
            return system, None
        names = {s.name for s in coming}
        steady = tuple(s for s in system.subscribers if s.name not in names)
        if self.schemes and not steady:
            raise ConfigurationError(
                "`schemes` and `policies`: every subscriber comes and goes, so that there is none for the schemes; "
                "name schemes alone to see what reaches their home brokers, or policies alone"
            )
        if not steady or (policies and not self.schemes):
            return None, system
        # Nothing is dropped on purpose for who is always connected.
        delivery = system.delivery.model_copy(update={"dropping": Dropping()})
        return replace(system, subscribers=steady, delivery=delivery), system

    def _refuse_nothing_asked(self) -> None:
        """Refuses a system without topics that has nothing else to answer for."""
        name = self.system.name
        if self.policies:
            raise ConfigurationError(f"`policies`: {name} has no subscribers with topics, so none that come and go")
        if self.system.class_workload is None and not self.has_groups:
            raise AssumptionError(
                f"{name} has no publishers and subscribers with topics, and no filter classes: "
                "there is nothing to predict or simulate; add workload.publishers and workload.subscribers"
            )


def ask(
    system: System,
    schemes: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    policies: Sequence[str] | None = None,
    compose: bool = True,
) -> Question:
    """Returns the question, its names checked; `schemes` may be of fault tolerance or of packets."""
    others, packets = _check_schemes(schemes)
    if packets and system.delivery.coding is None:
        raise ConfigurationError(
            f"`schemes` {packets[0]}: {system.name} has no delivery.coding, so events do not travel as packets; add it"
        )
    return Question(
        system, others or None, packets or None, check_algorithms(algorithms), _check_policies(policies), compose
    )


def _check_schemes(names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Refuses unknown schemes; returns those of fault tolerance and those of packets.

    Here and below a model is loaded only to check names that were given.
    """
    chosen = _list(names)
    if set(chosen) <= set(SCHEMES):
        return chosen, []
    from surecast.prediction import CODING_SCHEMES

    refuse_unknown("scheme", chosen, (*SCHEMES, *CODING_SCHEMES))
    packets = [name for name in chosen if name in CODING_SCHEMES]
    return [name for name in chosen if name not in CODING_SCHEMES], packets


def check_algorithms(names: Sequence[str] | None) -> Names:
    """Refuses unknown routing algorithms; None where none is named."""
    chosen = _list(names)
    if not chosen:
        return None
    from surecast.prediction.capacity.capacity_model import known_algorithms

    refuse_unknown("algorithm", chosen, known_algorithms())
    return chosen


def _check_policies(names: Sequence[str] | None) -> Names:
    """Refuses unknown drop policies; `all` stands for all of them."""
    chosen = _list(names)
    if not chosen:
        return None
    from surecast.prediction import POLICIES

    refuse_unknown("policy", chosen, (*POLICIES, "all"))
    return list(POLICIES) if "all" in chosen else chosen


def _list(names: Sequence[str] | None) -> list[str]:
    """Returns the names without repetitions; one name may stand alone."""
    return [names] if isinstance(names, str) else list(dict.fromkeys(names or ()))
