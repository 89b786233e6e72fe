"""Answer by formula."""

from surecast.predict.capacity import ALGORITHMS, predict_capacity
from surecast.predict.reliability import (
    SCHEMES,
    PhaseTypeDelay,
    connection_probability,
    disjoint_path_bound,
    fit_phase_type,
    predict_reliability,
    route_delay,
)

__all__ = [
    "ALGORITHMS",
    "SCHEMES",
    "PhaseTypeDelay",
    "connection_probability",
    "disjoint_path_bound",
    "fit_phase_type",
    "predict_capacity",
    "predict_reliability",
    "route_delay",
]
