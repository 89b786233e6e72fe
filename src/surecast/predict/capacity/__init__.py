"""Routing tables, message rates, utilisation and delays of content-based routing."""

from surecast.predict.capacity.answer import predict_capacity
from surecast.predict.capacity.filters import (
    ROUTINGS,
    notification_probability,
    remote_entries,
    subscription_probability,
)
from surecast.predict.capacity.model import ALGORITHMS

__all__ = [
    "ALGORITHMS",
    "ROUTINGS",
    "notification_probability",
    "predict_capacity",
    "remote_entries",
    "subscription_probability",
]
