"""Publishers and subscribers with their topics and places, as a scenario file describes them.

Two kinds of workload: named topics with publishers and subscribers that stay, or filter classes whose subscriptions
come and go. A scenario may have either or both.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from surecast.documents.units import AlsoAs, Lifetime, Rate, Size
from surecast.documents.validation import Int, Name
from surecast.scenario.distributions import DistributionSpec
from surecast.scenario.spec.base import (
    MAX_COUNT,
    LifetimeRange,
    NameAlone,
    PositiveDurationRange,
    Probability,
    RateRange,
    ScenarioPart,
    Share,
)

__all__ = [
    "AttributeSpec",
    "ClassPeriodSpec",
    "ClassSpec",
    "ClientSpec",
    "ConnectivitySpec",
    "HistogramSpec",
    "IntervalSpec",
    "PeriodSpec",
    "Periods",
    "PublisherSpec",
    "SubscriberSpec",
    "SubscriptionsSpec",
    "TopicSpec",
    "WorkloadSpec",
]

Factor = Annotated[float, Field(ge=0, allow_inf_nan=False)]

SHARES_OFF_MAX = 0.001


class ClassPeriodSpec(ScenarioPart):
    """The use of a class, or a group of classes, in a period."""

    name: Name
    """Name of a class, or of a group of them."""
    publications: Factor | None = None
    """Factor on its publications, in place of the period's."""
    subscriptions: Factor | None = None
    """Factor on its new subscriptions, in place of the period's."""


class PeriodSpec(ScenarioPart):
    """A part of the day with its own rates, long enough for the system to settle."""

    name: Name
    """Name of the period."""
    share: Share
    """Share of the time; those of all periods sum to 1."""
    publications: Factor = 1.0
    """Factor on the publications of all classes."""
    subscriptions: Factor = 1.0
    """Factor on the new subscriptions of all classes."""
    classes: list[ClassPeriodSpec] = Field(default_factory=list)
    """Classes with factors of their own; where several entries fit a class the last one counts."""


def _whole_day(periods: list[PeriodSpec]) -> list[PeriodSpec]:
    names = [period.name for period in periods]
    for name in names:
        if names.count(name) > 1:
            raise PydanticCustomError("periods", "the period {name} is given twice; names must differ", {"name": name})
    total = sum(period.share for period in periods)
    if periods and abs(total - 1.0) > SHARES_OFF_MAX:
        raise PydanticCustomError(
            "periods", "the shares of the periods sum to {total}; they must sum to 1", {"total": f"{total:g}"}
        )
    return periods


Periods = Annotated[list[PeriodSpec], AfterValidator(_whole_day)]
"""All periods of a day; none where every hour is like the other."""


Count = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]
Number = Annotated[float, Field(allow_inf_nan=False)]
MAX_BINS = 1000


def _name_or_histogram(value: Any) -> str:
    return "name" if isinstance(value, str) else "histogram"


class TopicSpec(ScenarioPart):
    """One topic, or `count` topics named name-1, name-2 and so on."""

    name: Name
    """Name of the topic, or the beginning of the names of a group."""
    count: Count | None = None
    """The number of topics; left out, there is one with exactly this name."""
    weight: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Popularity of each, in place of the power law."""


class _Client(ScenarioPart):
    """The fields that publishers, subscribers and other clients share."""

    name: Name
    """Name of the client, or the beginning of the names of a group."""
    count: Count | None = None
    """The number of clients; left out, there is one with exactly this name."""
    home: str = "random"
    """Home broker: a broker's name, `random`, or `nearest` in hops of the physical network."""
    at: str | None = None
    """The router it is attached to, or `random`; left out, that of its home broker (`random` for `home: nearest`)."""


class PublisherSpec(_Client):
    """One publisher, or a group."""

    topics: Literal["one-each", "by-popularity"] | list[Name]
    """Topic names; or `one-each`: the first publisher of the group has the first topic, and so on; or `by-popularity`:
    one topic drawn."""
    rate: RateRange
    """Events per second that it publishes, in all its topics together."""
    deadline: LifetimeRange | None = None
    """Lifetime of its events, in place of the workload's."""
    payload: Size | None = None
    """Size of its events, in place of the workload's."""


