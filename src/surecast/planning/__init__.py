"""Searches for the best system: admission, home brokers, deployment, improvement, choice of scheme by reliability."""

from surecast.planning.additions import Addition, Deployment, plan_deployment
from surecast.planning.admission import Promise, admit
from surecast.planning.homes import HomeChoice, choose_homes
from surecast.planning.scheme import SchemeChoice, compare_schemes
from surecast.planning.sensitivity import Improvement, improvements

__all__ = [
    "Addition",
    "Deployment",
    "HomeChoice",
    "Improvement",
    "Promise",
    "SchemeChoice",
    "admit",
    "choose_homes",
    "compare_schemes",
    "improvements",
    "plan_deployment",
]
