"""Service times that grow with routing tables, as far as compiled code follows them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.scenario.system import Matching, Overlay

__all__ = ["matched_services"]

Array = NDArray[np.float64]


def matched_services(overlay: Overlay, services: Array) -> tuple[Array, Array]:
    """Moments of service times with the fixed part of matching in, and what each routing entry adds, by broker.

    Compiled code knows how many entries a table has, not of which class they are, so the costs of matching must grow
    with that number alone: brute force without a cost per predicate, control messages without comparisons. Another
    cost is refused by name.
    """
    grown, slopes = services.copy(), np.zeros((len(overlay.brokers), 2))
    for i, broker in enumerate(overlay.brokers):
        if broker.matching is not None:
            _refuse_by_class(broker.name, broker.matching)
            slopes[i, 0] = broker.matching.entry_s
            for kind, fixed_s in enumerate((broker.matching.lookup_s, broker.matching.update_s)):
                mean, square = services[i, kind]
                # The coefficient of variation stays; what takes no time otherwise varies like an exponential... see below
                shape = square / mean**2 if mean > 0.0 else 1.0
                grown[i, kind] = mean + fixed_s, shape * (mean + fixed_s) ** 2
    return grown, slopes
