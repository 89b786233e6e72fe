"""Content filters on events, with an exact algebra, a written form and an index for matching.

>>> wide, narrow = parse("Stock: price > 35"), parse('Stock: price in [36, 40] and name = "Foo"')
>>> wide.covers(narrow), narrow.covers(wide), wide.intersects(narrow)
(True, False, True)
>>> narrow.matches(Event("Stock", {"name": "Foo", "price": 37}))
True
>>> print(hull(narrow, parse("Stock: price in [10, 20]")))
Stock: price in [10, 40]
"""

from surecast.protocol.filters.constraints import (
    Constraint,
    Equals,
    Exists,
    Interval,
    StartsWith,
    above,
    at_least,
    at_most,
    below,
    between,
    equals,
)
from surecast.protocol.filters.event import Event, Value
from surecast.protocol.filters.filter import NOTHING, Filter, hull, merge
from surecast.protocol.filters.index import FilterIndex
from surecast.protocol.filters.parse import FilterSyntaxError, parse

__all__ = [
    "NOTHING",
    "Constraint",
    "Equals",
    "Event",
    "Exists",
    "Filter",
    "FilterIndex",
    "FilterSyntaxError",
    "Interval",
    "StartsWith",
    "Value",
    "above",
    "at_least",
    "at_most",
    "below",
    "between",
    "equals",
    "hull",
    "merge",
    "parse",
]
