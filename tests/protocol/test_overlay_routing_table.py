from __future__ import annotations

from math import inf
from random import Random

import pytest

from surecast.protocol.overlay import RoutingTable


class Dumb:
    """A routing table as a list of everything it was ever told."""

    def __init__(self, timeout_s: float):
        self.timeout_s = timeout_s
        self.told: list[tuple[str, str, str, float, float, bool]] = []

    def tell(self, subscriber: str, topic: str, source: str, issued_s: float, now: float, wanted: bool) -> bool:
        if any(t[:2] == (subscriber, topic) and t[3] >= issued_s for t in self.told):
            return False
        self.told.append((subscriber, topic, source, issued_s, now, wanted))
        return True

    def fresh(self, topic: str, now: float) -> dict[str, str]:
        last: dict[str, tuple[str, float, bool]] = {}
        for subscriber, of, source, _, at_s, wanted in self.told:
            if of == topic:
                last[subscriber] = (source, at_s, wanted)
        return {name: source for name, (source, at_s, on) in last.items() if on and at_s >= now - self.timeout_s}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("timeout_s", [5.0, inf])
def test_the_table_agrees_with_a_list_of_all_it_was_told(seed: int, timeout_s: float) -> None:
    random, now = Random(seed), 0.0
    table, dumb = RoutingTable(timeout_s), Dumb(timeout_s)
    for _ in range(200):
        now += random.random()
        name, topic, source = random.choice("xyz"), random.choice("tu"), random.choice(["", "b1", "b2"])
        # What is issued may arrive late, but not later than the time-out: what is forgotten cannot be compared.
        issued_s = now - (random.random() * 3 if random.random() < 0.3 else 0.0)
        wanted = random.random() < 0.8
        tell = table.refresh if wanted else table.remove
        assert tell(name, topic, source, issued_s, now) == dumb.tell(name, topic, source, issued_s, now, wanted)
        if random.random() < 0.3 and table.next_timer() <= now:
            table.purge(now)
        fresh = dumb.fresh(topic, now)
        assert sorted(table.next_hops(topic, now)) == sorted({b for b in fresh.values() if b}), f"seed {seed}"
        assert sorted(table.next_hops(topic, now, besides="b1")) == sorted({*fresh.values()} - {"", "b1"})
        assert sorted(table.subscribers(topic, now)) == sorted(name for name, b in fresh.items() if not b)


def test_an_older_subscription_that_arrives_late_does_not_undo_an_unsubscription() -> None:
    table = RoutingTable()
    assert table.remove("s", "t", "b1", issued_s=5.0, now=5.0)
    assert not table.refresh("s", "t", "b1", issued_s=4.0, now=6.0)
    assert table.next_hops("t", now=6.0) == []
    assert table.refresh("s", "t", "b1", issued_s=7.0, now=7.0)
    assert table.next_hops("t", now=7.0) == ["b1"]
