"""The output of every reader: routers and links as in the file, with nothing filled in yet."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from surecast.errors import TopologyError

__all__ = ["LATENCY_MAX_S", "LINKS_MAX", "ROUTERS_MAX", "RawLink", "RawRouter", "RawTopology", "ReadOptions"]

ROUTERS_MAX = 200_000
LINKS_MAX = 2_000_000
LATENCY_MAX_S = 86_400.0
"""A longer latency is a unit gone wrong."""

Coordinates = Literal["geographic", "planar", "either"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for what a topology file alone does not say.

    >>> ReadOptions(km_per_unit=0)
    Traceback (most recent call last):
    ValueError: km_per_unit is 0; give the kilometres of one unit, above 0
    """

    fallback_latency_s: float = 0.001
    """Latency of a link for which neither a latency nor a distance is known."""
    largest_component: bool = False
    """Keep the largest connected part of a network that is not connected, instead of refusing it."""
    unit: Literal["ms", "s"] | None = None
    """Unit of the entries of a round-trip time matrix; such a file does not name it."""
    slice: int | str | None = None
    """Which file of an archive of round-trip time matrices: its name, or the number its name ends with."""
    limit: int | None = None
    """Read only the first so many nodes of a round-trip time matrix."""
    km_per_unit: float | None = None
    """Scale of coordinates on a plane; giving it says that coordinates which could be degrees are not."""

    def __post_init__(self) -> None:
        if not 0 < self.fallback_latency_s <= LATENCY_MAX_S:
            raise ValueError(f"fallback_latency_s is {self.fallback_latency_s:g}; give seconds above 0, at most a day")
        if self.unit not in (None, "ms", "s"):
            raise ValueError(f"unit is {self.unit!r}; use 'ms' or 's'")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is {self.limit}; give a number of routers of at least 1")
        if self.km_per_unit is not None and not 0 < self.km_per_unit < 1e6:
            raise ValueError(f"km_per_unit is {self.km_per_unit:g}; give the kilometres of one unit, above 0")


@dataclass(frozen=True, slots=True)
class RawRouter:
    """A router of the file. `position` is (x, y), or longitude and latitude; None where the file gives none."""

    name: str
    position: tuple[float, float] | None = None
    domain: str = ""


@dataclass(frozen=True, slots=True)
class RawLink:
    """A link of the file between two router indices. `length` is in the unit of planar coordinates."""

    a: int
    b: int
    latency_s: float | None = None
    length: float | None = None


@dataclass
class RawTopology:
    """Routers and links as read, with the limits and the checks that hold for every format.

    `coordinates` says what places mean; "either" leaves it to their range. `both_directions` says that the format
    lists every link once per direction.
    """

    file: str
    coordinates: Coordinates = "planar"
    both_directions: bool = False
    routers: list[RawRouter] = field(default_factory=list)
    links: list[RawLink] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _index: dict[str, int] = field(default_factory=dict)

    def fail(self, message: str, line: int | None = None) -> TopologyError:
        return TopologyError(message, self.file, line)

    def add_router(
        self,
        key: str,
        *,
        name: str | None = None,
        position: tuple[float, float] | None = None,
        domain: str = "",
        line: int | None = None,
    ) -> int:
        """Adds the router that links of this file call `key`; it must be new."""
        if key in self._index:
            raise self.fail(f"router {key!r} is defined twice; every router needs an identifier of its own", line)
        if len(self.routers) >= ROUTERS_MAX:
            raise self.fail(f"more than {ROUTERS_MAX:,} routers, which is the limit; read a part of the network", line)
        index = self._index[key] = len(self.routers)
        self.routers.append(RawRouter(key if name is None else name, position, domain))
        return index

    def known_or_new(self, key: str, *, domain: str = "", line: int | None = None) -> int:
        """Returns the index of the router called `key`, added at its first mention, for formats that list only
        links."""
        index = self._index.get(key)
        return self.add_router(key, domain=domain, line=line) if index is None else index

    def find(self, key: str, line: int | None = None) -> int:
        """Returns the index of the router called `key`, which must have been defined."""
        if key not in self._index:
            raise self.fail(f"a link refers to router {key!r}, which the file does not define", line)
        return self._index[key]

    def add_link(
        self,
        a: int,
        b: int,
        *,
        latency_s: float | None = None,
        length: float | None = None,
        line: int | None = None,
    ) -> None:
        if len(self.links) >= LINKS_MAX:
            raise self.fail(f"more than {LINKS_MAX:,} links, which is the limit; read a part of the network", line)
        if latency_s is not None and not 0 <= latency_s <= LATENCY_MAX_S:
            reason = "is not a number" if math.isnan(latency_s) else "is negative" if latency_s < 0 else "is over a day"
            raise self.fail(f"a latency of {latency_s:g} s {reason}; expected 0 or more, with its right unit", line)
        self.links.append(RawLink(a, b, latency_s, length))