class ConnectivitySpec(ScenarioPart):
    """Connected and disconnected periods of a subscriber: a mean each, a range of means, or a distribution."""

    on: PositiveDurationRange | None = None
    """Mean connected period."""
    off: PositiveDurationRange | None = None
    """Mean disconnected period."""
    on_shape: DistributionSpec | None = None
    """Distribution of connected periods; without a mean it takes that of `on`. Left out, exponential."""
    off_shape: DistributionSpec | None = None
    """Distribution of disconnected periods; without a mean it takes that of `off`. Left out, exponential."""

    @model_validator(mode="after")
    def _means(self) -> Self:
        for name in ("on", "off"):
            mean, shape = getattr(self, name), getattr(self, f"{name}_shape")
            if mean is None and (shape is None or not shape.has_mean):
                raise PydanticCustomError("connectivity", "give the mean {name} period, such as 20s", {"name": name})
            if mean is not None and shape is not None and shape.has_mean:
                raise PydanticCustomError(
                    "connectivity", "{name} and {name}_shape both give a mean; keep one", {"name": name}
                )
        return self


class SubscriberSpec(_Client):
    """One subscriber, or a group."""

    topics: Literal["by-popularity", "all"] | list[Name] = "by-popularity"
    """Topic names, `all`, or `by-popularity`: `topic_count` different topics drawn."""
    topic_count: Int = Field(default=1, ge=1, le=10_000)
    """The number of topics to draw by popularity."""
    connectivity: ConnectivitySpec | None = None
    """When it is connected; left out, always."""
    service: DistributionSpec | None = None
    """Time the broker needs to transmit one event to it; left out, negligible."""
    reliability_target: Share | None = None
    """Share of events it wants in time, in place of the scenario's target."""
    response_target: PositiveDurationRange | None = None
    """Mean response time it accepts, in place of the scenario's target."""

    @model_validator(mode="after")
    def _count_of_drawn(self) -> Self:
        if "topic_count" in self.model_fields_set and self.topics != "by-popularity":
            raise PydanticCustomError("topics", "topic_count belongs to topics: by-popularity only")
        return self


class HistogramSpec(ScenarioPart):
    """A measured distribution of numbers: bins with their weights, or the numbers themselves.

    A list alone stands for `values`.
    """

    edges: list[Number] | None = Field(default=None, min_length=2, max_length=MAX_BINS)
    """Edges of the bins, ascending; numbers are uniform within a bin."""
    values: list[Number] | None = Field(default=None, min_length=1, max_length=MAX_BINS)
    """Numbers that occur, in any order; one that is given twice occurs twice as often."""
    weights: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None = None
    """The frequency of each bin or each number, relative to the others; left out for `values`, all alike."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.edges is None) == (self.values is None) or (self.edges is not None and self.weights is None):
            raise PydanticCustomError("histogram", "a histogram has either edges and weights or values; write one")
        if self.edges is not None and any(a >= b for a, b in pairwise(self.edges)):
            raise PydanticCustomError("histogram", "the edges do not ascend; write each larger than the one before")
        if self.weights is not None:
            wanted = len(self.edges) - 1 if self.edges is not None else len(self.values or ())
            if len(self.weights) != wanted:
                raise PydanticCustomError(
                    "histogram",
                    "there are {given} weights; {wanted} are needed, one for each {what}",
                    {"given": len(self.weights), "wanted": wanted, "what": "value" if self.values else "bin"},
                )
            if not sum(self.weights) > 0:
                raise PydanticCustomError("histogram", "the weights are all 0; at least one must be above 0")
        return self

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest number."""
        numbers = self.edges or self.values or [0.0]
        return min(numbers), max(numbers)


def _listed(value: Any) -> Any:
    return {"values": value} if isinstance(value, list) else value


HistogramOrList = Annotated[
    HistogramSpec, BeforeValidator(_listed), AlsoAs({"type": "array", "items": {"type": "number"}})
]


