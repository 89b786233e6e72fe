"""Sizing: how many brokers, on which machines, at which cost, so that all that is asked for holds.

>>> from surecast.planning.sizing import Limits, load_catalogue
>>> Limits(headroom=0.2).survives, load_catalogue().currency
(True, 'EUR a month')
"""

from surecast.planning.sizing.catalogue import Catalogue, MachineClass, load_catalogue
from surecast.planning.sizing.search import Candidate, Limits
from surecast.planning.sizing.sizing_answer import Promise, Sizing, WhatIf, size_system

__all__ = [
    "Candidate",
    "Catalogue",
    "Limits",
    "MachineClass",
    "Promise",
    "Sizing",
    "WhatIf",
    "load_catalogue",
    "size_system",
]
