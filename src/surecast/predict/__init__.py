"""Answer by formula."""

from surecast.predict.capacity import ALGORITHMS, predict_capacity, predict_periods
from surecast.predict.dropping import POLICIES, find_mechanisms, predict_dropping
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
    "POLICIES",
    "SCHEMES",
    "PhaseTypeDelay",
    "connection_probability",
    "disjoint_path_bound",
    "find_mechanisms",
    "fit_phase_type",
    "predict_capacity",
    "predict_dropping",
    "predict_periods",
    "predict_reliability",
    "route_delay",
]
