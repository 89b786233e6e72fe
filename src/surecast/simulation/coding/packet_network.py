"""The network of a scenario as packets meet it: links that lose and delay, and the ways of messages between peers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from surecast.errors import ConfigurationError
from surecast.scenario.spec.delivery import Coding
from surecast.scenario.system import Overlay, System
from surecast.simulation.coding.compiled_state import Net

__all__ = ["LossyChannel", "SimulatedAudience", "audiences_of", "network_of"]


@dataclass(frozen=True, slots=True)
class LossyChannel:
    """The losses of packets beyond the links of the overlay, and assumptions about all links.

    >>> LossyChannel(burst_mean=5.0).chances(0.1, None)
    (0.0222..., 0.2)
    """

    access_loss: float = 0.0
    """Share of packets lost between a home broker and its subscriber, either way."""
    peer_loss: float | None = None
    """Share of messages lost between any two subscribers; None: what the links on the shortest way lose."""
    serialise: bool = True
    """A link passes packets one after the other at its capacity; else all at once."""
    burst_mean: float | None = None
    """Mean number of packets in a row that any link loses (Gilbert-Elliott); None: as each link of the scenario says,
    and access links lose each on its own."""

    def __post_init__(self) -> None:
        for name in ("access_loss", "peer_loss"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < 1.0:
                raise ConfigurationError(f"channel {name}: {value} must be a share from 0 to below 1")
        if self.burst_mean is not None and not 1.0 <= self.burst_mean < math.inf:
            raise ConfigurationError(f"channel burst_mean: {self.burst_mean} must be 1 packet or more")

    @classmethod
    def of_scenario(cls, spec: Coding) -> LossyChannel:
        """Returns the channel of a scenario.

        >>> LossyChannel.of_scenario(Coding(access_loss=0.1)).access_loss
        0.1
        """
        return cls(spec.access_loss, spec.peer_loss)

    def chances(self, loss: float, burst_mean: float | None) -> tuple[float, float]:
        """Chances that a link turns bad, and good again, from one packet to the next; 0 and 0 without bursts."""
        burst_mean = burst_mean if self.burst_mean is None else self.burst_mean
        if burst_mean is None or loss == 0.0:
            return 0.0, 0.0
        to_good = 1.0 / burst_mean
        to_bad = to_good * loss / (1.0 - loss)
        if to_bad > 1.0:
            raise ConfigurationError(
                f"channel burst_mean: {burst_mean:g} packets in a row cannot be all that a link of loss {loss:g} "
                f"loses; make it {loss / (1.0 - loss):.4g} or more"
            )
        return to_bad, to_good


@dataclass(frozen=True, slots=True)
class SimulatedAudience:
    """Subscribers that get the same events from one home broker: their indices, and the rate of these events.

    `publishers` are those that publish them, by index, each with its rate.
    """

    source: int
    deadline_s: float
    members: tuple[int, ...]
    publishers: tuple[tuple[int, float], ...]

    @property
    def rate_per_s(self) -> float:
        return math.fsum(rate for _, rate in self.publishers)


def audiences_of(system: System) -> tuple[SimulatedAudience, ...]:
    """The audiences of a system: one for each publisher's home broker, deadline and set of subscribers."""
    rates_by_source: dict[tuple[int, float, tuple[int, ...]], dict[int, float]] = {}
    for p, publisher in enumerate(system.publishers):
        for topic in publisher.topics:
            members = tuple(i for i, s in enumerate(system.subscribers) if topic in s.topics)
            if members and publisher.rate_per_s > 0.0:
                rates = rates_by_source.setdefault((publisher.home, publisher.deadline_s, members), {})
                rates[p] = rates.get(p, 0.0) + publisher.rate_per_s / len(publisher.topics)
    return tuple(
        SimulatedAudience(source, deadline_s, members, tuple(rates.items()))
        for (source, deadline_s, members), rates in rates_by_source.items()
    )


def network_of(overlay: Overlay, homes: list[int], channel: LossyChannel, seed: int) -> Net:
    """The links of an overlay and of subscribers with these home brokers.

    Link 2i is the overlay's link i from its end a to b, and 2i + 1 the way back. The access links of subscribers
    follow, down and up; and one that stands for messages between peers where these have a loss of their own.
    """
    brokers, subscribers = len(overlay.brokers), len(homes)
    loss = [link.loss for link in overlay.links for _ in range(2)]
    latency_s = [link.latency_s for link in overlay.links for _ in range(2)]
    packet_s = [1.0 / link.capacity_per_s if channel.serialise else 0.0 for link in overlay.links for _ in range(2)]
    inner = len(loss)
    loss += [channel.access_loss] * (2 * subscribers) + [0.0]
    rest = [0.0] * (2 * subscribers + 1)
    bursts = [link.burst_mean for link in overlay.links for _ in range(2)] + [None] * (2 * subscribers + 1)
    chances = np.array([channel.chances(p, burst) for p, burst in zip(loss, bursts, strict=True)])
    starts, lengths, way, delays_s = _ways(overlay)
    none = [-1] * brokers
    return Net(
        np.array(loss),
        chances[:, 0].copy(),
        chances[:, 1].copy(),
        np.array(latency_s + rest),
        np.array(packet_s + rest),
        np.array([*range(brokers), *homes], dtype=np.int64),
        np.array([*none, *range(inner + 1, inner + 2 * subscribers, 2)], dtype=np.int64),
        np.array([*none, *range(inner, inner + 2 * subscribers, 2)], dtype=np.int64),
        starts,
        lengths,
        way,
        delays_s,
        -1.0 if channel.peer_loss is None else channel.peer_loss,
        inner,
        np.uint64(np.random.SeedSequence([seed, 1]).generate_state(1, np.uint64)[0]),
    )


def _ways(overlay: Overlay) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The way between each two brokers: over fewest links, and the fastest among these."""
    import networkx as nx

    brokers = len(overlay.brokers)
    graph = overlay.subgraph(range(len(overlay.links)))
    longest_s = 1.0 + math.fsum(link.latency_s for link in overlay.links)
    for _, _, data in graph.edges(data=True):
        data["length"] = 1.0 + data["latency"] / longest_s
    starts, lengths = np.zeros((2, brokers, brokers), dtype=np.int64)
    delays_s = np.zeros((brokers, brokers))
    way: list[int] = []
    for a in range(brokers):
        paths = nx.single_source_dijkstra_path(graph, a, weight="length")
        for b in range(brokers):
            starts[a, b] = len(way)
            for x, y in zip(paths[b], paths[b][1:], strict=False):
                i = graph.edges[x, y]["link"]
                way.append(2 * i + (overlay.links[i].a != x))
                delays_s[a, b] += overlay.links[i].latency_s
            lengths[a, b] = len(way) - starts[a, b]
    return starts, lengths, np.array(way, dtype=np.int64), delays_s
