"""Routing tables, message rates, utilisation and delays of content-based routing."""

from surecast.prediction.capacity.capacity_model import ALGORITHMS
from surecast.prediction.capacity.capacity_report import predict_capacity
from surecast.prediction.capacity.day_periods import predict_periods
from surecast.prediction.capacity.filter_probabilities import (
    ROUTINGS,
    RoutingLaw,
    notification_probability,
    register_routing,
    remote_entries,
    subscription_probability,
    unregister_routing,
)
from surecast.prediction.capacity.filter_statistics import FilterStatistics

__all__ = [
    "ALGORITHMS",
    "ROUTINGS",
    "FilterStatistics",
    "RoutingLaw",
    "notification_probability",
    "predict_capacity",
    "predict_periods",
    "register_routing",
    "remote_entries",
    "subscription_probability",
    "unregister_routing",
]
