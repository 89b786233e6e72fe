"""Searches the cheapest number of brokers at each site, for one class of machines, that carries the load.

From one broker at each site, the site whose brokers are furthest above a limit gets one more, until none is. What is
found is compared with a bound: the work of a site without any forwarding between its brokers, divided by what a broker
may do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from surecast.planning.sizing.candidates import spread, without_site
from surecast.planning.sizing.catalogue import MachineClass, profile_on
from surecast.profile import BrokerLoad, BrokerProfile
from surecast.scenario.profile_load import profile_loads
from surecast.scenario.system import System

__all__ = ["BROKERS_MAX", "Candidate", "Cases", "Limits", "Use", "bound", "search"]

BROKERS_MAX: Final = 64
_PACKET_BYTES: Final = 80
"""Bytes of MQTT, TCP and IP around a payload, with its share of the topic."""
_MEMORY_SHARE: Final = 0.8
"""The rest is the system's."""


@dataclass(frozen=True)
class Limits:
    """The limits of an answer: so much of each resource stays free, also with one broker down if `survives`."""

    headroom: float = 0.3
    survives: bool = True


@dataclass(frozen=True)
class Use:
    """The share of a resource that the busiest broker uses, of what it may: above 1 it is too much."""

    resource: str
    broker: str
    share: float
    when: str = ""

    @property
    def words(self) -> str:
        return f"{self.resource} of broker {self.broker}{f' while {self.when}' if self.when else ''}"


@dataclass(frozen=True)
class Candidate:
    """Brokers at each site on one class of machines, and the resource that is used most.

    Without `fits` the search ended before all fitted.
    """

    machine: MachineClass
    counts: tuple[int, ...]
    limiting: Use
    fits: bool

    @property
    def brokers(self) -> int:
        return sum(self.counts)

    @property
    def cost(self) -> float:
        return self.brokers * self.machine.cost


class Cases:
    """The loads of a system's brokers, by the number of brokers at each site, each counted once."""

    def __init__(self, system: System):
        self.system = system
        self._counted: dict[tuple[tuple[int, ...], int], list[_Loaded]] = {}

    def of(self, counts: tuple[int, ...], survives: bool) -> Iterator[tuple[str, list[_Loaded] | None]]:
        """Yields what is down and the loads then, None where the others cannot reach each other; first with all up."""
        yield "", self._loads(counts, -1)
        for site in range(len(counts)) if survives else ():
            name = self.system.overlay.brokers[site].name
            if counts[site] > 1:
                fewer = tuple(count - (i == site) for i, count in enumerate(counts))
                yield f"one broker of {name} is down", self._loads(fewer, -1)
                continue
            yield f"{name} is down", self._loads(counts, site)

    def _loads(self, counts: tuple[int, ...], down: int) -> list[_Loaded] | None:
        """Returns site, broker, profile and load of each broker, without a site where one is down."""
        if (counts, down) not in self._counted:
            base = self.system if down < 0 else without_site(self.system, down)
            if base is None:
                return None
            system = spread(base, counts)
            sites = [*range(len(counts)), *(site for site, count in enumerate(counts) for _ in range(1, count))]
            self._counted[counts, down] = [
                (site, broker.name, broker.profile, load)
                for site, broker, load in zip(sites, system.overlay.brokers, profile_loads(system), strict=True)
                if broker.profile is not None
            ]
        return self._counted[counts, down]


_Loaded = tuple[int, str, BrokerProfile, BrokerLoad]


def search(cases: Cases, machine: MachineClass, limits: Limits, speed: float | None = None) -> Candidate:
    """Returns the fewest brokers that the steps find, or the last ones tried if they do not fit.

    A site that one broker more does not help is limited by what each broker does for all: passing events on.
    """
    rate = machine.speed.estimate if speed is None else speed
    counts, helped = [1] * len(cases.system.overlay.brokers), (-1, math.inf)
    while True:
        worst = _worst(cases, tuple(counts), machine, limits, rate)
        most = max(worst, key=lambda use: use.share)
        site = worst.index(most)
        is_stuck = site == helped[0] and most.share >= helped[1]
        if most.share <= 1.0 or sum(counts) >= BROKERS_MAX or is_stuck:
            return Candidate(machine, tuple(counts), most, most.share <= 1.0)
        helped = (site, most.share if counts[site] > 1 else math.inf)
        counts[site] += 1


def _worst(cases: Cases, counts: tuple[int, ...], machine: MachineClass, limits: Limits, speed: float) -> list[Use]:
    """Returns the resource that is used most at each site, in the worst of all cases."""
    worst = [Use("processor", broker.name, 0.0) for broker in cases.system.overlay.brokers]
    for when, loaded in cases.of(counts, limits.survives):
        if loaded is None:
            site = [f"{each.name} is down" for each in cases.system.overlay.brokers].index(when)
            name = cases.system.overlay.brokers[site].name
            worst[site] = Use("connection", name, math.inf, f"{when}, as others cannot reach each other")
            continue
        for site, name, profile, load in loaded:
            for resource, share in shares(profile, load, machine, limits, speed):
                if share > worst[site].share:
                    worst[site] = Use(resource, name, share, when)
    return worst


def shares(
    profile: BrokerProfile, load: BrokerLoad, machine: MachineClass, limits: Limits, speed: float
) -> Iterator[tuple[str, float]]:
    """Yields the share of each resource that a load uses, of what the headroom leaves."""
    free = 1.0 - limits.headroom
    yield "processor", profile_on(profile, machine, speed).use_of(load).utilisation / free
    yield "memory", profile.memory_bytes(load.connections) / (machine.memory * min(free, _MEMORY_SHARE))
    packets = load.messages_per_s + load.deliveries_per_s
    acknowledged = load.acknowledged_messages_per_s + load.acknowledged_deliveries_per_s
    carried = load.received_bytes_per_s + load.sent_bytes_per_s + _PACKET_BYTES * packets + 40.0 * acknowledged
    yield "bandwidth", carried / (machine.bandwidth * free)


def bound(cases: Cases, machine: MachineClass, limits: Limits) -> int:
    """Returns a number of brokers that no answer goes below: the work of each site alone, without turns and wakings."""
    free, least = 1.0 - limits.headroom, 0
    counts = (1,) * len(cases.system.overlay.brokers)
    for _, loaded in cases.of(counts, survives=False):
        for _, _, plain, load in loaded or ():
            profile = profile_on(plain, machine, machine.speed.estimate)
            own = 1.0 / profile.saturation(load) if load.messages_per_s else 0.0
            least += max(1, math.ceil(own / free - 1e-9))
    return least
