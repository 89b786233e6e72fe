"""The alternatives of delivery by packets, each predicted for an audience."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from surecast.errors import AssumptionError, ConfigurationError, refuse_unknown
from surecast.prediction.coding.groups import PeerConnections
from surecast.prediction.coding.lossy_network import Audience, ChannelAssumptions, PathSet, path_set, peers_of
from surecast.prediction.coding.packet_delivery import (
    Arrivals,
    CodedEvent,
    SchemeOutcome,
    coded_outcome,
    gossip_outcome,
    path_arrivals,
)
from surecast.prediction.coding.tree_delivery import retransmission_outcome, tree_outcome
from surecast.scenario.paths import PATH_KINDS, PathKind
from surecast.scenario.spec.delivery import Coding, Gossip
from surecast.scenario.system import System

__all__ = ["CODING_SCHEMES", "Alternative", "Forecaster", "alternatives", "coding_of"]

CODING_SCHEMES: Final = ("tree", "tree-retransmission", "gossip", "coding", "coding-gossip")
"""Forwarding along a tree, the same with acknowledgements, gossip alone, coding alone, and coding with gossip."""

Method = Literal["tree", "tree-retransmission", "gossip", "coding", "coding-gossip"]


@dataclass(frozen=True, slots=True)
class Alternative:
    """A scheme, and the paths of coded packets where these are not the scenario's.

    >>> Alternative("coding", "single-path").name
    'coding single-path'
    """

    method: Method
    paths: PathKind | None = None

    @property
    def name(self) -> str:
        return self.method if self.paths is None else f"{self.method} {self.paths}"


def alternatives(spec: Coding, names: list[str] | None = None) -> list[Alternative]:
    """Returns the alternatives to compare: those named, or all, the coded ones over other paths too.

    >>> [a.name for a in alternatives(Coding(paths="tree"), ["tree", "coding"])]
    ['tree', 'coding', 'coding single-path', 'coding maximum-flow']
    """
    refuse_unknown("scheme of packets", names or (), CODING_SCHEMES)
    chosen: list[Alternative] = []
    for method in CODING_SCHEMES:
        if (names and method not in names) or (spec.gossip is None and "gossip" in method):
            continue
        chosen.append(Alternative(method))
        if method in ("coding", "coding-gossip"):
            chosen += [Alternative(method, kind) for kind in PATH_KINDS if kind != spec.paths]
    if not chosen:
        raise ConfigurationError("the scheme gossips, and delivery.coding.gossip is null; give it a mode")
    return chosen


class Forecaster:
    """Predicts alternatives for the audiences of a system. What they have in common is computed once.

    `samples` draws of the losses stand for paths that share links.
    """

    def __init__(self, system: System, channel: ChannelAssumptions | None = None, samples: int = 2000):
        self.system = system
        self.coding = coding_of(system)
        self.channel = channel or ChannelAssumptions.of_scenario(self.coding)
        self.samples = samples
        self._peers: dict[tuple[int, bool], PeerConnections] = {}
        self._arrivals: dict[tuple[int, PathKind, int], Arrivals] = {}

    def event(self, coded: int | None = None) -> CodedEvent:
        """Returns an event of the scenario, with its own number of coded packets or another."""
        spec = self.coding
        if coded is None:
            coded = math.ceil(spec.redundancy * spec.packets - 1e-9)
        return CodedEvent(spec.packets, coded, spec.field_bits, float(spec.packet_size))

    def outcome(self, audience: Audience, alternative: Alternative) -> SchemeOutcome:
        """Returns the outcome of an alternative for an audience."""
        overlay, channel, method = self.system.overlay, self.channel, alternative.method
        if method in ("tree", "tree-retransmission"):
            event = self.event(coded=0)
            paths = path_set(overlay, audience, "tree", event.packets, channel)
            if method == "tree":
                return tree_outcome(audience, paths, event, channel)
            again = self.coding.retransmission
            return retransmission_outcome(
                audience, paths, event, channel, overlay, again, self.samples, self.system.seed
            )
        gossip = self.coding.gossip
        if method == "gossip":
            if gossip is None:
                raise ConfigurationError("gossip alone: delivery.coding.gossip is null; give it a mode")
            peers = self.peers(audience, with_source=True)
            return gossip_outcome(audience, self.event(coded=0), peers, gossip, self.samples, self.system.seed)
        kind = alternative.paths or self.coding.paths
        return self.coded(audience, kind, self.event().coded, gossip if method == "coding-gossip" else None)

    def coded(self, audience: Audience, kind: PathKind, coded: int, gossip: Gossip | None) -> SchemeOutcome:
        """Returns the outcome of coding with `coded` coded packets over paths of a kind, with or without gossip."""
        arrivals = self.arrivals(audience, kind, coded)
        return coded_outcome(audience, arrivals, self.peers(audience), gossip, self.channel, self.system.seed)

    def arrivals(self, audience: Audience, kind: PathKind, coded: int) -> Arrivals:
        key = (id(audience), kind, coded)
        if key not in self._arrivals:
            event = self.event(coded)
            paths = path_set(self.system.overlay, audience, kind, event.sent, self.channel)
            self._must_keep_up(audience, paths)
            self._arrivals[key] = path_arrivals(
                audience, paths, event, self.channel, self.samples, self.system.seed, self.coding.flush
            )
        return self._arrivals[key]

    def peers(self, audience: Audience, with_source: bool = False) -> PeerConnections:
        key = (id(audience), with_source)
        if key not in self._peers:
            self._peers[key] = peers_of(self.system.overlay, audience, self.channel, with_source)
        return self._peers[key]

    def _must_keep_up(self, audience: Audience, paths: PathSet) -> None:
        """Refuses events that come faster than their paths carry them: they would queue without end, and the delays
        would be wrong.
        """
        wanted_per_s = audience.rate_per_s * paths.packets
        if wanted_per_s > paths.rate_per_s:
            broker = self.system.overlay.brokers[audience.source].name
            raise AssumptionError(
                f"broker {broker}: {wanted_per_s:.4g} packets/s are sent over {paths.kind} paths that carry "
                f"{paths.rate_per_s:.4g}/s; lower the rate, the packets or the redundancy, or raise capacities"
            )


def coding_of(system: System) -> Coding:
    """Returns the coding settings of a scenario; refuses one without."""
    if system.delivery.coding is None:
        raise ConfigurationError(f"{system.name}: delivery.coding is missing; give it packets and redundancy")
    return system.delivery.coding
