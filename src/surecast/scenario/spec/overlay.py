"""The broker overlay and the availability of its parts, as a scenario file describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from surecast.documents.units import AlsoAs, Duration
from surecast.documents.validation import Int, Name
from surecast.scenario.distributions import DistributionSpec, Exponential
from surecast.scenario.spec.base import (
    DurationRange,
    EndsAlone,
    PositiveDurationRange,
    Probability,
    RateRange,
    ScenarioPart,
    ShareRange,
)

__all__ = [
    "AvailabilitySpec",
    "BrokerSpec",
    "BuiltLinks",
    "CandidatesSpec",
    "ComponentAvailability",
    "LinkSpec",
    "MatchingSpec",
    "OverlaySpec",
    "TopicTreesSpec",
]


class MatchingSpec(ScenarioPart):
    """The matching of notifications with routing entries in a broker, and the time of each step.

    A time left out is that of this software, as `benchmarks/matching_costs.py` measures it. The algorithm alone may
    stand for the mapping.
    """

    algorithm: Literal["brute-force", "counting", "index"]
    """Scan of the whole table, counting of the predicates that hold, or the index of this software."""
    lookup: Duration | None = None
    """Time per notification, whatever the size of the table."""
    entry: Duration | None = None
    """Time per entry of the table, of any class (brute force)."""
    predicate: Duration | None = None
    """Time per entry of the notification's class (brute force), or per predicate that holds (counting)."""
    match: Duration | None = None
    """Time per entry that matches (counting), or that is looked at (index)."""
    update: Duration | None = None
    """Time per control message, whatever the size of the table."""
    comparison: Duration | None = None
    """Time per entry that a subscription is compared with, under covering and merging."""


def _algorithm(value: Any) -> Any:
    return {"algorithm": value} if isinstance(value, str) else value


class BrokerSpec(ScenarioPart):
    """One broker, or `count` brokers alike, named name-1, name-2 and so on."""

    name: Name
    """Name of the broker, or the beginning of the names of a group."""
    count: Int | None = Field(default=None, ge=1, le=10_000)
    """The number of brokers; left out, there is one with exactly this name."""
    at: str | None = None
    """The place of the broker: a router's name, `random`, or `candidates` for one broker at each candidate position."""
    capacity: RateRange | None = None
    """Messages per second that it processes; left out, it adds no queueing delay."""
    service: DistributionSpec = Exponential()
    """Service time of a notification; its mean comes from the capacity unless given here."""
    control_service: DistributionSpec | None = None
    """Service time of a control message; left out, as for notifications."""
    matching: Annotated[MatchingSpec, BeforeValidator(_algorithm), AlsoAs({"type": "string"})] | None = None
    """The time that the size of the routing table adds to both service times; left out, none."""
    profile: str | None = None
    """A profile of `surecast calibrate`, in place of capacity and service: a file, relative to that of the scenario."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.profile is not None:
            for name in ("capacity", "service", "control_service", "matching"):
                if name in self.model_fields_set:
                    raise PydanticCustomError(
                        "profile", "a profile says what {name} says; leave out one of them", {"name": name}
                    )
        return self


Burst = Annotated[float, Field(ge=1, allow_inf_nan=False)] | None


def _check_burst(loss: float, burst: float | None) -> None:
    """Refuses bursts without a good packet between them: a link is good for one packet at least."""
    if burst is not None and burst * (1.0 - loss) < loss:
        least = f"{loss / (1.0 - loss):.4g} or more" if loss < 1.0 else "a loss below 1"
        raise PydanticCustomError(
            "burst",
            "a link of loss {loss} has more than {burst} packets in a row to lose; write {least}",
            {"loss": f"{loss:g}", "burst": f"{burst:g}", "least": least},
        )


class LinkSpec(ScenarioPart):
    """One overlay link."""

    between: tuple[Name, Name]
    """The two brokers it joins."""
    latency: DurationRange | None = None
    """Its latency; left out, the sum over its physical path, or 0 without a physical network."""
    capacity: RateRange | None = None
    """Messages per second that it carries, for maximum-flow paths; left out, without limit."""
    loss: Probability = 0.0
    """Probability that a packet on it is lost."""
    burst: Burst = None
    """Packets in a row that it loses, on average (Gilbert-Elliott), under coded delivery; left out, each is lost on its
    own."""

    @model_validator(mode="after")
    def _bursts(self) -> Self:
        _check_burst(self.loss, self.burst)
        return self


class BuiltLinks(ScenarioPart):
    """Overlay links that are built."""

    build: Literal["spanning-tree", "random-tree", "random-graph", "star", "chain", "ring", "complete"]
    """The shape: a minimum spanning tree of the brokers over the physical network, or a shape that needs none."""
    by: Literal["hops", "latency"] = "hops"
    """The length that a spanning tree minimises."""
    mean_degree: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """Mean number of links of a broker in a random graph."""
    latency: DurationRange | None = None
    """Latency of every link; left out, the sum over its physical path, or 0 without a physical network."""
    capacity: RateRange | None = None
    """Messages per second of every link, for maximum-flow paths; left out, without limit."""
    loss: Probability = 0.0
    """Probability that a packet on a link is lost."""
    burst: Burst = None
    """Packets in a row that a link loses, on average (Gilbert-Elliott), under coded delivery; left out, each is lost on
    its own."""

    @model_validator(mode="after")
    def _bursts(self) -> Self:
        _check_burst(self.loss, self.burst)
        return self

    @model_validator(mode="after")
    def _degree(self) -> Self:
        if self.build == "random-graph" and self.mean_degree is None:
            raise PydanticCustomError("degree", "a random graph needs mean_degree, such as 3")
        if self.build != "random-graph" and self.mean_degree is not None:
            raise PydanticCustomError("degree", "mean_degree belongs to build: random-graph only")
        if self.build != "spanning-tree" and "by" in self.model_fields_set:
            raise PydanticCustomError("degree", "by belongs to build: spanning-tree only")
        return self


class CandidatesSpec(ScenarioPart):
    """Positions drawn for placement."""

    per_domain: Int | None = Field(default=None, ge=1, le=10_000)
    """So many random routers of each domain."""
    count: Int | None = Field(default=None, ge=1, le=10_000)
    """So many random routers of the whole network."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.per_domain is None) == (self.count is None):
            raise PydanticCustomError("candidates", "give either per_domain or count")
        return self


