"""Headroom: the factor by which the load can grow before the first component saturates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from surecast.prediction.capacity.capacity_model import CapacityModel, LinkFlows

__all__ = ["Headroom", "headroom"]

_STEP = 10.0 ** (1 / 40)
_FARTHEST = 1e15


@dataclass(frozen=True, slots=True)
class Headroom:
    """The factor on all arrival rates where the first queue saturates, and which one (brokers first) that is."""

    factor: float
    queue: int


def headroom(model: CapacityModel, algorithm: str) -> Headroom | None:
    """Returns the factor at which the first queue saturates, None if none ever does.

    Publications and subscriptions come more often by the same factor; lifetimes stay, so there are more active
    subscriptions too and the probabilities of passing a link change with them. Load grows with the factor, except that
    under identity routing a class with more subscriptions may send fewer control messages. The answer is therefore the
    saturation point nearest to 1: the first above it for a stable system, the last below it for an overloaded one.
    """

    def excess(log_scale: float) -> float:
        scale = math.exp(log_scale)
        return float(model.loads(model.flows(algorithm, scale), scale).utilisation.max(initial=0.0)) - 1.0

    # With every probability 1 a queue's load is proportional to the factor and an upper bound; the load that brokers
    # get from their own clients is proportional and a lower bound.
    full = np.ones_like(model.active)
    everything = LinkFlows(full, full, model.publications_behind, 2.0 * model.subscriptions_behind)
    most = float(model.loads(everything).utilisation.max(initial=0.0))
    none = np.zeros_like(model.active)
    least = float(model.loads(LinkFlows(none, none, none, none)).utilisation.max(initial=0.0))
    adds = any(each is not None for each in model.matching)
    if most == 0.0 and not adds:
        return None
    low = -math.log(most) - 1e-9 if most > 0.0 else 0.0
    # Where routing tables add to service times there is more load than that: no bound, but none at all without load.
    while adds and low > -math.log(_FARTHEST) and excess(low) >= 0.0:
        low -= math.log(10.0)
    high = -math.log(least) + 1e-9 if least > 0.0 else low + math.log(_FARTHEST)
    if algorithm.endswith("identity") or "identity" in model.own_routings:
        bracket = _nearest(excess, low, high)
    else:
        bracket = (low, high) if excess(high) >= 0.0 else None
    if bracket is None:
        return None
    factor = math.exp(float(brentq(excess, *bracket, xtol=1e-12)))
    return Headroom(factor, int(model.loads(model.flows(algorithm, factor), factor).utilisation.argmax()))


def _nearest(excess: Callable[[float], float], low: float, high: float) -> tuple[float, float] | None:
    """Returns the logarithms of two factors, the first stable and the second not, with the crossing nearest to factor
    1.

    Walks away from 1 in small steps, since the load need not grow with the factor.
    """
    here = min(max(0.0, low), high)
    stable = excess(here) < 0.0
    step, end = (math.log(_STEP), high) if stable else (-math.log(_STEP), low)
    while here != end:
        there = min(here + step, end) if stable else max(here + step, end)
        if (excess(there) < 0.0) != stable:
            return (here, there) if stable else (there, here)
        here = there
    return None
