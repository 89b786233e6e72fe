"""Service times that grow with routing tables, as far as compiled code follows them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.system import Matching, Overlay

__all__ = ["follows_matching", "matched_services"]

Array = NDArray[np.float64]


def follows_matching(overlay: Overlay) -> bool:
    """Returns whether compiled code covers the matching costs of all brokers.

    It knows how many entries a table has, not of which class they are. So the costs must grow with that number alone:
    brute force without a time per predicate, and control messages that are compared with nothing.
    """
    return all(broker.matching is None or _by_entries_alone(broker.matching) for broker in overlay.brokers)


def _by_entries_alone(matching: Matching) -> bool:
    return matching.algorithm == "brute-force" and matching.predicate_s == 0.0 and matching.comparison_s == 0.0


def matched_services(overlay: Overlay, services: Array) -> tuple[Array, Array]:
    """Returns moments of service times including the fixed part of matching, and the part that each entry adds, both by
    broker.

    `services` are by broker, kind of message (notification, control) and order. Their coefficient of variation stays.
    """
    grown, slopes = services.copy(), np.zeros((len(overlay.brokers), 2))
    for i, broker in enumerate(overlay.brokers):
        if broker.matching is not None:
            slopes[i, 0] = broker.matching.entry_s
            for kind, fixed_s in enumerate((broker.matching.lookup_s, broker.matching.update_s)):
                mean, square = services[i, kind]
                shape = square / mean**2 if mean > 0.0 else 1.0
                grown[i, kind] = mean + fixed_s, shape * (mean + fixed_s) ** 2
    return grown, slopes
