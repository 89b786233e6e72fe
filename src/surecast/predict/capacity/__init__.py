"""Routing tables, message rates, utilisation and delays of content-based routing."""

from surecast.predict.capacity.answer import predict_capacity
from surecast.predict.capacity.filters import (
    ROUTINGS,
    RoutingLaw,
    notification_probability,
    register_routing,
    remote_entries,
    subscription_probability,
    unregister_routing,
)
from surecast.predict.capacity.model import ALGORITHMS
from surecast.predict.capacity.periods import predict_periods
from surecast.predict.capacity.statistics import FilterStatistics

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
