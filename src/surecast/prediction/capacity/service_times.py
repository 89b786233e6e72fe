"""Service times of brokers, by class: what the scenario gives, and the work that routing tables make.

A notification is matched against the entries of the table, a control message is compared with those it may make
superfluous. The mean is that of the scenario plus the mean work times its cost. The squared coefficient of variation
stays that of the scenario; the variance of the work is added: of the Poisson number of entries, and of the share of
them that a notification matches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.capacity.filter_statistics import FilterStatistics
from surecast.scenario.system import Matching

if TYPE_CHECKING:
    from surecast.prediction.capacity.capacity_model import CapacityModel, LinkFlows

__all__ = ["Services", "services_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Services:
    """Moments of service times: kind of message (notification, control), broker, class. Service factors are in."""

    first: Array
    second: Array


def services_of(model: CapacityModel, flows: LinkFlows, scale: float = 1.0) -> Services:
    """Returns service times under the traffic of an algorithm, when arrivals are `scale` times as frequent."""
    moments = np.stack([model.notification_service, model.control_service])
    first = np.broadcast_to(moments[:, :, :1], (*moments.shape[:2], len(model.count)))
    second = np.broadcast_to(moments[:, :, 1:], first.shape)
    if flows.algorithm and any(each is not None for each in model.matching):
        work = _Work(model, flows, scale)
        shape = np.divide(second, first**2, out=np.ones(first.shape), where=first > 0)
        first = first + np.stack([work.notification_s, work.control_s])
        second = shape * first**2 + np.stack([work.notification_variance, work.control_variance])
    return Services(first * model.factor, second * model.factor**2)


class _Work:
    """Mean and variance of the time that each broker (row) spends on its table for a message of each class."""

    def __init__(self, model: CapacityModel, flows: LinkFlows, scale: float):
        self.model = model
        self.algorithm = flows.algorithm
        self.routing = flows.algorithm.rpartition(" ")[2]
        self.scale = scale
        shape = model.publications.shape
        self.notification_s, self.notification_variance = np.zeros(shape), np.zeros(shape)
        self.control_s, self.control_variance = np.zeros(shape), np.zeros(shape)
        self.local = scale * model.lifetime_s * model.subscriptions
        self.known = scale * model.known_behind(flows.algorithm)
        compared = self._compared(flows)
        for matching in dict.fromkeys(each for each in model.matching if each is not None):
            brokers = [i for i, each in enumerate(model.matching) if each == matching]
            mean, variance = self._notification(matching)
            self.notification_s[brokers], self.notification_variance[brokers] = mean[brokers], variance[brokers]
            self.control_s[brokers] = matching.update_s + matching.comparison_s * compared[brokers]
            self.control_variance[brokers] = matching.comparison_s**2 * compared[brokers]

    def _notification(self, matching: Matching) -> tuple[Array, Array]:
        entry, predicate, match = matching.entry_s, matching.predicate_s, matching.match_s
        if matching.algorithm == "brute-force":
            own = self._in_table(lambda kind, routing, x: kind.remote_entries(routing, x))
            every = (own @ self.model.count)[:, None]
            mean = entry * every + predicate * own
            return matching.lookup_s + mean, entry**2 * every + (2.0 * entry * predicate + predicate**2) * own
        if matching.algorithm == "counting":
            holding = self._in_table(lambda kind, routing, x: kind.satisfied_predicates(routing, x))
            matched = self._in_table(lambda kind, routing, x: kind.matching_entries(routing, x))
            mean = predicate * holding + match * matched
            variance = predicate**2 * holding + (2.0 * predicate * match + match**2) * matched
        else:
            predicate = 0.0
            looked_at = self._in_table(lambda kind, routing, x: kind.candidate_entries(routing, x))
            mean, variance = match * looked_at, match**2 * looked_at
        return matching.lookup_s + mean, variance + self._by_notification(predicate, match)

    def _in_table(self, function: Callable[[FilterStatistics, str, Array], Array]) -> Array:
        """Returns a mean number by broker and class: over the entries for its clients and for all its neighbours."""
        model = self.model
        number = model.by_class(lambda kind, x: function(kind, "simple", x), self.local)
        np.add.at(number, model.tree.tail, model.by_class(lambda kind, x: function(kind, self.routing, x), self.known))
        return number

    def _by_notification(self, predicate_s: float, match_s: float) -> Array:
        """Returns the variance that comes from notifications matching different numbers of entries, for entries that
        are subscriptions.
        """
        entries = self.local.copy()
        if self.routing == "simple":
            np.add.at(entries, self.model.tree.tail, self.known)
        spread = np.array([kind.matching_variance(predicate_s, match_s) for kind in self.model.statistics])
        return np.asarray(entries**2 * spread, dtype=np.float64)

    def _compared(self, flows: LinkFlows) -> Array:
        """Returns the number of filters that a control message is compared with, over all neighbours but the one that
        it came from.
        """
        model, tree = self.model, self.model.tree
        behind = tree.reverse(self.scale * model.active)
        comparisons = model.by_class(lambda kind, x: kind.comparisons(self.routing, x), behind)
        if self.algorithm.startswith("hierarchical"):
            comparisons = np.where(tree.rising[:, None], comparisons, 0.0)
        comparisons = np.where(model.publishers_ahead, comparisons, 0.0)
        everywhere, spared = np.zeros_like(self.local), np.zeros_like(self.local)
        np.add.at(everywhere, tree.tail, comparisons)
        np.add.at(spared, tree.head, flows.controls * tree.reverse(comparisons))
        rates = 2.0 * self.scale * model.subscriptions
        np.add.at(rates, tree.head, flows.controls)
        return everywhere - np.divide(spared, rates, out=np.zeros_like(rates), where=rates > 0)
