"""Answers by formula: reliability, capacity, dropping, replication, coding, and all of them composed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.lazy import lazy_names

if TYPE_CHECKING:
    from surecast.prediction.capacity import ALGORITHMS, predict_capacity, predict_periods
    from surecast.prediction.coding import CODING_SCHEMES, choose_coding, predict_coding
    from surecast.prediction.dropping import POLICIES, find_mechanisms, predict_dropping
    from surecast.prediction.reliability import (
        SCHEMES,
        PhaseTypeDelay,
        connection_probability,
        disjoint_path_bound,
        fit_phase_type,
        predict_reliability,
        route_delay,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "surecast.prediction.capacity": ["ALGORITHMS", "predict_capacity", "predict_periods"],
            "surecast.prediction.coding": ["CODING_SCHEMES", "choose_coding", "predict_coding"],
            "surecast.prediction.dropping": ["POLICIES", "find_mechanisms", "predict_dropping"],
            "surecast.prediction.reliability": [
                "SCHEMES",
                "PhaseTypeDelay",
                "connection_probability",
                "disjoint_path_bound",
                "fit_phase_type",
                "predict_reliability",
                "route_delay",
            ],
        },
    )

__all__ = [
    "ALGORITHMS",
    "CODING_SCHEMES",
    "POLICIES",
    "SCHEMES",
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
    "route_delay",
]
