"""What clients ask for and publish: filters and events of a class, drawn at random.

>>> rng = np.random.default_rng(1)
>>> stock = FilterClass("stock")
>>> print(draw_filter(stock, rng))
stock: x in [0.5118216247002567, 0.9504636963259353]
>>> draw_event(stock, rng)
Event(class_name='stock', attributes=(('x', 0.14415961271963373),))
>>> grades = Histogram((1.0, 2.0, 3.0), (0.5, 0.3, 0.2))
>>> exam = FilterClass("exam", filters=(AttributeStatistics("grade", grades, ends=grades),))
>>> print(draw_filter(exam, rng))
exam: grade in [1, 3]
>>> draw_event(exam, rng), repeats(exam), repeats(stock)
(Event(class_name='exam', attributes=(('grade', 1.0),)), True, False)
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np

from surecast.protocol.filters import Event, Filter, Interval
from surecast.scenario.system import AttributeStatistics, FilterClass, Histogram

__all__ = ["ATTRIBUTE", "draw_event", "draw_filter", "repeats"]

ATTRIBUTE: Final = "x"
"""The one attribute that events have and filters speak of in a class without statistics of its own."""


def draw_filter(each: FilterClass, rng: np.random.Generator) -> Filter:
    """A filter of a class: an interval with two uniform ends (capacity section 3.2), or what its statistics say."""
    if each.filters is None:
        one, other = rng.random(), rng.random()
        return Filter(each.name, ((ATTRIBUTE, Interval(one, other) if one < other else Interval(other, one)),))
    wanted = [
        (attribute.name, _interval(attribute, rng))
        for attribute in each.filters
        if attribute.constrained == 1.0 or rng.random() < attribute.constrained
    ]
    return Filter(each.name, wanted)


def draw_event(each: FilterClass, rng: np.random.Generator) -> Event:
    """An event of a class: a uniform point (capacity section 3.2), or what its statistics say."""
    if each.filters is None:
        return Event(each.name, {ATTRIBUTE: rng.random()})
    return Event(each.name, {attribute.name: _number(attribute.value, rng) for attribute in each.filters})


def repeats(each: FilterClass) -> bool:
    """Returns whether two filters of a class may be equal: if every attribute may be left out or takes few numbers."""
    return each.filters is not None and all(
        attribute.constrained < 1.0 or not _is_continuous(attribute) for attribute in each.filters
    )


def _is_continuous(attribute: AttributeStatistics) -> bool:
    parts = (attribute.ends,) if attribute.ends is not None else (attribute.centre, attribute.width)
    return any(part is not None and part.is_continuous for part in parts)


def _interval(attribute: AttributeStatistics, rng: np.random.Generator) -> Interval:
    if attribute.ends is not None:
        low, high = sorted((_number(attribute.ends, rng), _number(attribute.ends, rng)))
        return Interval(low, high)
    assert attribute.centre is not None
    assert attribute.width is not None
    centre, half = _number(attribute.centre, rng), _number(attribute.width, rng) / 2.0
    return Interval(centre - half, centre + half)


@lru_cache
def _upto(histogram: Histogram) -> tuple[float, ...]:
    return tuple(accumulate(histogram.weights))


def _number(histogram: Histogram, rng: np.random.Generator) -> float:
    """A number of a distribution."""
    upto, points = _upto(histogram), histogram.points
    at = min(bisect_right(upto, rng.random() * upto[-1]), len(upto) - 1)
    if not histogram.is_continuous:
        return points[at]
    return points[at] + (points[at + 1] - points[at]) * rng.random()
