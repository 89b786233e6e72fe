"""The schemes of dissemination, each a choice of paths, coding and recovery."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from surecast.errors import ConfigurationError, refuse_unknown
from surecast.protocol.coding import CodingSettings
from surecast.protocol.dissemination.datagrams import (
    DATA_DATAGRAM_BYTES,
    ack_bytes,
    digest_bytes,
    request_bytes,
    view_bytes,
)
from surecast.protocol.gossip import GossipSettings
from surecast.scenario.paths import PATH_KINDS, PathKind
from surecast.scenario.spec.delivery import Coding

__all__ = ["SCHEMES", "DisseminationSettings", "scheme_settings", "timed"]

SCHEMES: Final = ("tree", "tree-retransmission", "gossip", "coding", "coding-gossip")
"""Forwarding along a tree, the same with acknowledgements, gossip alone, coding alone, and coding with gossip."""


@dataclass(frozen=True, slots=True)
class DisseminationSettings:
    """The settings of a dissemination network, equal at all its nodes.

    >>> DisseminationSettings(CodingSettings(packets=32, redundancy=0.25)).packets
    40
    """

    coding: CodingSettings
    """The way events are cut and coded. Without coding it has redundancy 0, and its packets are all plain."""
    paths: PathKind | Literal["none"] = "maximum-flow"
    """Which paths packets take; `none`: the publisher hands events to a few subscribers, and gossip does the rest."""
    recode: bool = True
    """Relays send fresh combinations where subscribers want different packets over one link."""
    retransmit: bool = False
    """Packets are acknowledged and sent again, hop by hop."""
    gossip: GossipSettings | None = None
    """Recovery among subscribers; None for none."""
    flush_s: float = 0.05
    """A relay that has heard no packet of an event for this long sends what it still owes to its branches."""
    retransmit_s: float = 0.1
    """Time given to acknowledgements of a neighbour whose round trips are not known yet."""
    tries_max: int = 16
    """Transmissions of a packet over one hop."""
    pace: bool = False
    """A publisher spaces packets by the flow on each link instead of sending them at once."""
    early: bool = False
    """A subscriber hands on plain packets before the event is complete."""
    lifetime_max_s: float = 3600.0
    """A packet whose deadline is further away is refused: it bounds how long a stranger's event is kept."""
    events_max: int = 1000
    """Events of which a node keeps packets at a time."""
    done_max: int = 10_000
    """Events that a node remembers to have done with."""
    groups_max: int = 10_000
    """Groups that a node knows of at a time."""
    unacknowledged_max: int = 100_000
    """Packets that wait for an acknowledgement at a time."""
    view_size: int = 30
    """Peers in a subscriber's partial view of a group."""
    mtu_bytes: int = 1400
    """The longest datagram."""
    key: bytes | None = field(default=None, repr=False)
    """The key that datagrams are authenticated with, if there is one."""

    def __post_init__(self) -> None:
        if self.paths != "none" and self.paths not in PATH_KINDS:
            raise ConfigurationError(f"paths {self.paths!r}; write none, {', '.join(PATH_KINDS)}")
        if self.paths == "none" and self.gossip is None:
            raise ConfigurationError("paths: without paths there must be gossip, or nobody gets anything")
        for name in ("flush_s", "retransmit_s", "lifetime_max_s"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise ConfigurationError(f"{name}: {getattr(self, name)} must be a time above 0")
        for name in ("tries_max", "events_max", "done_max", "groups_max", "unacknowledged_max", "view_size"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name}: {getattr(self, name)} must be 1 or more")
        if self.tries_max > 255:
            raise ConfigurationError(f"tries_max: {self.tries_max} must be 255 or less")
        if self.packets >= 0xFFFF:
            raise ConfigurationError(f"coding: {self.packets} packets of a generation; there may be 65534")
        self._check_mtu()

    @property
    def packets(self) -> int:
        """Packets that a publisher sends of a full generation."""
        return self.coding.packets + self.coding.coded_packets(self.coding.packets)

    def sent_of(self, plain: int) -> int:
        """Packets that a publisher sends of a generation with so many plain ones."""
        return plain + self.coding.coded_packets(plain)

    def _check_mtu(self) -> None:
        """No message that can come up may be longer than a datagram."""
        vector = max(8, (self.coding.packets * self.coding.field_bits + 7) // 8)
        tag = 4 if self.key is None else 16
        longest = {"a packet with its vector": DATA_DATAGRAM_BYTES + vector + self.coding.packet_bytes}
        if self.coding.key is not None:
            longest["a packet with its vector"] += 12
        if self.retransmit:
            longest["an acknowledgement"] = ack_bytes(self.packets)
        if self.gossip is not None:
            longest["a digest"] = digest_bytes(self.gossip.digest_events)
            numbers = 0 if self.gossip.coded else self.gossip.request_numbers
            longest["a request"] = request_bytes(self.gossip.request_generations, numbers)
        longest["a view"] = view_bytes(self.view_size)
        for name, size in longest.items():
            if size + tag > self.mtu_bytes:
                raise ConfigurationError(
                    f"mtu_bytes: {name} takes {size + tag} bytes, and a datagram {self.mtu_bytes}; "
                    "make packet_bytes, packets or the limits of gossip smaller"
                )


def scheme_settings(
    scheme: str, coding: CodingSettings, gossip: GossipSettings | None = None, paths: PathKind | None = None
) -> DisseminationSettings:
    """The settings of a scheme by its name. `paths` replaces the paths of the coded schemes.

    >>> scheme_settings("tree", CodingSettings(redundancy=0.5)).packets
    32
    >>> scheme_settings("coding", CodingSettings(), paths="single-path").paths
    'single-path'
    """
    refuse_unknown("scheme of packets", [scheme], SCHEMES)
    gossip = gossip or GossipSettings()
    plain = replace(coding, redundancy=0.0)
    if scheme == "tree":
        return DisseminationSettings(plain, "tree", recode=False)
    if scheme == "tree-retransmission":
        return DisseminationSettings(plain, "tree", recode=False, retransmit=True)
    if scheme == "gossip":
        return DisseminationSettings(plain, "none", recode=False, gossip=replace(gossip, coded=False, partial=False))
    if scheme == "coding":
        return DisseminationSettings(coding, paths or "maximum-flow")
    return DisseminationSettings(coding, paths or "maximum-flow", gossip=gossip)


def timed(settings: DisseminationSettings, spec: Coding) -> DisseminationSettings:
    """Settings with the times and tries of a scenario.

    >>> timed(DisseminationSettings(CodingSettings()), Coding(flush="100ms")).flush_s
    0.1
    """
    again = spec.retransmission
    return replace(settings, flush_s=spec.flush, retransmit_s=again.wait, tries_max=again.tries)
