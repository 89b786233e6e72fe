"""Searches for the best system: admission, home brokers, deployment, improvement, choice of scheme by reliability."""

from surecast.planning.additions import Addition, Deployment, plan_deployment
from surecast.planning.cheapest_scheme import SchemeChoice, compare_schemes
from surecast.planning.homes import HomeChoice, choose_homes
from surecast.planning.sensitivity import Improvement, improvements
from surecast.planning.subscriber_admission import ReliabilityPromise, admit

__all__ = [
    "Addition",
    "Deployment",
    "HomeChoice",
    "Improvement",
    "ReliabilityPromise",
    "SchemeChoice",
    "admit",
    "choose_homes",
    "compare_schemes",
    "improvements",
    "plan_deployment",
]
