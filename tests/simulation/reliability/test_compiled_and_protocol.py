"""The fast walk and the protocol code in virtual time are two implementations of one process: they agree."""

from __future__ import annotations

import numpy as np
import pytest

from surecast.report import QoSReport
from surecast.scenario import System, build, parse_text
from surecast.simulation import simulate_reliability
from surecast.simulation.reliability.protocol import Options, Transition, WorldResult, simulate_world

TEXT = """
surecast: 1
name: both
seed: 3
overlay:
  brokers: [{name: b, count: 5}]
  links: {build: random-graph, mean_degree: 3}
availability:
  brokers: {mtbf: 1500s, mttr: 120s}
  links: {mtbf: 900s, mttr: 60s}
workload:
  topics: [t, u]
  deadline: 90s
  publishers: [{name: p, home: b-1, topics: [t], rate: 1/30s}, {name: q, home: b-4, topics: [u], rate: 1/30s}]
  subscribers: [{name: s, count: 10, topics: [t]}, {name: r, count: 10, topics: [u]}]
delivery: {fault_tolerance: {refresh: end-to-end, refresh_interval: 30s, retransmission_interval: 2s}}
"""
SCHEMES = ["periodic-subscription", "buffering", "bypass", "bypass-buffering"]


@pytest.fixture(scope="module")
def system() -> System:
    return build(parse_text(TEXT))


@pytest.fixture(scope="module")
def pairs(system: System) -> dict[str, tuple[QoSReport, WorldResult]]:
    """Each scheme compiled and by nodes over the same failures: what differs is when events and refreshes come."""
    warm_up_s, end_s = 500.0, 22_000.0
    found = {}
    for scheme in SCHEMES:
        keeps = Options(keeps_fates=True)
        slow = simulate_world(system, scheme, duration_s=end_s, warm_up_s=warm_up_s, seed=6, options=keeps)
        extent = {"runs": 1, "duration_s": end_s - warm_up_s, "warm_up_s": warm_up_s}
        fast = simulate_reliability(system, [scheme], seed=6, traces=traces_of(system, slow.transitions), **extent)
        found[scheme] = (fast, slow)
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_give_every_subscriber_the_same_reliability(
    system: System, pairs: dict[str, tuple[QoSReport, WorldResult]], scheme: str
) -> None:
    fast, slow = pairs[scheme]
    compiled = fast.values("reliability", scope="subscriber", variant=scheme)
    names = [subscriber.name for subscriber in system.subscribers]
    assert list(compiled) == names
    differences = slow.reliability - np.array([compiled[name] for name in names])
    # 700 events of each topic: a subscriber's reliability given all failures is known to about 0.015, twice.
    assert abs(differences.mean()) < 0.03, (scheme, differences.mean())
    assert np.abs(differences).max() < 0.06, (scheme, differences)


KINDS = [("notification", 0.05), ("acknowledgement", 0.05), ("retransmission", 0.25), ("link-state", 0.0)]
"""With the relative difference allowed, on the same failures."""


@pytest.mark.parametrize(("kind", "tolerance"), KINDS)
def test_both_count_the_same_messages(
    pairs: dict[str, tuple[QoSReport, WorldResult]], kind: str, tolerance: float
) -> None:
    for scheme, (fast, slow) in pairs.items():
        found = list(fast.figures(scope="system", metric="messages_per_event", variant=scheme, detail=kind))
        compiled = found[0].value if found else 0.0
        sent = slow.messages.get(kind, 0) / slow.events_published
        assert sent == pytest.approx(compiled, rel=tolerance, abs=0.05), (scheme, kind)


def traces_of(system: System, transitions: tuple[Transition, ...]) -> dict[str, list[tuple[float, float]]]:
    """When each broker and link was up."""
    names = [broker.name for broker in system.overlay.brokers] + [link.name for link in system.overlay.links]
    since = dict.fromkeys(names, 0.0)
    traces: dict[str, list[tuple[float, float]]] = {name: [] for name in since}
    for change in transitions:
        if change.up:
            since[change.name] = change.time_s
        elif change.time_s > 0:
            traces[change.name].append((since.pop(change.name), change.time_s))
        else:
            del since[change.name]
    for name, start in since.items():
        traces[name].append((start, np.inf))
    return traces


@pytest.mark.parametrize(("brokers", "degree"), [(5, 3), (9, 2), (9, 4)])
def test_link_state_messages_are_equal_on_the_same_failures(brokers: int, degree: int) -> None:
    """The walk follows the protocol's views message by message: in graphs, and in one that failures cut to pieces."""
    text = TEXT.replace("count: 5", f"count: {brokers}").replace("mean_degree: 3", f"mean_degree: {degree}")
    system = build(parse_text(text))
    warm_up_s, end_s = 500.0, 10_000.0
    keeps = Options(keeps_fates=True)
    slow = simulate_world(system, "bypass", duration_s=end_s, warm_up_s=warm_up_s, seed=brokers, options=keeps)
    fast = simulate_reliability(
        system,
        ["bypass"],
        runs=1,
        duration_s=end_s - warm_up_s,
        warm_up_s=warm_up_s,
        seed=brokers,
        traces=traces_of(system, slow.transitions),
    )
    (figure,) = fast.figures(scope="system", metric="messages_per_event", detail="link-state")
    assert figure.samples is not None
    assert slow.messages["link-state"] > 1000
    assert round(figure.value * figure.samples) == slow.messages["link-state"]
