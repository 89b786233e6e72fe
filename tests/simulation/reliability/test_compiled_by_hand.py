"""Small systems with traces made by hand, and outcomes worked out by hand (sections 4.1 to 4.5 of *reliability*)."""

from __future__ import annotations

import math

import pytest

from surecast.errors import ConfigurationError
from surecast.report import QoSReport, check_accounts
from surecast.scenario import Streams, System, build, parse_text
from surecast.simulation.reliability.compiled import simulate_reliability

SEED = 3
T0 = 100.0 * float(Streams(SEED).generator("run 0/phase", "p").random())
"""When p publishes first; again every 100 seconds."""
ALWAYS = [(0.0, math.inf)]
Traces = dict[str, list[tuple[float, float]]]


def triangle(lifetime: str = "30s") -> System:
    """a, b and c, all linked; the tree of the topic leads from a over b to c."""
    return build(
        parse_text(f"""
        surecast: 1
        name: triangle
        overlay:
          brokers: [{{name: a}}, {{name: b}}, {{name: c}}]
          links: [[a, b], [b, c], [a, c]]
          topic_trees: {{root: b}}
        workload:
          topics: [t]
          {f"deadline: {lifetime}" if lifetime else ""}
          publishers: [{{name: p, home: a, topics: [t], rate: 0.01/s}}]
          subscribers: [{{name: s, home: c, topics: [t]}}, {{name: near, home: a, topics: [t]}}]
        """)
    )


def down(*periods: tuple[float, float]) -> list[tuple[float, float]]:
    """Up but for these periods, which are relative to the first publication."""
    ends = [0.0, *(T0 + end for _, end in periods)]
    return list(zip(ends, [*(T0 + start for start, _ in periods), math.inf], strict=True))


def simulate(
    traces: Traces,
    scheme: str,
    *,
    lifetime: str = "30s",
    duration: float = 300.0,
    refresh: float = 0.0,
    wait: float = 0.0,
) -> QoSReport:
    report = simulate_reliability(
        triangle(lifetime),
        [scheme],
        runs=1,
        duration_s=duration,
        seed=SEED,
        refresh_interval_s=refresh,
        retransmission_interval_s=wait,
        traces=traces,
    )
    assert check_accounts(report) == []
    return report


def shares(report: QoSReport, name: str = "s") -> dict[str, object]:
    """The share of each outcome that occurs."""
    figures = [f for f in report.figures(scope="subscriber", name=name) if f.metric.startswith("share_")]
    return {f.detail or f.metric: pytest.approx(f.value) for f in figures if f.value > 0}


def test_the_first_publication_leaves_room_for_the_traces() -> None:
    assert 20 < T0 < 100


def test_without_failures_everything_arrives_at_once() -> None:
    for scheme in ("periodic-subscription", "buffering", "bypass", "bypass-buffering"):
        report = simulate({}, scheme, refresh=10.0)
        assert shares(report) == {"share_on_time": 1.0}
        assert report.value("delay_mean_s", name="s") == 0.0
        assert report.figure("reliability", name="s").samples == 3


def test_without_refresh_only_brokers_that_never_fail_deliver() -> None:
    """Section 4.1: a crash loses the entry for good, and the steady state is what counts."""
    report = simulate({"b": down((250, 251)), "a--b": down((99, 101))}, "none")
    assert shares(report) == {"no routing entry": 1.0}
    assert shares(report, "near") == {"share_on_time": 1.0}
    assert report.value("messages_per_event", detail="notification") == 1.0
    assert shares(simulate({"a--b": down((99, 101))}, "none")) == {"path down": 1 / 3, "share_on_time": 2 / 3}
    assert shares(simulate({"a": down((99, 101))}, "none")) == {"home broker down": 1 / 3, "no routing entry": 2 / 3}


def test_periodic_subscription_loses_what_meets_a_failure() -> None:
    """Section 4.2: the first event finds b down, the second the home; the third arrives."""
    report = simulate({"b": down((-5, 10)), "a": down((99, 101))}, "periodic-subscription")
    assert shares(report) == {"path down": 1 / 3, "home broker down": 1 / 3, "share_on_time": 1 / 3}
    assert shares(report, "near") == {"home broker down": 1 / 3, "share_on_time": 2 / 3}
    # The first event is sent to b in vain, the third to b and on to c.
    assert report.value("messages_per_event", detail="notification") == 1.0


def test_up_intervals_are_half_open() -> None:
    at_once = simulate({"b": down((-5, 0))}, "periodic-subscription", duration=T0 + 1)
    assert shares(at_once) == {"share_on_time": 1.0}
    gone = simulate({"b": down((0, 5))}, "periodic-subscription", duration=T0 + 1)
    assert shares(gone) == {"path down": 1.0}


def test_a_repaired_broker_waits_for_the_next_refresh() -> None:
    """Refreshes every 10 s: b was repaired before the first event, but has no entry if no refresh came since."""
    phase = 10.0 * float(Streams(SEED).generator("run 0/refresh", "t\0c").random())
    last = phase + math.floor((T0 - phase) / 10.0) * 10.0
    before, after = last - T0 - 0.5, (last - T0) / 2.0
    known = {"b": down((before - 3, before))}
    assert shares(simulate(known, "periodic-subscription", duration=T0 + 1, refresh=10.0)) == {"share_on_time": 1.0}
    unknown = {"b": down((before - 3, after))}
    assert shares(simulate(unknown, "periodic-subscription", duration=T0 + 1, refresh=10.0)) == {
        "no routing entry": 1.0
    }
    # A link that failed meanwhile does not lose the entry: it lasts for three refreshes.
    link = {"b--c": down((before - 3, after))}
    assert shares(simulate(link, "periodic-subscription", duration=T0 + 1, refresh=10.0)) == {"share_on_time": 1.0}
    long = {"b--c": down((before - 30, after))}
    assert shares(simulate(long, "periodic-subscription", duration=T0 + 1, refresh=10.0)) == {"no routing entry": 1.0}


