"""Brokers and links as small Markov chains that are sometimes up and sometimes down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

from surecast.errors import AssumptionError
from surecast.prediction.reliability.phase_fit import fit_phase_type
from surecast.scenario.distributions import Exponential, Hyperexponential
from surecast.scenario.group import groups_of
from surecast.scenario.saturation import broker_rates_per_s
from surecast.scenario.system import Failures, System

if TYPE_CHECKING:
    from surecast.prediction.replication.chain import GroupChain

__all__ = ["ComponentChain", "Components", "component_of", "components_of"]

Array = NDArray[np.float64]

STAGES_MAX = 3
"""Stages of an Erlang fit inside a hop: the chain of a hop is the product of three components."""
PHASES_MAX = 10
"""Phases of one component, up and down together."""
GROUP_STATES_MAX = 11
"""States of a group that is taken as it is: seven replicas with exponential times."""


@dataclass(frozen=True)
class ComponentChain:
    """A broker or a link: `generator` moves it between its phases, of which the first `up` are up ones."""

    name: str
    generator: Array
    up: int
    is_exponential: bool

    @cached_property
    def stationary(self) -> Array:
        """Long-run share of time in each phase."""
        n = len(self.generator)
        if n == 2:
            failure, repair = self.generator[0, 1], self.generator[1, 0]
            return np.array([repair, failure], dtype=np.float64) / float(failure + repair)
        system = np.vstack([self.generator.T, np.ones(n)])
        solved = np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=None)[0]
        return np.asarray(np.maximum(solved, 0.0) / np.maximum(solved, 0.0).sum(), dtype=np.float64)

    @property
    def availability(self) -> float:
        return float(self.stationary[: self.up].sum())

    def after(self, time_s: float) -> Array:
        """Returns the probabilities of each phase a time after each phase."""
        if len(self.generator) == 2:
            fade = math.exp(self.generator.trace() * time_s)
            return np.asarray(fade * np.eye(2) + (1.0 - fade) * self.stationary, dtype=np.float64)
        return np.asarray(expm(self.generator * time_s), dtype=np.float64)


def component_of(name: str, failures: Failures | None) -> ComponentChain | None:
    """Returns the chain of a component; None if it never fails.

    Exponential up and down times give the two states of the paper. Any other are replaced by their phases.

    >>> from surecast.scenario import Failures, parse_distribution
    >>> failures = Failures(parse_distribution("90s"), parse_distribution("10s"))
    >>> component_of("b1", failures).availability
    0.9
    """
    if failures is None:
        return None
    up_initial, up = fit_phase_type(failures.up, STAGES_MAX)
    down_initial, down = fit_phase_type(failures.down, STAGES_MAX)
    n = len(up_initial)
    if n + len(down_initial) > PHASES_MAX:
        raise AssumptionError(
            f"{name}: its up and down times have {n + len(down_initial)} phases together, more than the "
            f"{PHASES_MAX} that the delay model takes; give a distribution with fewer phases"
        )
    generator = np.block(
        [
            [up, np.outer(-up.sum(axis=1), down_initial)],
            [np.outer(-down.sum(axis=1), up_initial), down],
        ]
    )
    exponential = isinstance(failures.up, Exponential) and isinstance(failures.down, Exponential)
    return ComponentChain(name, generator, n, exponential)


@dataclass(frozen=True)
class Components:
    """All brokers and links of an overlay: their chains (None: never fails) and their numbers as arrays.

    A broker that is a group of replicas has the chain of its group. `simplified` names those groups whose chain is too
    large and was replaced by one with fewer states.

    Failure rates are 0 and availabilities 1 where a component never fails; of non-exponential times the rates are
    the inverse means.
    """

    brokers: tuple[ComponentChain | None, ...]
    links: tuple[ComponentChain | None, ...]
    broker_up: Array
    link_up: Array
    broker_failure: Array
    broker_repair: Array
    link_failure: Array
    link_repair: Array
    simplified: tuple[str, ...] = ()

    @cached_property
    def not_exponential(self) -> tuple[str, ...]:
        """Names of the components whose times are not exponential."""
        return tuple(c.name for c in (*self.brokers, *self.links) if c is not None and not c.is_exponential)


def components_of(system: System) -> Components:
    """Returns the components of a system's overlay."""
    overlay = system.overlay
    links = [(f"link {link.name}", link.failures) for link in overlay.links]
    groups = _groups(system)
    broker_failures = [
        broker.failures if group is None else group.failures()
        for broker, group in zip(overlay.brokers, groups, strict=True)
    ]
    brokers = [
        component_of(f"broker {broker.name}", failures) if group is None else _group_component(broker.name, group)
        for broker, failures, group in zip(overlay.brokers, broker_failures, groups, strict=True)
    ]
    broker_failure, broker_repair = _rates(broker_failures)
    link_failure, link_repair = _rates([failures for _, failures in links])
    return Components(
        tuple(brokers),
        tuple(component_of(*link) for link in links),
        _availabilities(broker_failures),
        _availabilities([failures for _, failures in links]),
        broker_failure,
        broker_repair,
        link_failure,
        link_repair,
        tuple(b.name for b, g in zip(overlay.brokers, groups, strict=True) if g is not None and _is_large(g)),
    )


def _groups(system: System) -> list[GroupChain | None]:
    """Returns the chain of each broker that is a group of replicas; equal groups share theirs."""
    brokers = system.overlay.brokers
    if system.delivery.replication.replicas == 1:
        return [None] * len(brokers)
    from surecast.prediction.replication.chain import group_chain, reversible_chain
    from surecast.prediction.replication.election_time import failover_s

    cache: dict[tuple[Failures | None, float], GroupChain | None] = {}
    chains: list[GroupChain | None] = []
    for group, rate in zip(groups_of(system), broker_rates_per_s(system), strict=True):
        if group is None:
            chains.append(None)
            continue
        key = (group.failures, failover_s(group, rate))
        if key not in cache:
            cache[key] = reversible_chain(group, key[1]) or group_chain(group, key[1])
        chains.append(cache[key])
    return chains


def _is_large(group: GroupChain) -> bool:
    return len(group.generator) > GROUP_STATES_MAX


def _group_component(name: str, group: GroupChain) -> ComponentChain:
    """Returns a group in place of a broker: as it is, or, if that is too large, with the moments of its times."""
    if not _is_large(group):
        return ComponentChain(f"broker {name}", group.generator, group.up, False)
    failures = group.failures()
    # most outages are elections, and few are long: their lengths vary more than exponential ones
    down = Hyperexponential(scv=max(1.0, failures.down.squared_cv)).with_mean(failures.mttr_s)
    component = component_of(f"broker {name}", Failures(Exponential().with_mean(failures.mtbf_s), down))
    assert component is not None
    return component


def _availabilities(failures: Sequence[Failures | None]) -> Array:
    return np.array([1.0 if f is None else f.availability for f in failures], dtype=np.float64)


def _rates(failures: Sequence[Failures | None]) -> tuple[Array, Array]:
    up = np.array([np.inf if f is None else f.mtbf_s for f in failures], dtype=np.float64)
    down = np.array([1.0 if f is None else f.mttr_s for f in failures], dtype=np.float64)
    return 1.0 / up, 1.0 / down
