"""Delivery of events: routing, fault tolerance, replication, dropping, coding."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from surecast.documents.units import Duration, PositiveDuration, Size
from surecast.documents.validation import Int, Name
from surecast.scenario.spec.base import Probability, ScenarioPart

__all__ = [
    "SCHEMES",
    "Coding",
    "DeliverySpec",
    "Dropping",
    "FaultTolerance",
    "Gossip",
    "LinkRouting",
    "Replication",
    "Retransmission",
    "Routing",
]


SCHEMES = ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")
"""The schemes of fault tolerance, as files and reports name them."""

Scheme: TypeAlias = Literal["none", "periodic-subscription", "buffering", "bypass", "bypass-buffering"]


class LinkRouting(ScenarioPart):
    """The routing algorithm of one link of the overlay, where it differs from that of the others."""

    between: tuple[Name, Name]
    """The two brokers."""
    algorithm: Literal["flooding", "simple", "identity", "covering", "merging"]
    """When a subscription is passed on over this link, in both directions."""


class Routing(ScenarioPart):
    """Content-based routing in an acyclic overlay."""

    scheme: Literal["peer-to-peer", "hierarchical"] = "peer-to-peer"
    """The spread of subscriptions: to all neighbours, or only towards the root."""
    algorithm: Literal["flooding", "simple", "identity", "covering", "merging"] = "simple"
    """When a subscription is passed on."""
    links: tuple[LinkRouting, ...] = ()
    """Links with an algorithm of their own (hybrid routing)."""
    advertisements: bool = False
    """Publishers advertise the classes that they publish, and subscriptions travel only towards them."""

    @model_validator(mode="after")
    def _flooding(self) -> Self:
        if self.algorithm == "flooding" and self.scheme == "hierarchical":
            raise PydanticCustomError("routing", "flooding has no hierarchical form; write scheme: peer-to-peer")
        if self.algorithm == "flooding" and self.advertisements:
            raise PydanticCustomError("routing", "flooding passes no subscription on; leave advertisements out")
        pairs = [frozenset(each.between) for each in self.links]
        if len(set(pairs)) < len(pairs):
            raise PydanticCustomError("routing", "links: each link stands there once")
        return self


class FaultTolerance(ScenarioPart):
    """The scheme of the overlay against failures."""

    scheme: Scheme = "periodic-subscription"
    """Which of the schemes."""
    refresh_interval: PositiveDuration = 60.0
    """Time between two refreshes of a subscription."""
    subscription_timeout: PositiveDuration | None = None
    """Age at which an unrefreshed routing entry is dropped; left out, three refresh intervals."""
    retransmission_interval: Duration = 10.0
    """Time between two transmissions of an event that was not acknowledged; 0 sends it when the link comes up."""
    refresh: Literal["end-to-end", "link"] = "link"
    """The recovery of a broker that has lost its routing table: by a comparison with each neighbour when its link comes
    up, or, as in the reliability paper, when the subscriptions are refreshed from end to end."""
    detection: Duration = 0.0
    """Time after which a broker notices that a neighbour or the link to it is gone."""
    start: Duration = 0.0
    """Time that the process of a broker takes to start; it adds to the mean time of its repairs."""
    schemes: dict[str, Scheme] = Field(default_factory=dict)
    """Topics with a scheme of their own."""

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.subscription_timeout is not None and self.subscription_timeout <= self.refresh_interval:
            raise PydanticCustomError("interval", "subscription_timeout must be longer than refresh_interval")
        return self


class Replication(ScenarioPart):
    """A broker as a group of replicas kept identical by Paxos."""

    replicas: Int = Field(default=1, ge=1, le=15)
    """Number of replicas, 2f+1: odd."""
    brokers: tuple[Name, ...] = ()
    """The brokers that are groups; the others are single processes. Left out, all are groups."""
    variant: Literal["multi", "batch", "fast"] = "multi"
    """Multi-Paxos, Batch Paxos or Fast Paxos."""
    window: Int = Field(default=10, ge=1, le=10_000)
    """Instances decided concurrently (alpha)."""
    durable: bool = True
    """A replica syncs to disk before it accepts."""
    entry: Literal["leader", "any"] = "leader"
    """The replicas that publishers are connected to: the leader, or all alike."""
    delay: Duration = 100e-6
    """Time of a message from one replica to another."""
    sync: Duration = 1e-3
    """Time to sync to disk, where replicas do."""
    suspect: PositiveDuration = 0.25
    """Silence after which a leader is taken for down; heartbeats and elections keep their proportion to it."""
    repair: Literal["independent", "single"] = "independent"
    """The repair of replicas that are down: all at once, or one after the other."""
    instance_cost: Duration = 60e-6
    """Processor time of the leader for an instance, however many publications it has."""
    peer_cost: Duration = 20e-6
    """Processor time for a proposal to one other replica and its vote, half of it for each."""
    publication_cost: Duration = 2e-6
    """Processor time of the replica that a publication comes to, beside the broker's own service."""
    follower_instance_cost: Duration = 40e-6
    """Processor time of each other replica for an instance."""
    follower_publication_cost: Duration = 1e-6
    """Processor time of each other replica for a publication, beside the broker's own service."""

    @model_validator(mode="after")
    def _odd(self) -> Self:
        if self.replicas % 2 == 0:
            raise PydanticCustomError(
                "replicas",
                "{n} replicas tolerate no more failures than {less}; write an odd number",
                {"n": self.replicas, "less": self.replicas - 1},
            )
        return self


