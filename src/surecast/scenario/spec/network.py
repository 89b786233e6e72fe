"""The physical network as a scenario file describes it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from surecast.documents.units import Duration, PositiveDuration
from surecast.documents.validation import Int, Name
from surecast.scenario.distributions import DistributionSpec, Exponential
from surecast.scenario.spec.base import DurationRange, EndsAlone, NameAlone, RateRange, ScenarioPart

__all__ = ["FileNetwork", "GivenNetwork", "NetworkSpec", "RandomNetwork", "TransitStubNetwork", "TreeNetwork"]

MAX_ROUTERS = 100_000


class _Network(ScenarioPart):
    """The fields of routers and links that every kind of network may have."""

    link_capacity: RateRange | None = None
    """Messages per second that a link carries; left out, links add no queueing delay."""
    link_service: DistributionSpec = Exponential()
    """Shape of the service time of a link; its mean comes from the capacity unless given here."""
    router_capacity: RateRange | None = None
    """Messages per second that a router forwards; left out, routers add no queueing delay."""
    router_service: DistributionSpec = Exponential()
    """Shape of the service time of a router; its mean comes from the capacity unless given here."""
    link_latency: DurationRange | None = None
    """Latency of every link, in place of what distance or the file says."""


class _Partitioned(_Network):
    domains: Int | None = Field(default=None, ge=1, le=1000)
    """Number of domains of nearby routers to divide the network into; left out, the source's own domains are kept."""


class TransitStubNetwork(_Network):
    """Internet-like: domains of transit routers that carry stub networks."""

    kind: Literal["transit-stub"]
    domains: Int = Field(default=5, ge=1, le=1000)
    """Number of areas, each a domain of its own."""
    routers: Int = Field(ge=1, le=MAX_ROUTERS)
    """Number of routers in all."""
    transit_per_domain: Int = Field(default=8, ge=1, le=1000)
    """Transit routers in each domain."""
    stubs_per_transit: Int = Field(default=3, ge=0, le=1000)
    """Stub networks on each transit router."""
    width_km: float = Field(default=12_000, gt=0, allow_inf_nan=False)
    """Width of the plane the domains lie on."""


class RandomNetwork(_Partitioned):
    """A connected random graph."""

    kind: Literal["random"]
    routers: Int = Field(ge=1, le=MAX_ROUTERS)
    """Number of routers."""
    mean_degree: float = Field(default=3.0, ge=1, allow_inf_nan=False)
    """Mean number of links of a router."""
    width_km: float = Field(default=3_000, gt=0, allow_inf_nan=False)
    """Width of the plane the routers lie on."""


class TreeNetwork(_Partitioned):
    """A tree: balanced with a branching factor, or random."""

    kind: Literal["tree"]
    routers: Int = Field(ge=1, le=MAX_ROUTERS)
    """Number of routers."""
    branching: Int | None = Field(default=None, ge=1, le=1000)
    """Children of every router; left out, each router hangs on a random earlier one."""
    width_km: float = Field(default=3_000, gt=0, allow_inf_nan=False)
    """Width of the plane the routers lie on."""


class FileNetwork(_Partitioned):
    """A network read from a topology file or a delay matrix."""

    kind: Literal["file"]
    path: str = Field(min_length=1)
    """The file, relative to the scenario file."""
    format: Literal["auto", "graphml", "brite", "edges", "sndlib", "rocketfuel", "repetita", "mrinfo", "rtt-matrix"] = (
        "auto"
    )
    """Format of the file; a delay matrix must be named, the others are recognised."""
    fallback_latency: PositiveDuration = 0.001
    """Latency of a link for which the file gives neither delay nor distance."""
    largest_component: bool = False
    """Keep only the largest connected part of a network that is not connected."""
    unit: Literal["ms", "s"] | None = None
    """Unit of the entries of a delay matrix."""
    slice: Int | None = Field(default=None, ge=0)
    """Which matrix of an archive of several."""
    limit: Int | None = Field(default=None, ge=1)
    """The number of nodes to take from a delay matrix, from the first."""
    km_per_unit: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Kilometres per unit of planar coordinates."""

    @model_validator(mode="after")
    def _options_of_the_format(self) -> Self:
        matrix = self.format == "rtt-matrix"
        if matrix and self.unit is None:
            raise PydanticCustomError("unit", "a delay matrix needs unit: ms or s, which the file does not say")
        for name in ("unit", "slice", "limit"):
            if getattr(self, name) is not None and not matrix:
                raise PydanticCustomError("unit", "{name} belongs to format: rtt-matrix only", {"name": name})
        return self


class RouterSpec(ScenarioPart):
    """One router of a network that is written out."""

    name: Name
    """Its name."""
    x: float | None = Field(default=None, allow_inf_nan=False)
    """Kilometres east on a plane."""
    y: float | None = Field(default=None, allow_inf_nan=False)
    """Kilometres north on a plane."""
    longitude: float | None = Field(default=None, ge=-180, le=180)
    """Degrees east."""
    latitude: float | None = Field(default=None, ge=-90, le=90)
    """Degrees north."""
    domain: str = ""
    """The domain it belongs to."""
    capacity: RateRange | None = None
    """Messages per second, in place of `router_capacity`."""
    service: DistributionSpec | None = None
    """Service time, in place of `router_service`."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.x is None) != (self.y is None) or (self.longitude is None) != (self.latitude is None):
            raise PydanticCustomError("place", "give both coordinates: x and y, or longitude and latitude")
        if self.x is not None and self.longitude is not None:
            raise PydanticCustomError("place", "give either x and y, or longitude and latitude, not both")
        return self


class PhysicalLinkSpec(ScenarioPart):
    """One link of a network that is written out."""

    between: tuple[Name, Name]
    """The two routers it joins."""
    latency: Duration | None = None
    """Its latency; left out, it follows from the distance."""
    capacity: RateRange | None = None
    """Messages per second, in place of `link_capacity`."""
    service: DistributionSpec | None = None
    """Service time, in place of `link_service`."""


class GivenNetwork(_Partitioned):
    """A network written out in the scenario."""

    kind: Literal["given"]
    routers: list[NameAlone[RouterSpec]] = Field(min_length=1)
    """Routers, each a name or a mapping."""
    links: list[EndsAlone[PhysicalLinkSpec]] = Field(default_factory=list)
    """Links, each [router, router] or a mapping."""
    fallback_latency: PositiveDuration = 0.001
    """Latency of a link without latency between routers without coordinates."""


NetworkSpec = Annotated[
    TransitStubNetwork | RandomNetwork | TreeNetwork | FileNetwork | GivenNetwork,
    Field(discriminator="kind"),
]
