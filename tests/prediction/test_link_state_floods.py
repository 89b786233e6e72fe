"""Link-state messages by formula, against the protocol's own views in every state of tiny overlays, and by hand."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from surecast.prediction.reliability import link_state_floods as floods
from surecast.prediction.reliability.component_chains import components_of
from surecast.prediction.reliability.link_state_floods import link_state_rate
from surecast.protocol.overlay import LinkState, LinkStateView, OverlayMap, Send
from surecast.scenario import Failures, System, build, parse_distribution, parse_text
from surecast.simulation import simulate_reliability

OFTEN = 1000
"""A number of announcements that a broker does not make while it finds its neighbours."""


def failing(text: str, times_s: Sequence[tuple[int, int] | None]) -> System:
    """Brokers a, b, ... with links such as `ab`, and mean up and down times of brokers and links, None: never fail."""
    links = text.split()
    brokers = sorted(set("".join(links)))
    system = build(
        parse_text(f"""{{surecast: 1, name: tiny, overlay: {{brokers: [{", ".join(f"{{name: {b}}}" for b in brokers)}],
          links: [{", ".join(f"[{a}, {b}]" for a, b in map(tuple, links))}]}},
          workload: {{topics: [t], publishers: [{{name: p, home: a, topics: [t], rate: 1/s}}],
          subscribers: [{{name: s, home: b, topics: [t]}}]}}}}""")
    )
    laws = [t and Failures(parse_distribution(f"{t[0]}s"), parse_distribution(f"{t[1]}s")) for t in times_s]
    overlay = system.overlay
    return replace(
        system,
        overlay=replace(
            overlay,
            brokers=tuple(replace(b, failures=law) for b, law in zip(overlay.brokers, laws, strict=False)),
            links=tuple(replace(e, failures=law) for e, law in zip(overlay.links, laws[len(brokers) :], strict=True)),
        ),
    )


def random_times(text: str, seed: int) -> list[tuple[int, int] | None]:
    size = len(set(text) - {" "}) + len(text.split())
    rng = np.random.default_rng(seed)
    return [(int(rng.integers(50, 200)), int(rng.integers(10, 100))) for _ in range(size)]


def rate_of(system: System) -> float:
    return link_state_rate(system, components_of(system))


class EveryState:
    """Expected messages per second: all states, all changes in each, each played by the protocol's own views.

    Before a change all brokers that are up know the last announcement of everybody.
    """

    def __init__(self, system: System):
        overlay = system.overlay
        self.map = OverlayMap.of(overlay)
        names = [b.name for b in overlay.brokers]
        self.links = {(names[e.a], names[e.b]): e.name for e in overlay.links}
        self.links |= {(names[e.b], names[e.a]): e.name for e in overlay.links}
        self.laws = {b.name: b.failures for b in overlay.brokers} | {e.name: e.failures for e in overlay.links}
        self.names = names

    def rate(self) -> float:
        total = 0.0
        fail = [name for name, law in self.laws.items() if law is not None]
        for state in itertools.product([False, True], repeat=len(fail)):
            down = {name for name, up in zip(fail, state, strict=True) if not up}
            laws = [(law, name in down) for name, law in self.laws.items() if law is not None]
            weight = np.prod([1 - law.availability if is_down else law.availability for law, is_down in laws])
            for name, (law, is_down) in zip(fail, laws, strict=True):
                total += float(weight) * self.messages(name, down) / (law.mttr_s if is_down else law.mtbf_s)
        return total

    def reach(self, a: str, b: str, down: set[str]) -> bool:
        return down.isdisjoint({a, b, self.links[a, b]})

    def views(self, down: set[str]) -> dict[str, LinkStateView]:
        views = {}
        for name in self.names:
            view = views[name] = LinkStateView(name, self.map, all_up=False)
            if name not in down:
                for other in self.map.neighbours[name]:
                    view.neighbour_changed(other, self.reach(name, other, down))
                for origin in self.names:  # its own it outbids, and then it has the same number as the others
                    view.receive(LinkState(origin, OFTEN - (origin == name), ()), "")
        return views

    def messages(self, name: str, before: set[str]) -> int:
        """Sent until all is quiet after one component has changed."""
        views, down, up = self.views(before), before ^ {name}, name in before
        queue: deque[tuple[str, Send]] = deque()
        # who finds that it can reach another, or no longer can; a broker that is back looks around first
        pairs = [(a, b) for a, b in self.links if self.reach(a, b, before) != self.reach(a, b, down) and a not in down]
        pairs.sort(key=lambda pair: (pair[0] != name, pair))
        for who, other in pairs:
            queue.extend((who, send) for send in views[who].neighbour_changed(other, up))
        sent = 0
        while queue:
            sender, send = queue.popleft()
            sent += 1
            assert self.reach(sender, send.to, down)
            assert isinstance(send.message, LinkState)
            queue.extend((send.to, more) for more in views[send.to].receive(send.message, sender))
        return sent


TINY = ["ab", "ab bc", "ab bc ca", "ab ac bc bd cd", "ca ab bc bd", "ba bc bd", "ab bc cd da"]


@pytest.mark.parametrize("links", TINY)
def test_tiny_overlays_against_every_state(links: str) -> None:
    system = failing(links, random_times(links, len(links)))
    assert rate_of(system) == pytest.approx(EveryState(system).rate(), rel=1e-9)


def test_a_sample_of_states(monkeypatch: pytest.MonkeyPatch) -> None:
    links = "ab ac bc bd cd"
    system = failing(links, random_times(links, 1))
    exact = rate_of(system)
    monkeypatch.setattr(floods, "EXACT_MAX", 0)
    assert rate_of(system) == pytest.approx(exact, rel=0.01)


def test_one_link_by_hand() -> None:
    """a--b--c with a--b failing. It goes down: b tells c. It is back: what a and b announce is sent by both of a and b,
    or by b to a and c; and they tell each other what they know, which is of each other, as c never says anything."""
    system = failing("ab bc", [None, None, None, (90, 10), None])
    assert 100 * rate_of(system) == pytest.approx(1 + 2 + 2 + 2)


def test_one_broker_by_hand() -> None:
    """The triangle of test_compiled_by_hand.py, in which nothing but b fails: 20 messages each time."""
    system = failing("ab bc ac", [None, (90, 10), None, None, None, None])
    assert 100 * rate_of(system) == pytest.approx(20)


def test_nothing_that_fails() -> None:
    assert rate_of(failing("ab", [None, None, None])) == 0.0


@pytest.mark.parametrize("links", ["ab ac bc bd cd", "ab bc bd de"])
def test_what_is_left_out_is_little(links: str) -> None:
    """Against the simulation, in which brokers that were cut off are told what they have missed, and one that came back
    alone has little to tell; even where a fifth of all is down, and in a tree. Its interval has a half-width of 1 %."""
    system = failing(links, [(80, 20)] * (len(set(links) - {" "}) + len(links.split())))
    report = simulate_reliability(system, ["bypass"], runs=10, duration_s=50_000, warm_up_s=5000, seed=1)
    simulated = report.value("messages_per_event", scope="system", detail="link-state")
    assert rate_of(system) == pytest.approx(simulated, rel=0.03)
