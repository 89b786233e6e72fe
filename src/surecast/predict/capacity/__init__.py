"""Routing tables, message rates, utilisation and delays of content-based routing."""

from surecast.predict.capacity.answer import predict_capacity
from surecast.predict.capacity.filters import (
    ROUTINGS,
    notification_probability,
    remote_entries,
    subscription_probability,
)
from surecast.predict.capacity.model import ALGORITHMS
from surecast.predict.capacity.periods import predict_periods
from surecast.predict.capacity.statistics import FilterStatistics

__all__ = [
    "ALGORITHMS",
    "ROUTINGS",
    "FilterStatistics",
    "notification_probability",
    "predict_capacity",
    "predict_periods",
    "remote_entries",
    "subscription_probability",
]
