"""The part of the plane that a drawing shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from surecast.studio.scene import Scene

__all__ = ["Frame", "small_network_names"]

Array = NDArray[np.float64]
ROUTER_LABELS_MAX = 60


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of the plane that the plot shows, and the plot's size in points."""

    left: float
    right: float
    bottom: float
    top: float
    width_pt: float
    height_pt: float

    @classmethod
    def fitting(cls, scene: Scene, width_pt: float, height_pt: float) -> Frame:
        """Returns a frame around the scene with room for names at its edges."""
        left, right, bottom, top = scene.bounds
        west, east, pad_y = (34.0, 34.0, 32.0) if scene.equal else (40.0, 96.0, 36.0)
        per_pt_x = (right - left) / (width_pt - west - east)
        per_pt_y = (top - bottom) / (height_pt - 2 * pad_y)
        if scene.equal:
            per_pt_x = per_pt_y = max(per_pt_x, per_pt_y)
        spare_x = per_pt_x * width_pt - (right - left) - per_pt_x * (west + east)
        spare_y = per_pt_y * height_pt - (top - bottom) - per_pt_y * 2 * pad_y
        return cls(
            left - per_pt_x * west - spare_x / 2,
            right + per_pt_x * east + spare_x / 2,
            bottom - per_pt_y * pad_y - spare_y / 2,
            top + per_pt_y * pad_y + spare_y / 2,
            width_pt,
            height_pt,
        )

    def points(self, xy: Array) -> Array:
        """Converts positions on the plane to points from the plot's lower left corner."""
        scale = np.array([self.width_pt / (self.right - self.left), self.height_pt / (self.top - self.bottom)])
        return np.asarray((xy - np.array([self.left, self.bottom])) * scale, dtype=np.float64)

    def plane(self, x_pt: float, y_pt: float) -> tuple[float, float]:
        """Converts points back to positions on the plane."""
        return (
            self.left + x_pt / self.width_pt * (self.right - self.left),
            self.bottom + y_pt / self.height_pt * (self.top - self.bottom),
        )


def small_network_names(scene: Scene, frame: Frame) -> tuple[list[str], Array]:
    """Returns names and positions (in points) of the routers without a broker; none if there are many routers."""
    names = [lines[0] for group in scene.routers for lines in group.hover]
    if not 0 < len(names) <= ROUTER_LABELS_MAX:
        return [], np.zeros((0, 2))
    places = frame.points(np.concatenate([group.xy for group in scene.routers]))
    brokers = frame.points(np.array([broker.xy for broker in scene.brokers]).reshape(-1, 2))
    free = [i for i, place in enumerate(places) if not (np.hypot(*(brokers - place).T) < 1.0).any()]
    return [names[i] for i in free], places[free]