class TopicTreesSpec(ScenarioPart):
    """The broker tree of each topic in an overlay that has cycles."""

    root: str = "random"
    """Root of each topic's tree: `random` (one per topic), `publisher` (home broker of its first publisher), or a
    broker's name."""
    by: Literal["hops", "latency"] = "hops"
    """The length that the paths of the tree minimise from the root."""
    given: dict[str, list[tuple[Name, Name]]] = Field(default_factory=dict)
    """Trees written out, by topic: the overlay links each consists of."""


def _list_or_mapping(value: Any) -> str:
    return "list" if isinstance(value, list) else "mapping"


class OverlaySpec(ScenarioPart):
    """Brokers and the links between them."""

    brokers: list[BrokerSpec] = Field(min_length=1)
    """Brokers and groups of brokers."""
    links: Annotated[
        Annotated[list[EndsAlone[LinkSpec]], Tag("list")] | Annotated[BuiltLinks, Tag("mapping")],
        Discriminator(_list_or_mapping),
    ] = Field(default_factory=list)
    """Links written out, each [broker, broker] or a mapping; or a mapping that says how to build them."""
    candidates: Annotated[
        Annotated[list[Name], Tag("list")] | Annotated[CandidatesSpec, Tag("mapping")],
        Discriminator(_list_or_mapping),
    ] = Field(default_factory=list)
    """The places at which planning may put brokers: router names, or a mapping that says how to draw them."""
    paths: Literal["hops", "latency"] = "hops"
    """The length that the physical path of an overlay link minimises."""
    root: str = "central"
    """Root of the hierarchical scheme: a broker's name, `first`, or `central` (least distance to the farthest)."""
    topic_trees: TopicTreesSpec = TopicTreesSpec()
    """The broker tree of each topic, where the overlay itself is not a tree."""


class ComponentAvailability(ScenarioPart):
    """Failures and repairs of components: (mtbf, mttr) or (availability, period)."""

    mtbf: PositiveDurationRange | None = None
    """Mean time up between failures; left out where `up` has a scale of its own."""
    mttr: PositiveDurationRange | None = None
    """Mean time down until repaired; left out where `down` has a scale of its own."""
    availability: ShareRange | None = None
    """Share of time up."""
    period: PositiveDurationRange | None = None
    """Mean time from one failure to the next: mtbf + mttr."""
    up: DistributionSpec = Exponential()
    """Distribution of the times up: a shape, or one with its own scale in place of mtbf."""
    down: DistributionSpec = Exponential()
    """Distribution of the times down: a shape, or one with its own scale in place of mttr."""

    @model_validator(mode="after")
    def _one_pair(self) -> Self:
        fields_set = {n for n in ("mtbf", "mttr", "availability", "period") if getattr(self, n) is not None}
        if fields_set == {"availability"} and self.availability == (1.0, 1.0):
            return self
        for mean, shape in (("mtbf", "up"), ("mttr", "down")):
            if getattr(self, shape).has_mean:
                if mean in fields_set or "period" in fields_set:
                    raise PydanticCustomError(
                        "pair", "{shape} has a mean of its own, and the other fields give another", {"shape": shape}
                    )
                fields_set.add(mean)
        if fields_set not in ({"mtbf", "mttr"}, {"availability", "period"}):
            raise PydanticCustomError(
                "pair",
                "{given} is not enough to say how it fails; give mtbf and mttr, or availability and period",
                {"given": " and ".join(sorted(fields_set)) or "an empty entry"},
            )
        return self


class AvailabilitySpec(ScenarioPart):
    """Availability of every broker and overlay link; what is left out never fails."""

    brokers: ComponentAvailability | None = None
    """Every broker that has no entry of its own."""
    links: ComponentAvailability | None = None
    """Every overlay link that has no entry of its own."""
    clients: ComponentAvailability | None = None
    """The link between every client and its home broker; one draw for all of them."""
    each: dict[str, ComponentAvailability] = Field(default_factory=dict)
    """Entries by name: a broker's name, or `a--b` for the link between a and b."""
