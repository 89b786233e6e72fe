"""Dissemination of events as packets on UDP sockets, over a network that loses some."""

from surecast.broker.cast.endpoint import Endpoint
from surecast.broker.cast.file_cast import CastOptions, CastResult, Received, run_cast
from surecast.broker.cast.loopback_relay import LossyRelay

__all__ = ["CastOptions", "CastResult", "Endpoint", "LossyRelay", "Received", "run_cast"]
