"""Search for the best system: admission, home brokers, deployment, improvement and choice of scheme by reliability."""

from surecast.plan.admission import Promise, admit
from surecast.plan.deploy import Addition, Deployment, plan_deployment
from surecast.plan.homes import HomeChoice, choose_homes
from surecast.plan.improve import Improvement, improvements
from surecast.plan.scheme import SchemeChoice, compare_schemes

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
