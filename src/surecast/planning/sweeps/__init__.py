"""Sweeps of a placement problem over load and locality: how configurations scale, and which algorithm is best."""

from surecast.planning.sweeps.algorithms import (
    OVERLOAD,
    TIE,
    AlgorithmSweep,
    count_optimal,
    locality_problems,
    sweep_algorithms,
)
from surecast.planning.sweeps.load_sweep import (
    LoadCurve,
    LoadSweep,
    SweptConfiguration,
    at_load,
    one_per_domain,
    saturation_load,
    sweep_load,
)

__all__ = [
    "OVERLOAD",
    "TIE",
    "AlgorithmSweep",
    "LoadCurve",
    "LoadSweep",
    "SweptConfiguration",
    "at_load",
    "count_optimal",
    "locality_problems",
    "one_per_domain",
    "saturation_load",
    "sweep_algorithms",
    "sweep_load",
]
