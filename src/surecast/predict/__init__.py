"""Answer by formula."""

from surecast.predict.capacity import ALGORITHMS, predict_capacity, predict_periods
from surecast.predict.coding import CODING_SCHEMES, choose_coding, predict_coding
from surecast.predict.dropping import POLICIES, find_mechanisms, predict_dropping
from surecast.predict.models import MODELS, Model, register_model, unregister_model
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
    "CODING_SCHEMES",
    "MODELS",
    "POLICIES",
    "SCHEMES",
    "Model",
    "PhaseTypeDelay",
    "choose_coding",
    "connection_probability",
    "disjoint_path_bound",
    "find_mechanisms",
    "fit_phase_type",
    "predict_capacity",
    "predict_coding",
    "predict_dropping",
    "predict_periods",
    "predict_reliability",
    "register_model",
    "route_delay",
    "unregister_model",
]
