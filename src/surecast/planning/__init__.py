"""Searches for the best system: admission, home brokers, deployment, improvement, choice of scheme by reliability."""

from surecast.planning.additions import Addition, Deployment, plan_deployment
from surecast.planning.reliability_advice import (
    HomeChoice,
    Improvement,
    ReliabilityPromise,
    SchemeChoice,
    admit,
    choose_homes,
    compare_schemes,
    improvements,
)

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
