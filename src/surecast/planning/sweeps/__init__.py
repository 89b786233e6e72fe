"""Sweeps of a placement problem over load and locality: how configurations scale, and which algorithm is best."""

from surecast.planning.sweeps.algorithms import (
    OVERLOAD,
    TIE,
    AlgorithmSweep,
    count_optimal,
    locality_problems,
    sweep_algorithms,
)
from surecast.planning.sweeps.load import Configuration, LoadCurve, LoadSweep, saturation_load, sweep_load
from surecast.planning.sweeps.places import at_load, one_per_domain

__all__ = [
    "OVERLOAD",
    "TIE",
    "AlgorithmSweep",
    "Configuration",
    "LoadCurve",
    "LoadSweep",
    "at_load",
    "count_optimal",
    "locality_problems",
    "one_per_domain",
    "saturation_load",
    "sweep_algorithms",
    "sweep_load",
]
