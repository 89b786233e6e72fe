"""What clients ask for and publish: filters and events of a class, drawn at random.

>>> rng = np.random.default_rng(1)
>>> stock = FilterClass("stock")
>>> print(draw_filter(stock, rng))
stock: x in [0.5118216247002567, 0.9504636963259353]
>>> draw_event(stock, rng)
Event(class_name='stock', attributes=(('x', 0.14415961271963373),))
"""

from __future__ import annotations

from typing import Final

import numpy as np

from surecast.errors import AssumptionError
from surecast.protocol.filters import Event, Filter, Interval
from surecast.scenario.system import FilterClass

__all__ = ["ATTRIBUTE", "check_class", "draw_event", "draw_filter"]

ATTRIBUTE: Final = "x"
"""The one attribute that events have and filters speak of."""


def check_class(each: FilterClass) -> None:
    """Refuses a class whose filters are described by measured statistics: there are none to draw from."""
    if getattr(each, "filters", None) is not None:
        raise AssumptionError(
            f"class {each.name} is described by measured statistics of its filters, from which none can be drawn; "
            "leave its filters out, and they are simulated as intervals with uniform ends"
        )


def draw_filter(each: FilterClass, rng: np.random.Generator) -> Filter:
    """A filter of a class: an interval with two uniform ends (capacity section 3.2)."""
    one, other = rng.random(), rng.random()
    return Filter(each.name, ((ATTRIBUTE, Interval(one, other) if one < other else Interval(other, one)),))


def draw_event(each: FilterClass, rng: np.random.Generator) -> Event:
    """An event of a class: a uniform point (capacity section 3.2)."""
    return Event(each.name, {ATTRIBUTE: rng.random()})
