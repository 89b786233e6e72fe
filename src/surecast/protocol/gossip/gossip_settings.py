"""Settings of gossip: subscribers of an event help each other to the packets they miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from surecast.errors import ConfigurationError
from surecast.scenario.spec.delivery import Gossip

__all__ = ["GossipMode", "GossipSettings"]

GossipMode: TypeAlias = Literal["push", "pull", "push-pull"]

_COUNTS: Final = (
    "fan_out",
    "buffer_packets",
    "events_max",
    "peers_max",
    "digest_events",
    "request_generations",
    "request_numbers",
)


@dataclass(frozen=True, slots=True)
class GossipSettings:
    """Parameters of the recovery.

    >>> GossipSettings.of_scenario(Gossip(mode="pull", fan_out=4)).fan_out
    4
    """

    mode: GossipMode = "push-pull"
    """`push`: whoever has an event sends packets of it. `push-pull`: it announces the event, at once, and others ask.
    `pull`: it announces its latest events periodically, several together."""
    fan_out: int = 2
    """Peers contacted in a round."""
    rounds: int = 3
    """Rounds for an event before it stops; also how often a subscriber asks for what it misses."""
    interval_s: float = 0.1
    """Time between two rounds, and time given to an answer before asking again."""
    patience_s: float = 0.0
    """Time between hearing of an event and asking for it: packets that are still on their paths need no asking."""
    buffer_packets: int = 1000
    """Packets kept for others (fan-in); the oldest events make room."""
    push_packets: int | None = None
    """Packets that a push sends to a peer; None: as many as the event has."""
    coded: bool = True
    """Packets are sent as fresh combinations, any of which helps; else as plain ones, which are asked for by
    their numbers."""
    partial: bool = False
    """A subscriber already announces an event of which it has only some packets; coded recovery only."""
    events_max: int = 1000
    """Events that are kept in mind at a time."""
    peers_max: int = 1000
    """Peers that are answered about one event."""
    digest_events: int = 50
    """Events in one digest, the latest; this and the two below keep messages within a datagram."""
    request_generations: int = 60
    """Generations in one request."""
    request_numbers: int = 400
    """Numbers of plain packets in one request."""

    def __post_init__(self) -> None:
        if self.mode not in ("push", "pull", "push-pull"):
            raise ConfigurationError(f"gossip mode {self.mode!r}; write push, pull or push-pull")
        if self.rounds < 0:
            raise ConfigurationError(f"gossip rounds: {self.rounds} must be 0 or more")
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"gossip {name}: {getattr(self, name)} must be 1 or more")
        if not 0.0 < self.interval_s < float("inf"):
            raise ConfigurationError(f"gossip interval_s: {self.interval_s} must be a time above 0")
        if not 0.0 <= self.patience_s < float("inf"):
            raise ConfigurationError(f"gossip patience_s: {self.patience_s} must be a time of 0 or more")
        if self.push_packets is not None and self.push_packets < 1:
            raise ConfigurationError(f"gossip push_packets: {self.push_packets} must be 1 or more, or None for all")
        if self.partial and not self.coded:
            raise ConfigurationError("gossip partial: parts of an event are shared as combinations; set coded")

    @classmethod
    def of_scenario(cls, spec: Gossip, coded: bool = True) -> GossipSettings:
        """The settings that a scenario asks for."""
        return cls(
            spec.mode,
            spec.fan_out,
            spec.rounds,
            spec.interval,
            spec.patience,
            buffer_packets=spec.buffer_size,
            push_packets=spec.push_packets,
            coded=coded,
        )
