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
from surecast.protocol.overlay.overlay_frames import NodeState
from surecast.protocol.overlay.overlay_plan import OverlayPlan
from surecast.protocol.overlay.overlay_view import OverlayView
from surecast.protocol.overlay.plan_of_system import plan_of_system
from surecast.scenario import Failures, System, build, parse_distribution, parse_text
from surecast.simulation import simulate_reliability

Frame = tuple[str, str, tuple[NodeState, ...]]
"""Sender, receiver and states; without states it is the first that the receiver hears on a new connection."""


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
        self.plan: OverlayPlan = plan_of_system(system)
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

    def views(self, down: set[str]) -> dict[str, OverlayView]:
        views = {}
        for name in self.names:
            view = views[name] = OverlayView(name, self.plan, 1)
            if name not in down:
                for other in self.plan.neighbours(name):
                    view.link_changed(other, is_up=self.reach(name, other, down))
                for origin in self.names:
                    view.take(NodeState(origin, 0, 1, ()))
        return views

    def messages(self, name: str, before: set[str]) -> int:
        """Sent until all is quiet after one component has changed."""
        views, down, up = self.views(before), before ^ {name}, name in before
        joined = {a: [b for b in self.plan.neighbours(a) if self.reach(a, b, before)] for a in self.names}
        if name in views:
            views[name] = OverlayView(name, self.plan, 2)
        queue: deque[Frame] = deque()
        pairs = [(a, b) for a, b in self.links if self.reach(a, b, before) != self.reach(a, b, down)]
        pairs.sort(key=lambda pair: (pair[1] if pair[0] == name else pair[0], pair))
        if not up:
            for a, b in pairs:
                joined[a].remove(b)
            for a, b in pairs:
                state = views[a].link_changed(b, is_up=False)
                queue.extend((a, to, (state,)) for to in joined[a] if a not in down)
        queue.extend((b, a, ()) for a, b in pairs if up)
        sent = 0
        while queue:
            sender, to, states = queue.popleft()
            sent += len(states)
            assert self.reach(sender, to, down)
            queue.extend(self.taken(views[to], sender, states, joined[to]))
        return sent

    def taken(self, view: OverlayView, sender: str, states: tuple[NodeState, ...], joined: list[str]) -> list[Frame]:
        """What a broker says to what it heard."""
        if not states:
            joined.append(sender)
            state = view.link_changed(sender, is_up=True)
            return [(view.broker, to, view.states if to == sender else (state,)) for to in sorted(joined)]
        news = tuple(state for state in states if view.take(state))
        return [(view.broker, to, news) for to in sorted(joined) if news and to != sender]


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
    """a--b--c with a--b failing. It goes down: b tells c. It is back: a tells b, and b tells a and c; a and b tell each
    other what they know besides, which is of two others; b passes on to c what a says of itself."""
    system = failing("ab bc", [None, None, None, (90, 10), None])
    assert 100 * rate_of(system) == pytest.approx(1 + 3 + 4 + 1)


def test_one_broker_by_hand() -> None:
    """The triangle of test_compiled_by_hand.py, in which nothing but b fails. It goes down: a and c tell each other. It
    is back: 6 for its own two states, 8 for those of a and c, and 5 for what the three tell each other besides."""
    system = failing("ab bc ac", [None, (90, 10), None, None, None, None])
    assert 100 * rate_of(system) == pytest.approx(2 + 6 + 8 + 5)


def test_nothing_that_fails() -> None:
    assert rate_of(failing("ab", [None, None, None])) == 0.0


@pytest.mark.parametrize("links", ["ab ac bc bd cd", "ab bc bd de"])
def test_what_is_left_out_is_little(links: str) -> None:
    """Against the simulation, in which brokers that were cut off are told what they have missed, and one that came back
    alone has little to tell; even where a fifth of all is down, and in a tree. Its interval has a half-width of 1 %."""
    system = failing(links, [(80, 20)] * (len(set(links) - {" "}) + len(links.split())))
    report = simulate_reliability(system, ["bypass"], runs=10, duration_s=50_000, warm_up_s=5000, seed=1)
    simulated = report.value("messages_per_event", scope="system", detail="link-state")
    assert rate_of(system) == pytest.approx(simulated, rel=0.06)