class IntervalSpec(ScenarioPart):
    """The interval that a subscription asks for: two ends alike, or a centre and a width."""

    ends: Annotated[
        Annotated[Literal["uniform", "values"], Tag("name")] | Annotated[HistogramOrList, Tag("histogram")],
        Discriminator(_name_or_histogram),
    ] = "uniform"
    """Both ends are drawn from this: a histogram, `uniform` over the range of the attribute's values, or `values` (as
    the values are distributed)."""
    centre: HistogramOrList | None = None
    """Distribution of the middle of an interval."""
    width: HistogramOrList | None = None
    """Distribution of the width of an interval, independent of its middle."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.centre is None) != (self.width is None):
            raise PydanticCustomError("interval", "centre and width go together")
        if self.centre is not None and "ends" in self.model_fields_set:
            raise PydanticCustomError("interval", "an interval has either ends or centre and width; leave out one")
        if self.width is not None and self.width.range[0] < 0:
            raise PydanticCustomError("interval", "a width is negative; write numbers of 0 or more")
        return self


class AttributeSpec(ScenarioPart):
    """One attribute of notifications, and what subscriptions ask of it."""

    name: Name
    """Name of the attribute."""
    value: HistogramOrList
    """Distribution of its value in notifications."""
    interval: IntervalSpec = IntervalSpec()
    """The interval that a subscription asks for; left out, with ends uniform over the range of the values."""
    constrained: Probability = 1.0
    """Probability that a subscription asks anything of this attribute."""

    @model_validator(mode="after")
    def _room(self) -> Self:
        low, high = self.value.range
        if self.interval.centre is None and self.interval.ends == "uniform" and low == high:
            raise PydanticCustomError("attribute", "uniform ends need values that differ; write ends as a histogram")
        return self


def _different(attributes: list[AttributeSpec]) -> list[AttributeSpec]:
    names = [attribute.name for attribute in attributes]
    for name in names:
        if names.count(name) > 1:
            raise PydanticCustomError("attributes", "the attribute {name} is given twice; keep one", {"name": name})
    return attributes


Attributes = Annotated[list[AttributeSpec], AfterValidator(_different), Field(max_length=8)]


class ClassSpec(ScenarioPart):
    """One filter class, or `count` classes named name-1, name-2 and so on."""

    name: Name
    """Name of the class, or the beginning of the names of a group."""
    count: Count | None = None
    """The number of classes; left out, there is one with exactly this name."""
    weight: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Share of the publications and subscriptions, relative to other classes, in place of the power law."""
    hot_spot: str | None = None
    """The domain where most of it happens: a domain's name, or `random` (one per class)."""
    locality: Probability | None = None
    """Share of its publications and subscriptions that come from its hot spot."""
    service_factor: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Its service times relative to the others'."""
    filters: Attributes | None = None
    """Its attributes, in place of the workload's; an empty list for one attribute with everything uniform."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.hot_spot is None) != (self.locality is None):
            raise PydanticCustomError("locality", "hot_spot and locality go together")
        return self


class ClientSpec(_Client):
    """Clients that publish and subscribe in filter classes."""

    home: str = "nearest"
    """Home broker: `nearest` in hops of the physical network, a broker's name, or `random`."""


class SubscriptionsSpec(ScenarioPart):
    """Arrival and lifetime of subscriptions to filter classes."""

    active: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Mean number of subscriptions active at a time."""
    rate: Rate | None = None
    """New subscriptions per second."""
    lifetime: DistributionSpec
    """The time that a subscription lasts."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.active is None) == (self.rate is None):
            raise PydanticCustomError("subscriptions", "give either active or rate")
        if not self.lifetime.has_mean:
            raise PydanticCustomError("subscriptions", "lifetime needs a mean, such as 60s")
        return self


class WorkloadSpec(ScenarioPart):
    """Publishers, subscribers and their interests."""

    topics: list[NameAlone[TopicSpec]] = Field(default_factory=list)
    """Topics, each a name or a mapping."""
    popularity_exponent: float = Field(default=0.0, ge=0, le=10)
    """Exponent of the power law of popularity over topics (and over classes) in the order given; 0: all alike."""
    publishers: list[PublisherSpec] = Field(default_factory=list)
    """Publishers and groups of publishers."""
    subscribers: list[SubscriberSpec] = Field(default_factory=list)
    """Subscribers and groups of subscribers."""
    deadline: Lifetime | None = None
    """Lifetime of events: what arrives later is late. Left out, events live for ever."""
    payload: Size = 64.0
    """Size of the payload of events, for brokers with a profile."""
    qos: Literal[0, 1] = 0
    """Quality of service between clients and brokers, for brokers with a profile."""
    classes: list[NameAlone[ClassSpec]] = Field(default_factory=list)
    """Filter classes, each a name or a mapping."""
    filters: Attributes = Field(default_factory=list)
    """Attributes of every class that has none of its own; left out, one with uniform values and intervals."""
    clients: list[ClientSpec] = Field(default_factory=list)
    """Clients of the filter classes."""
    subscriptions: SubscriptionsSpec | None = None
    """The coming and going of subscriptions to the filter classes."""
    publications: Rate | None = None
    """Publications per second in all filter classes together."""
    periods: Periods = Field(default_factory=list)
    """Parts of the day with rates of their own; left out, the rates are always the same."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        parts = {
            "classes": bool(self.classes),
            "clients": bool(self.clients),
            "subscriptions": self.subscriptions is not None,
            "publications": self.publications is not None,
        }
        missing = [name for name, is_set in parts.items() if not is_set]
        if any(parts.values()) and missing:
            raise PydanticCustomError(
                "workload", "a workload of filter classes also needs {missing}", {"missing": " and ".join(missing)}
            )
        return self