class Dropping(ScenarioPart):
    """The policy that drops events for a subscriber that is disconnected."""

    policy: Literal["none", "probabilistic", "expiry", "finite-buffer", "optimal"] = "none"
    """The mechanism."""
    join_probability: Probability | Literal["auto"] | None = None
    """Probability that an event joins the queue while disconnected; `auto`: the largest that meets the target."""
    lifetime: PositiveDuration | Literal["auto"] | None = None
    """Age at which a queued event expires; `auto`: the longest that meets the target."""
    lifetime_distribution: Literal["deterministic", "exponential"] = "deterministic"
    """The distribution of lifetimes: all equal, or exponential."""
    buffer_size: Annotated[int, Field(strict=True, ge=1)] | Literal["auto"] | None = None
    """Events that fit into the queue; `auto`: the largest that meets the target."""

    @model_validator(mode="after")
    def _parameters(self) -> Self:
        needed = {"probabilistic": "join_probability", "expiry": "lifetime", "finite-buffer": "buffer_size"}
        name = needed.get(self.policy)
        if name is not None and getattr(self, name) is None:
            raise PydanticCustomError(
                "dropping", "policy {policy} needs {name}, or {name}: auto", {"policy": self.policy, "name": name}
            )
        for policy, parameter in needed.items():
            if getattr(self, parameter) is not None and self.policy != policy:
                raise PydanticCustomError(
                    "dropping", "{name} belongs to policy {policy}", {"policy": policy, "name": parameter}
                )
        return self


class Gossip(ScenarioPart):
    """Recovery of missing packets among the subscribers of an event."""

    mode: Literal["push", "pull", "push-pull"] = "push-pull"
    """The side that starts an exchange."""
    fan_out: Int = Field(default=2, ge=1, le=1000)
    """Peers contacted in a round."""
    rounds: Int = Field(default=3, ge=0, le=1000)
    """Rounds before it stops."""
    buffer_size: Int = Field(default=1000, ge=1)
    """Packets kept for others (fan-in)."""
    interval: PositiveDuration = 0.1
    """Time between two rounds."""
    patience: Duration = 0.0
    """Time between hearing of an event and asking for it: packets that are still on their paths need no asking."""
    push_packets: Int | None = Field(default=None, ge=1, le=4096)
    """Packets that a push sends to a peer; left out, as many as the event has."""


class Retransmission(ScenarioPart):
    """Retransmission of packets over one hop, under the scheme tree-retransmission."""

    wait: PositiveDuration = 0.1
    """Time given to a neighbour whose round trips are not known yet; afterwards they decide."""
    tries: Int = Field(default=16, ge=1, le=255)
    """Transmissions of a packet over one hop."""


class Coding(ScenarioPart):
    """Random linear network coding of each event."""

    field_bits: Literal[1, 4, 8] = 8
    """Symbols are elements of the field with 2 to this power elements."""
    packets: Int = Field(default=32, ge=1, le=4096)
    """Plain packets of an event."""
    packet_size: Size = 1000.0
    """Payload of a packet."""
    redundancy: float = Field(default=0.25, ge=0, le=10)
    """Coded packets sent in addition, relative to the plain ones."""
    paths: Literal["tree", "single-path", "maximum-flow"] = "maximum-flow"
    """Which paths the packets take."""
    flush: PositiveDuration = 0.05
    """A broker that has heard no packet of an event for this long makes up for what it owes; three times as long if it
    misses packets itself."""
    gossip: Gossip | None = Gossip()
    """Recovery; null for none."""
    retransmission: Retransmission = Retransmission()
    """Sending again, in comparisons with a tree that does so."""
    access_loss: Probability = 0.0
    """Probability that a packet between a home broker and its subscriber is lost, either way."""
    peer_loss: Probability | None = None
    """Probability that a message between two subscribers is lost; left out, what the links on the shortest way lose."""

    @model_validator(mode="after")
    def _some_pass(self) -> Self:
        for name in ("access_loss", "peer_loss"):
            if getattr(self, name) == 1.0:
                raise PydanticCustomError("loss", "{name}: 1 lets nothing pass; write less", {"name": name})
        return self


class DeliverySpec(ScenarioPart):
    """The delivery of events from publishers to subscribers."""

    routing: Routing | None = None
    """Content-based routing; left out, events follow the topic trees."""
    fault_tolerance: FaultTolerance = FaultTolerance()
    """The measures of the overlay against failures."""
    replication: Replication = Replication()
    """Replication of each broker."""
    dropping: Dropping = Dropping()
    """The rule for events of a disconnected subscriber."""
    coding: Coding | None = None
    """Network-coded delivery; left out, events travel whole."""
