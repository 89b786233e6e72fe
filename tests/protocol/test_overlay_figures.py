"""The worked examples of the reliability paper, Figures 1 to 3, message by message."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from surecast.errors import PeerError
from surecast.protocol.overlay import (
    Ack,
    Broker,
    ClientMessage,
    Deliver,
    Detour,
    Discard,
    Drop,
    Effect,
    Event,
    EventId,
    EventMessage,
    HandledEvent,
    Key,
    LinkState,
    Message,
    OverlayMap,
    Publish,
    Record,
    Send,
    Store,
    StoredEvent,
    Subscribe,
    Unsubscribe,
    event_key,
    settings_for,
)

STOCK = [("b1", "b2"), ("b2", "b3"), ("b2", "b4")]
TEMP = [("b3", "b1"), ("b3", "b2"), ("b3", "b4")]
LINKS = [*STOCK, ("b1", "b3"), ("b3", "b4")]
"""Four brokers; the tree of Stock is rooted at b2, that of Temp at b3. s1 is at b3, s2 at b4, p1 at b1."""

Sent = tuple[str, str, Message]


class Bench:
    """Brokers joined by links without latency; everything sent, delivered and stored is written down in order."""

    def __init__(self, scheme: str, links: list[tuple[str, str]] = LINKS):
        self.overlay = OverlayMap(links, {"Stock": STOCK, "Temp": TEMP})
        self.brokers = {name: Broker(name, self.overlay, settings_for(scheme)) for name in self.overlay.brokers}
        self.disks: dict[str, dict[Key, Record]] = {name: {} for name in self.brokers}
        self.cut: set[frozenset[str]] = set()
        self.sent: list[Sent] = []
        self.delivered: list[tuple[str, str, EventId]] = []
        self.log: list[Effect] = []
        self.queue: deque[Sent] = deque()
        self.now = 0.0

    def client(self, home: str, message: ClientMessage) -> list[Sent]:
        return self._settle(home, self.brokers[home].from_client(message, self.now))

    def timer(self, name: str) -> list[Sent]:
        return self._settle(name, self.brokers[name].handle_timer(self.now))

    def crash(self, name: str, *, noticed: bool = False) -> list[Sent]:
        self.brokers[name].crash()
        seen: list[Sent] = []
        for other in self.overlay.neighbours[name] if noticed else ():
            seen += self._settle(other, self.brokers[other].neighbour_changed(name, False, self.now))
        return seen

    def recover(self, name: str, *, noticed: bool = False) -> list[Sent]:
        seen = self._settle(name, self.brokers[name].recover(self.now, self.disks[name]))
        for other in self.overlay.neighbours[name] if noticed else ():
            seen += self._settle(name, self.brokers[name].neighbour_changed(other, True, self.now))
            seen += self._settle(other, self.brokers[other].neighbour_changed(name, True, self.now))
        return seen

    def _settle(self, name: str, effects: list[Effect]) -> list[Sent]:
        start = len(self.sent)
        self._carry_out(name, effects)
        while self.queue:
            sender, to, message = self.queue.popleft()
            if self.brokers[to].is_up and frozenset((sender, to)) not in self.cut:
                self._carry_out(to, self.brokers[to].handle(message, sender, self.now))
        return self.sent[start:]

    def _carry_out(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            self.log.append(effect)
            if isinstance(effect, Send):
                self.sent.append((name, effect.to, effect.message))
                self.queue.append(self.sent[-1])
            elif isinstance(effect, Deliver):
                self.delivered.append((name, effect.subscriber, effect.event.id))
            elif isinstance(effect, Store):
                self.disks[name][effect.key] = effect.record
            elif isinstance(effect, Discard):
                del self.disks[name][effect.key]


def stock_event(number: int, now: float = 0.0, lifetime_s: float = 3600.0) -> Event:
    return Event(EventId("p1", number), "Stock", now, lifetime_s)


def subscribed(scheme: str) -> Bench:
    bench = Bench(scheme)
    bench.client("b3", Subscribe("s1", "Stock", 0.0))
    bench.sent.clear()
    bench.log.clear()
    return bench


def test_figure_1a_a_subscription_to_stock_propagates_over_its_tree() -> None:
    bench = Bench("periodic-subscription")
    message = Subscribe("s1", "Stock", 0.0)
    assert bench.client("b3", message) == [("b3", "b2", message), ("b2", "b1", message), ("b2", "b4", message)]
    tables = {name: list(broker.routing_table) for name, broker in bench.brokers.items()}
    assert tables == {
        "b1": [("Stock", "s1", "b2")],
        "b2": [("Stock", "s1", "b3")],
        "b3": [("Stock", "s1", "")],
        "b4": [("Stock", "s1", "b2")],
    }


def test_figure_1b_a_subscription_to_temp_propagates_over_another_tree() -> None:
    bench = subscribed("periodic-subscription")
    message = Subscribe("s2", "Temp", 0.0)
    assert bench.client("b4", message) == [("b4", "b3", message), ("b3", "b1", message), ("b3", "b2", message)]
    assert list(bench.brokers["b2"].routing_table) == [("Stock", "s1", "b3"), ("Temp", "s2", "b3")]


def test_figure_1c_an_event_on_stock_goes_back_the_way_of_the_subscription() -> None:
    bench = subscribed("periodic-subscription")
    bench.client("b4", Subscribe("s2", "Temp", 0.0))
    event = stock_event(0)
    sent = bench.client("b1", Publish(event))
    assert sent == [("b1", "b2", EventMessage(event, "b1")), ("b2", "b3", EventMessage(event, "b1"))]
    assert bench.delivered == [("b3", "s1", event.id)]


def test_an_event_passes_a_link_once_however_many_subscriptions_match() -> None:
    bench = subscribed("periodic-subscription")
    for name in ("s3", "s4", "s5"):
        bench.client("b3", Subscribe(name, "Stock", 0.0))
    sent = bench.client("b1", Publish(stock_event(0)))
    assert [(a, b) for a, b, _ in sent] == [("b1", "b2"), ("b2", "b3")]
    assert sorted(name for _, name, _ in bench.delivered) == ["s1", "s3", "s4", "s5"]


def test_an_unsubscription_follows_the_same_tree_and_ends_the_flow() -> None:
    bench = subscribed("periodic-subscription")
    sent = bench.client("b3", Unsubscribe("s1", "Stock", 1.0))
    assert [(a, b) for a, b, _ in sent] == [("b3", "b2"), ("b2", "b1"), ("b2", "b4")]
    assert bench.client("b1", Publish(stock_event(0))) == []
    assert all(len(broker.routing_table) == 0 for broker in bench.brokers.values())


def test_figure_2_an_event_is_stored_acknowledged_and_only_then_forwarded() -> None:
    """reliability section 2.4.2: store, ACK to the upstream neighbour, forward, wait for the ACK, discard."""
    bench = subscribed("buffering")
    event = stock_event(0)
    key = event_key(event.id)
    bench.client("b1", Publish(event))
    handled = HandledEvent(event.id, 3600.0, True)
    assert bench.log == [
        Store(key, StoredEvent(event, ("b2",))),  # b1
        Send("b2", EventMessage(event)),
        Store(key, StoredEvent(event, ("b3",))),  # b2
        Send("b1", Ack(event.id)),
        Send("b3", EventMessage(event)),
        Store(key, handled),  # b1 has the acknowledgement of b2
        Store(key, handled),  # b3 has nobody to forward to
        Send("b2", Ack(event.id)),
        Deliver("s1", event),
        Store(key, handled),  # b2 has the acknowledgement of b3
    ]
    assert all(broker.stored_events == 0 for broker in bench.brokers.values())


def test_figure_2_an_event_is_sent_again_until_it_is_acknowledged() -> None:
    bench = subscribed("buffering")
    event = stock_event(0)
    bench.crash("b2")
    assert bench.client("b1", Publish(event)) == [("b1", "b2", EventMessage(event))]
    assert bench.brokers["b1"].next_timer() == 10.0
    for bench.now in (10.0, 20.0):
        assert bench.timer("b1") == [("b1", "b2", EventMessage(event))]
    assert bench.delivered == []
    bench.now = 25.0
    bench.recover("b2")
    bench.now = 30.0
    assert bench.timer("b1") == [
        ("b1", "b2", EventMessage(event)),
        ("b2", "b1", Ack(event.id)),
        ("b2", "b3", EventMessage(event)),
        ("b3", "b2", Ack(event.id)),
    ]
    assert bench.delivered == [("b3", "s1", event.id)]
    assert bench.brokers["b1"].next_timer() == float("inf")


def test_a_lost_acknowledgement_is_repeated_and_the_event_goes_no_further() -> None:
    bench = subscribed("buffering")
    event = stock_event(0)
    bench.client("b1", Publish(event))
    again = bench.brokers["b2"].handle(EventMessage(event), "b1", 1.0)
    assert again == [Send("b1", Ack(event.id))]
    bench.crash("b2")
    bench.recover("b2")  # what was handled is remembered on disk
    assert bench.brokers["b2"].handle(EventMessage(event), "b1", 2.0) == [Send("b1", Ack(event.id))]


def test_a_buffered_event_survives_a_crash_and_is_sent_at_once_on_recovery() -> None:
    bench = subscribed("buffering")
    event = stock_event(0)
    bench.crash("b2")
    bench.client("b1", Publish(event))
    bench.crash("b1")
    bench.now = 100.0
    bench.recover("b2")
    bench.recover("b1")
    assert bench.brokers["b1"].next_timer() == 100.0
    bench.timer("b1")
    assert bench.delivered == [("b3", "s1", event.id)]


def test_a_buffered_event_is_discarded_when_it_expires() -> None:
    bench = subscribed("buffering")
    event = stock_event(0, lifetime_s=15.0)
    bench.crash("b2")
    bench.client("b1", Publish(event))
    bench.now = 10.0
    bench.timer("b1")
    assert bench.brokers["b1"].next_timer() == 15.0
    bench.now = 15.0
    bench.log.clear()
    bench.timer("b1")
    assert bench.log == [Discard(event_key(event.id)), Drop(event, "b2", "expired")]
    assert event_key(event.id) not in bench.disks["b1"]


def test_a_full_store_leaves_the_event_with_the_neighbour_before() -> None:
    overlay = OverlayMap(LINKS, {"Stock": STOCK})
    broker = Broker("b2", overlay, replace(settings_for("buffering"), store_max=1))
    broker.handle(Subscribe("s1", "Stock", 0.0), "b3", 0.0)
    assert broker.handle(EventMessage(stock_event(0)), "b1", 0.0)
    assert broker.handle(EventMessage(stock_event(1)), "b1", 0.0) == []
    assert broker.from_client(Publish(stock_event(2)), 0.0) == [Drop(stock_event(2), "", "store full")]
    broker.handle(Ack(EventId("p1", 0)), "b3", 0.0)
    assert Send("b1", Ack(EventId("p1", 1))) in broker.handle(EventMessage(stock_event(1)), "b1", 0.0)


def test_figure_3_b1_bypasses_failed_b2_to_its_immediately_reachable_children() -> None:
    """reliability section 2.4.3: the immediately reachable children of b2 are b3 and b4."""
    bench = subscribed("bypass")
    flood = bench.crash("b2", noticed=True)
    assert {message for _, _, message in flood} == {LinkState(name, 1, ("b2",)) for name in ("b1", "b3", "b4")}
    event = stock_event(0)
    carried = EventMessage(event, "b1")
    assert bench.client("b1", Publish(event)) == [
        ("b1", "b3", Detour((), "b2", carried)),
        ("b1", "b3", Detour(("b4",), "b2", carried)),
        ("b3", "b4", Detour((), "b2", carried)),
    ]
    assert bench.delivered == [("b3", "s1", event.id)]


def test_figure_3_subscriptions_take_the_same_detours() -> None:
    bench = Bench("bypass")
    bench.crash("b2", noticed=True)
    message = Subscribe("s1", "Stock", 0.0)
    sent = bench.client("b3", message)
    assert sent == [("b3", "b1", Detour((), "b2", message)), ("b3", "b4", Detour((), "b2", message))]
    assert list(bench.brokers["b1"].routing_table) == [("Stock", "s1", "b2")], "as if b2 had sent it"


def test_a_failed_link_is_bypassed_to_the_neighbour_itself() -> None:
    bench = subscribed("bypass")
    bench.cut.add(frozenset(("b1", "b2")))
    for a, b in (("b1", "b2"), ("b2", "b1")):
        bench._settle(a, bench.brokers[a].neighbour_changed(b, False, 0.0))
    event = stock_event(0)
    sent = bench.client("b1", Publish(event))
    carried = EventMessage(event, "b1")
    assert sent == [
        ("b1", "b3", Detour(("b2",), "b1", carried)),
        ("b3", "b2", Detour((), "b1", carried)),
        ("b2", "b3", carried),
    ]
    assert bench.delivered == [("b3", "s1", event.id)]


def test_when_a_child_has_failed_too_its_own_children_get_the_detour() -> None:
    line = [("b1", "b2"), ("b2", "b3"), ("b3", "b4")]
    overlay = OverlayMap([*line, ("b1", "b4")], {"Stock": line})
    broker = Broker("b1", overlay, settings_for("bypass"))
    broker.handle(Subscribe("s1", "Stock", 0.0), "b2", 0.0)
    broker.neighbour_changed("b2", False, 1.0)
    broker.handle(LinkState("b4", 1, ("b3",)), "b4", 1.0)
    event = stock_event(0)
    assert broker.from_client(Publish(event), 1.0) == [Send("b4", Detour((), "b3", EventMessage(event, "b1")))]


def test_bypass_with_buffering_detours_without_acknowledgement_and_keeps_the_event_for_the_failed_broker() -> None:
    """reliability section 4.5."""
    bench = subscribed("bypass-buffering")
    bench.crash("b2", noticed=True)
    event = stock_event(0)
    sent = bench.client("b1", Publish(event))
    assert [type(message) for _, _, message in sent] == [Detour, Detour, Detour], "no Ack among them"
    assert bench.delivered == [("b3", "s1", event.id)]
    assert bench.brokers["b1"].stored_events == 1
    bench.now = 5.0
    bench.recover("b2", noticed=True)
    bench.now = 10.0
    sent = bench.timer("b1")
    assert [type(message) for _, _, message in sent] == [EventMessage, Ack, EventMessage, Ack]
    assert bench.delivered == [("b3", "s1", event.id)], "the duplicate is filtered at the last hop"
    assert all(broker.stored_events == 0 for broker in bench.brokers.values())


def test_bypass_with_buffering_sends_what_is_unacknowledged_around_a_neighbour_found_dead() -> None:
    bench = subscribed("bypass-buffering")
    event = stock_event(0)
    bench.brokers["b2"].crash()
    bench.client("b1", Publish(event))
    assert bench.delivered == [], "sent to b2, which is not known to be down"
    for other in ("b3", "b4", "b1"):
        bench._settle(other, bench.brokers[other].neighbour_changed("b2", False, 1.0))
    assert bench.delivered == [("b3", "s1", event.id)]


@pytest.mark.parametrize("scheme", ["none", "periodic-subscription", "bypass"])
def test_a_crash_takes_the_routing_table_and_a_refresh_brings_it_back(scheme: str) -> None:
    bench = subscribed(scheme)
    bench.crash("b2", noticed=True)
    bench.now = 10.0
    bench.recover("b2", noticed=True)
    assert len(bench.brokers["b2"].routing_table) == 0
    bench.client("b1", Publish(stock_event(0, 10.0)))
    assert bench.delivered == []
    bench.client("b3", Subscribe("s1", "Stock", 20.0))
    bench.client("b1", Publish(stock_event(1, 20.0)))
    assert bench.delivered == [("b3", "s1", EventId("p1", 1))]


def test_buffering_keeps_the_routing_table_on_disk() -> None:
    bench = subscribed("buffering")
    bench.crash("b2")
    bench.recover("b2")
    assert list(bench.brokers["b2"].routing_table) == [("Stock", "s1", "b3")]
    bench.client("b3", Unsubscribe("s1", "Stock", 1.0))
    bench.crash("b2")
    bench.recover("b2")
    assert list(bench.brokers["b2"].routing_table) == []


def test_a_subscription_that_is_not_refreshed_times_out() -> None:
    """reliability section 2.4.1."""
    bench = subscribed("periodic-subscription")
    bench.now = 180.0
    bench.client("b1", Publish(stock_event(0, 180.0)))
    assert len(bench.delivered) == 1
    bench.now = 180.5
    assert bench.client("b1", Publish(stock_event(1, 180.5))) == []
    bench.timer("b1")
    assert len(bench.brokers["b1"].routing_table) == 0


def test_a_broker_without_disk_does_not_deliver_what_it_may_have_delivered_before_its_crash() -> None:
    bench = subscribed("periodic-subscription")
    event = stock_event(0)
    bench.client("b1", Publish(event))
    bench.now = 5.0
    bench.crash("b3")
    bench.recover("b3")
    bench.client("b3", Subscribe("s1", "Stock", 5.0))
    assert bench.brokers["b3"].handle(EventMessage(event, "b1"), "b2", 6.0) == [Drop(event, "", "unknown state")]


def test_a_broker_that_is_down_refuses_to_act_and_strangers_are_refused() -> None:
    bench = Bench("none")
    with pytest.raises(PeerError, match="b1 got a message from b4, which is not its neighbour"):
        bench.brokers["b1"].handle(Subscribe("s", "Stock", 0.0), "b4", 0.0)
    bench.brokers["b1"].crash()
    with pytest.raises(RuntimeError, match="broker b1 is down"):
        bench.brokers["b1"].handle_timer(0.0)