WAITING: Traces = {"b": down((-5, 10)), "c": down((5, 15)), "b--c": down((12, 20)), "a--c": down((-5, 50))}


def test_buffering_waits_at_each_broker() -> None:
    """Section 4.3: at b after 10 s; b, link and c are all up again after 20 s."""
    report = simulate(WAITING, "buffering", duration=T0 + 1)
    assert shares(report) == {"share_on_time": 1.0}
    assert report.value("delay_mean_s", name="s") == pytest.approx(20.0)
    assert report.value("messages_per_event", detail="notification") == 2.0
    assert report.value("messages_per_event", detail="acknowledgement") == 2.0
    assert report.value("messages_per_event", detail="retransmission") == 2.0


def test_the_sender_must_be_up_too() -> None:
    """Eq. 7: all three on at the same time. a crashes while the event waits for b."""
    report = simulate({**WAITING, "a": down((8, 25))}, "buffering", duration=T0 + 1)
    assert report.value("delay_mean_s", name="s") == pytest.approx(25.0)


def test_retransmission_every_8_seconds() -> None:
    """a tries after 0, 8 and 16 s; b, from 16 s on, after 16 and 24 s."""
    report = simulate(WAITING, "buffering", duration=T0 + 1, wait=8.0)
    assert report.value("delay_mean_s", name="s") == pytest.approx(24.0)
    assert report.value("messages_per_event", detail="retransmission") == 3.0


def test_the_lifetime_ends() -> None:
    """Eq. 4, with its atom: a delay of exactly the lifetime is in time."""
    assert shares(simulate(WAITING, "buffering", duration=T0 + 1, lifetime="21s")) == {"share_on_time": 1.0}
    assert shares(simulate(WAITING, "buffering", duration=T0 + 1, lifetime="19s")) == {"expired": 1.0}


def test_what_is_still_buffered_at_the_end_is_queued() -> None:
    """Without a deadline an event can only be waiting; with one it is followed until its lifetime ends."""
    cut = {"b": [(0.0, T0 - 1)]}
    assert shares(simulate(cut, "buffering", duration=T0 + 1, lifetime="")) == {"share_queued": 1.0}
    assert shares(simulate(cut, "buffering", duration=T0 + 1, lifetime="1d")) == {"expired": 1.0}


def test_bypass_needs_any_way_through_the_graph() -> None:
    """Section 4.4: b is down for the first event, a--c too for the second, c for the third."""
    traces = {"b": down((-5, 150)), "a--c": down((90, 110)), "c": down((190, 210))}
    report = simulate(traces, "bypass")
    assert shares(report) == {"share_on_time": 1 / 3, "partitioned": 2 / 3}
    assert report.value("messages_per_event", detail="detour") == pytest.approx(1 / 3)
    assert report.value("messages_per_event", detail="notification") == 0.0


def test_bypass_with_buffering_tries_again_at_the_next_broker() -> None:
    """Section 4.5: cut off at first; at b after 10 s, where c is reached over a although b--c is down."""
    traces = {"b": down((-5, 10)), "a--c": down((-5, 8)), "b--c": down((-5, 25))}
    report = simulate(traces, "bypass-buffering", duration=T0 + 1)
    assert report.value("delay_mean_s", name="s") == pytest.approx(10.0)
    assert report.value("messages_per_event", detail="detour") == 2.0
    assert report.value("messages_per_event", detail="duplicate") == 1.0
    assert simulate(traces, "buffering", duration=T0 + 1).value("delay_mean_s", name="s") == pytest.approx(25.0)


def link_states(traces: Traces) -> float:
    report = simulate(traces, "bypass", duration=T0 + 20)
    return report.value("messages_per_event", detail="link-state")


def test_link_states_of_a_link() -> None:
    """a--b goes down: a and b each announce it, from a over c to b and from b over c to a. When it is back what each
    says of itself takes four messages; and both tell the other what they know besides, of two others."""
    assert link_states({"a--b": down((-5, 10))}) == 2 * 2 + 2 * 4 + 2 * 2


def test_link_states_of_a_broker() -> None:
    """b goes down: a tells c, c tells a. Once back it finds a, which it tells one state, and then c: both get another.
    a passes both on to c, and c the second one to a. What a and c say of themselves takes four messages each. Both tell
    b what else they know, of two others, of which b passes one on."""
    once = 2 + (1 + 2 + 2 + 1) + 2 * 4 + 2 * 2 + 1
    assert link_states({"b": down((-5, 10))}) == once
    assert link_states({"b": down((-5, 10), (12, 14))}) == 2 * once


def test_refresh_messages() -> None:
    """Refreshes from c go over b to a while all are up, those from a likewise."""
    for scheme in ("periodic-subscription", "buffering", "bypass", "bypass-buffering"):
        report = simulate({}, scheme, refresh=300.0)
        assert report.value("messages_per_event", detail="subscription") == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("traces", "complaint"),
    [
        ({"x": ALWAYS}, "no broker or link 'x'"),
        ({"b": [(5.0, 5.0)]}, "b: up intervals"),
        ({"b": [(5.0, 9.0), (8.0, 10.0)]}, "b: up intervals"),
        ({"b": [(math.nan, 9.0)]}, "b: up intervals"),
    ],
)
def test_wrong_traces_are_refused(traces: Traces, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        simulate(traces, "bypass")


def test_a_link_may_be_named_from_either_end() -> None:
    assert simulate({"b--a": down((-5, 10))}, "bypass").columns.equals(
        simulate({"a--b": down((-5, 10))}, "bypass").columns
    )
