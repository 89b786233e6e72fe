"""Tables of compiled forwarding functions (capacity Eqs. 5, 12, 20) against the functions themselves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from surecast.prediction.capacity.filter_probabilities import (
    ROUTINGS,
    notification_probability,
    remote_entries,
    subscription_probability,
)
from surecast.prediction.capacity.kernel_tables import NOTIFY, REMOTE, SUBSCRIBE, forwarding_tables, look_up

FUNCTIONS = {NOTIFY: notification_probability, SUBSCRIBE: subscription_probability, REMOTE: remote_entries}


@pytest.mark.parametrize("which", FUNCTIONS)
@pytest.mark.parametrize("routing", ROUTINGS[1:])
def test_tables_agree_with_the_functions(routing: str, which: int) -> None:
    x = np.exp(np.random.default_rng(1).uniform(np.log(1e-12), np.log(1e14), 40_000))
    exact = FUNCTIONS[which](routing, x)
    found = look_up(forwarding_tables(), routing, which, x)
    # Where exp(-x) itself is below 1e-6 its relative error grows, but nothing depends on so small a share.
    counts = exact > (1e-6 if routing == "identity" and which == SUBSCRIBE else 0.0)
    assert np.abs(found[counts] / exact[counts] - 1.0).max() < 1e-9
    assert np.abs(found - exact)[~counts].max(initial=0.0) < 1e-14


@pytest.mark.parametrize("which", FUNCTIONS)
@pytest.mark.parametrize("routing", ROUTINGS[1:])
def test_limits(routing: str, which: int) -> None:
    tables, exact = forwarding_tables(), FUNCTIONS[which]
    few = np.array([0.0, 1e-300, 1e-30, 2.0**-41, 2.0**-40])
    assert look_up(tables, routing, which, few) == pytest.approx(exact(routing, few), rel=1e-11, abs=0.0)
    assert look_up(tables, routing, which, 0.0) == exact(routing, 0.0)
    many = np.array([2.0**50, 1e16, 1e17])
    # Beyond 2**50 a power law continues: what grows like a logarithm is right to a percent for two more decades.
    assert look_up(tables, routing, which, many) == pytest.approx(exact(routing, many), rel=1e-2)


def test_cell_boundaries() -> None:
    x = np.array([2.0**e * (1.0 + k / 32) for e in (-40, -3, 0, 7, 49) for k in range(32)])
    for side in (x, np.nextafter(x, np.inf), np.nextafter(x[1:], 0.0)):
        found = look_up(forwarding_tables(), "merging", NOTIFY, side)
        assert found == pytest.approx(notification_probability("merging", side), rel=1e-10)


class Twice:
    """Statistics in which two subscriptions do what one does in uniform ones; nothing else can be told apart."""

    def notification_probability(self, routing: str, x: ArrayLike) -> NDArray[np.float64]:
        return notification_probability(routing, 2.0 * np.asarray(x))

    def subscription_probability(self, routing: str, x: ArrayLike) -> NDArray[np.float64]:
        return subscription_probability(routing, 2.0 * np.asarray(x))

    def remote_entries(self, routing: str, x: ArrayLike) -> NDArray[np.float64]:
        return remote_entries(routing, 2.0 * np.asarray(x))


def test_groups_of_statistics() -> None:
    tables = forwarding_tables([Twice(), Twice()])
    x = np.geomspace(1e-6, 1e6, 200)
    for group in (0, 1):
        found = look_up(tables, "covering", REMOTE, x, group)
        assert found == pytest.approx(remote_entries("covering", 2.0 * x), rel=1e-9)
    assert not tables.textbook_identity
    assert forwarding_tables().textbook_identity


def test_equal_functions_share_a_table() -> None:
    slots = forwarding_tables().slots
    simple, identity, covering, merging = slots
    assert simple[NOTIFY] == covering[NOTIFY]
    assert identity[NOTIFY] == identity[REMOTE] == merging[REMOTE]
    assert slots.max() == 8
