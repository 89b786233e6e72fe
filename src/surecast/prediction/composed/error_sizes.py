"""The subscribers whose figures are known to be less accurate than those of others, with the size of the error.

Events leave a group in batches, and the next group on their way takes them as random arrivals. Compared with
simulations the mean time in groups one after the other is then up to an eighth off. What that is worth in reliability
depends on the deadline: it is computed for each subscriber, by times that are so much shorter and longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.passages import within

if TYPE_CHECKING:
    from surecast.prediction.composed.composed_model import ComposedModel

__all__ = ["in_series", "reliability_errors"]

Array = NDArray[np.float64]

MEAN_ERROR = 0.13
"""The error of the mean time in groups one after the other."""
BUSY = 0.3
"""The utilisation from which on a group's batches matter."""
TOLD_FROM = 0.02


def in_series(model: ComposedModel) -> NDArray[np.bool_]:
    """Returns, by way, whether its events pass two or more busy groups."""
    count = len(model.ways.delivered)
    if model.groups is None:
        return np.zeros(count, np.bool_)
    busy = np.array(model.stations.utilisation) > BUSY
    busy &= np.array([group is not None for group in model.groups])
    routes = [int(busy[list(route.brokers)].sum()) > 1 for route in model.flows.routes]
    found = np.zeros(count, np.bool_)
    found[model.ways.of_flow] = np.array(routes, np.bool_)[model.flows.route]
    return found


def reliability_errors(model: ComposedModel) -> dict[str, float]:
    """Returns the error of reliability of each subscriber for whom it may be above 0.02."""
    series = in_series(model)
    if not series.any():
        return {}
    ways, delivery = model.ways, model.delivery
    deadline = np.full(len(series), np.inf)
    deadline[ways.of_flow] = delivery.flow_deadline_s
    direct = ways.direct

    def in_time(factor: float) -> Array:
        shares = within(direct.shift_s, factor * direct.mean_s, factor**2 * direct.variance_s2, deadline)
        return np.where(series, shares, 0.0)

    plain = in_time(1.0)
    off = np.maximum(np.abs(in_time(1.0 - MEAN_ERROR) - plain), np.abs(in_time(1.0 + MEAN_ERROR) - plain))
    flows = model.flows
    of_flow = delivery.client_up**2 * ways.reach * off[ways.of_flow]
    sums = np.bincount(flows.interest, weights=flows.rate_per_s * of_flow)
    rates = np.bincount(flows.interest, weights=flows.rate_per_s)
    errors = np.divide(sums, rates, out=np.zeros_like(sums), where=rates > 0.0)
    return {
        subscriber.name: float(errors[interest])
        for subscriber, interest in zip(model.system.subscribers, flows.interest_of.tolist(), strict=True)
        if 0 <= interest < len(errors) and errors[interest] > TOLD_FROM
    }
