"""Routing algorithms of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surecast.errors import ConfigurationError
from surecast.protocol.filters import Event, Filter, parse
from surecast.protocol.routing import Deliver, Digest, RoutingBroker, Send, register_digest, unregister_digest


class Everything(Digest):
    """Asks for all events as soon as there is a filter, and until there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def _add(self, filter: Filter) -> None:
        self.number += 1
        if self.number == 1:
            self._announce(Filter())

    def _remove(self, filter: Filter) -> None:
        self.number -= 1
        if self.number == 0:
            self._revoke(Filter())


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_digest("everything", Everything)
    yield
    unregister_digest("everything")


def test_a_broker_routes_by_a_registered_digest() -> None:
    first, second = parse("Stock: price > 35"), parse("Stock: price > 40")
    near = RoutingBroker("b1", ["b2"], "peer-to-peer", "everything")
    far = RoutingBroker("b2", ["b1"], "peer-to-peer", "everything")
    (told,) = near.subscribe("s1", first)
    assert isinstance(told, Send)
    assert near.subscribe("s2", second) == [], "the neighbour knows already"
    far.handle(told.message, "b1")
    assert far.entries_for("b1") == [Filter()]
    (sent,) = far.publish(Event("Stock", {"price": 37}))
    assert isinstance(sent, Send)
    assert near.handle(sent.message, "b2") == [Deliver("s1", Event("Stock", {"price": 37}))]
    assert near.unsubscribe("s1", first) == []
    (revoked,) = near.unsubscribe("s2", second)
    assert isinstance(revoked, Send)
    far.handle(revoked.message, "b1")
    assert far.publish(Event("Stock", {"price": 50})) == []


@pytest.mark.parametrize("name", ["flooding", "covering", "two words", ""])
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="take another word"):
        register_digest(name, Everything)


def test_what_is_not_registered_is_not_known_and_what_comes_with_surecast_stays() -> None:
    unregister_digest("everything")
    unregister_digest("covering")
    RoutingBroker("b1", ["b2"], "peer-to-peer", "covering")
    with pytest.raises(ConfigurationError, match="no algorithm 'everything'; use one of flooding, simple"):
        RoutingBroker("b1", ["b2"], "peer-to-peer", "everything")
