"""Positions of routers: the meaning of the file's coordinates, and positions for routers without coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from surecast.scenario.topology.raw import RawTopology, ReadOptions

__all__ = ["Meaning", "Positions", "counted", "locate"]

Array = NDArray[np.float64]
Meaning = Literal["geographic", "kilometres", "unknown scale", "none"]
SWEEPS_MAX = 1000
STABLE = 1e-9
"""Relative change of a sweep below which places no longer move: about a centimetre on Earth."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Coordinates of every router, one row each, and what they mean. Rows are empty of sense if `meaning` is none."""

    xy: Array
    meaning: Meaning


def counted(count: int, total: int, noun: str, verb: str) -> str:
    """Returns the start of a note; the verb is given in the plural.

    >>> counted(1, 34, "router", "have"), counted(3, 34, "router", "have"), counted(5, 5, "link", "join")
    ('1 of 34 routers has', '3 of 34 routers have', 'all 5 links join')
    """
    share = f"all {total}" if 1 < count == total else f"{count} of {total}"
    singular = {"have": "has", "are": "is"}.get(verb, verb + "s")
    return f"{share} {noun}{'s' if total != 1 else ''} {singular if count == 1 else verb}"


def locate(raw: RawTopology, pairs: Sequence[tuple[int, int]], options: ReadOptions, notes: list[str]) -> Positions:
    """Positions of all routers of a connected topology."""
    positions = [router.position for router in raw.routers]
    placed = np.array([position is not None for position in positions])
    xy = np.array([position or (0.0, 0.0) for position in positions], dtype=np.float64)
    if len(positions) > 2 and placed.sum() > 1 and (np.ptp(xy[placed], axis=0) == 0).all():
        notes.append(f"{counted(int(placed.sum()), len(positions), 'router', 'have')} the same coordinates: not used")
        placed[:] = False
    if not placed.any():
        return Positions(xy, "none")
    meaning = _meaning(raw, xy[placed], options, notes)
    if meaning == "kilometres":
        xy *= options.km_per_unit or 1.0
    if not placed.all():
        missing = counted(int((~placed).sum()), len(positions), "router", "have")
        notes.append(
            f"{missing} no coordinates: placed at the mean of {'its' if ' has' in missing else 'their'} neighbours"
        )
        xy = _at_mean_of_neighbours(xy, placed, np.array(pairs, dtype=np.intp), meaning == "geographic")
    return Positions(xy, meaning)


def _meaning(raw: RawTopology, xy: Array, options: ReadOptions, notes: list[str]) -> Meaning:
    if raw.coordinates == "geographic":
        return "geographic"
    if options.km_per_unit is not None:
        return "kilometres"
    if raw.coordinates == "either" and (np.abs(xy) <= (180, 90)).all():
        notes.append("coordinates taken as longitude and latitude: all of them lie within their range")
        return "geographic"
    return "unknown scale"


def _at_mean_of_neighbours(xy: Array, fixed: NDArray[np.bool_], pairs: NDArray[np.intp], geographic: bool) -> Array:
    """Moves routers without coordinates to the mean of their neighbours until none moves any more.

    On Earth the mean is taken on the sphere, so that Tokyo and Los Angeles have theirs in the Pacific.
    """
    points = _on_sphere(xy) if geographic else xy.copy()
    size = float(np.ptp(points[fixed], axis=0).max()) or 1.0
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    ends = ends[~fixed[ends[:, 0]]]
    mover, neighbour = ends[:, 0], ends[:, 1]
    placed = fixed.copy()
    for _ in range(SWEEPS_MAX):
        total, count = np.zeros_like(points), np.zeros(len(points))
        use = placed[neighbour]
        np.add.at(total, mover[use], points[neighbour[use]])
        np.add.at(count, mover[use], 1.0)
        reached = count > 0
        mean = total[reached] / count[reached, None]
        if geographic:
            # Neighbours at opposite ends of the Earth have no mean; any place will do if it is always the same.
            mean[:, 2] += 1e-12
            mean /= np.linalg.norm(mean, axis=1)[:, None]
        settled = bool(placed.all()) and float(np.abs(points[reached] - mean).max()) < STABLE * size
        points[reached] = mean
        placed |= reached
        if settled:
            break
    moved = _in_degrees(points) if geographic else points
    return np.where(fixed[:, None], xy, moved)


def _on_sphere(degrees: Array) -> Array:
    lon, lat = np.radians(degrees[:, 0]), np.radians(degrees[:, 1])
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


def _in_degrees(points: Array) -> Array:
    lon, lat = np.arctan2(points[:, 1], points[:, 0]), np.arcsin(np.clip(points[:, 2], -1, 1))
    return np.asarray(np.degrees(np.stack([lon, lat], axis=1)))
