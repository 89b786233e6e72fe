"""Outages as they were executed, read from a run made up by hand; and the simulation that goes through them again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from tests.measurement.test_overlay_figures import BEGAN, made_up
from tests.measurement.test_overlay_runs import system_of

from surecast.errors import ConfigurationError
from surecast.measurement.executed_outages import executed_outages, simulate_executed, system_as_executed
from surecast.measurement.overlay_processes import LinkChange
from surecast.measurement.workload_drive import Measured
from surecast.simulation.reliability.protocol import GivenPublication, GivenRun, Options, simulate_world


def flat(intervals: Sequence[tuple[float, float]]) -> list[float]:
    return [edge for interval in intervals for edge in interval]


def with_changes(measured: Measured, changes: dict[tuple[str, str], list[float]]) -> Measured:
    """Both ends of every link come up before the run; `changes` are those that a broker sees then, in turn."""
    names = [broker.name for broker in measured.plan.system.overlay.brokers]
    for link in measured.plan.system.overlay.links:
        for pair in ((names[link.a], names[link.b]), (names[link.b], names[link.a])):
            measured.link_changes.append(LinkChange(*pair, BEGAN - 5.0, True))
            for place, time_s in enumerate(changes.get(pair, ())):
                measured.link_changes.append(LinkChange(*pair, BEGAN + time_s, place % 2 == 1))
    measured.link_changes.sort(key=lambda change: change.time_s)
    return measured


def test_a_link_is_down_from_its_cut_until_both_ends_have_it_again() -> None:
    measured = made_up()
    measured.crashes.clear()
    measured.gate_changes += [(("b-1", "b-2"), BEGAN + 2.0, True), (("b-1", "b-2"), BEGAN + 5.0, False)]
    measured.gate_changes += [(("b-1", "b-3"), BEGAN + 6.0, True), (("b-1", "b-3"), BEGAN + 6.2, False)]
    with_changes(measured, {("b-1", "b-2"): [2.5, 5.4], ("b-2", "b-1"): [2.6, 5.5]})
    outages = executed_outages(measured)
    assert flat(outages.up["b-1--b-2"]) == pytest.approx([0.0, 2.0, 5.5, math.inf])
    assert outages.up["b-1--b-3"] == [(0.0, math.inf)], "a cut that nobody noticed broke nothing"
    assert outages.notices["b-1", "b-2"] == pytest.approx([2.5])
    assert outages.notices["b-2", "b-1"] == pytest.approx([2.6])
    assert outages.detection_s == pytest.approx(0.55)
    assert outages.availability("b-1--b-2") == pytest.approx(1.0 - 3.5 / 20.5)


def test_a_broker_is_down_until_its_publishers_are_back_and_its_links_until_they_are() -> None:
    measured = made_up()
    measured.crashes[:] = measured.crashes[:1]  # b-2, from 4 to 7 s
    measured.publisher_ups += [(1, BEGAN - 1.0), (1, BEGAN + 7.25), (0, BEGAN + 6.0)]
    with_changes(measured, {("b-1", "b-2"): [4.01, 7.5], ("b-2", "b-1"): [], ("b-4", "b-2"): [4.02, 7.1]})
    measured.link_changes += [LinkChange("b-2", "b-1", BEGAN + 7.5, True), LinkChange("b-2", "b-4", BEGAN + 7.3, True)]
    outages = executed_outages(measured)
    assert flat(outages.up["b-2"]) == pytest.approx([0.0, 4.0, 7.25, math.inf])
    assert flat(outages.up["b-1--b-2"]) == pytest.approx([0.0, 4.0, 7.5, math.inf])
    assert flat(outages.up["b-2--b-4"]) == pytest.approx([0.0, 4.0, 7.3, math.inf])
    assert outages.notices["b-4", "b-2"] == pytest.approx([4.02])


def test_what_is_predicted_from_a_run_has_its_availabilities() -> None:
    measured = made_up()
    measured.crashes[:] = measured.crashes[:1]
    with_changes(measured, {("b-1", "b-2"): [4.0, 7.0]})
    measured.link_changes += [LinkChange("b-2", "b-1", BEGAN + 8.0, True), LinkChange("b-2", "b-4", BEGAN + 7.0, True)]
    measured.cut = BEGAN + 20.0
    system = system_as_executed(measured)
    failures = {each.name: each.failures for each in system.overlay.brokers}
    assert failures["b-1"] is None
    assert failures["b-2"] is not None
    assert (failures["b-2"].mtbf_s, failures["b-2"].mttr_s) == pytest.approx((17.0, 3.0))
    # A link is down by itself only where both of its ends are up: here from 7 to 8 s.
    links = {each.name: each.failures for each in system.overlay.links}
    assert links["b-2--b-4"] is None
    assert links["b-1--b-2"] is not None
    assert (links["b-1--b-2"].mtbf_s, links["b-1--b-2"].mttr_s) == pytest.approx((19.0, 1.0))


def test_what_was_down_at_the_end_of_a_run_has_the_availability_of_the_run() -> None:
    measured = made_up()  # b-2 is down from 4 to 7 s and from 15 s to the end, b-3 all the time
    with_changes(measured, {})
    measured.cut = BEGAN + 20.0
    failures = {each.name: each.failures for each in system_as_executed(measured).overlay.brokers}
    assert failures["b-2"] is not None
    assert (failures["b-2"].mtbf_s, failures["b-2"].mttr_s) == pytest.approx((6.0, 4.0))
    assert failures["b-3"] is not None
    assert (failures["b-3"].mtbf_s, failures["b-3"].mttr_s) == pytest.approx((1.0, 20.0))


def test_the_simulation_of_a_run_loses_what_was_published_to_a_broker_that_was_down() -> None:
    measured = made_up(never=0)
    measured.crashes[:] = measured.crashes[:1]
    with_changes(measured, {("b-1", "b-2"): [4.0, 7.0], ("b-4", "b-2"): [4.0, 7.0]})
    measured.link_changes += [LinkChange("b-2", name, BEGAN + 7.0, True) for name in ("b-1", "b-4")]
    result = simulate_executed(measured)
    events = measured.plan.events
    stock = events.time_s[events.topic == 0]
    # All events get there through b-2 (buffering), in 2 s at most: those of its first second down come too late.
    missed = int(((stock >= 4.0) & (stock < 5.0)).sum())
    assert missed > 5
    assert result.published.tolist() == [len(stock), len(stock), len(events)]
    assert result.on_time.tolist()[:2] == [len(stock) - missed, len(stock)]
    assert result.digest == simulate_executed(measured).digest


@pytest.mark.parametrize(("keeps_sessions", "share"), [(False, 0.5), (True, 0.9)])
def test_a_given_broker_that_restarts_has_its_clients_back_where_their_sessions_last(
    keeps_sessions: bool, share: float
) -> None:
    system = system_of("none", "3s", refresh="end-to-end")
    home = system.overlay.brokers[system.publishers[0].home].name
    given = GivenRun(
        {home: [(0.0, 5.0), (6.0, math.inf)]},
        publications=[GivenPublication(0.1 * number, 0, 0) for number in range(100)],
        keeps_sessions=keeps_sessions,
    )
    result = simulate_world(system, "none", duration_s=10.0, seed=1, given=given, warm_up_s=0.0)
    there = [who.name for who in system.subscribers if who.home == system.publishers[0].home]
    assert there == ["near"]
    assert result.reliability[1] == pytest.approx(share)
    # Nobody else hears again of what is published there: without refreshes the restarted broker has lost its table.
    assert result.reliability[0] == pytest.approx(0.5)


@pytest.mark.parametrize("scheme", ["periodic-subscription", "buffering", "bypass", "bypass-buffering"])
def test_a_drawn_run_that_is_given_again_has_the_same_fates(scheme: str) -> None:
    availability = "{brokers: {mtbf: 20s, mttr: 5s}, links: {mtbf: 20s, mttr: 2s}}"
    system = system_of(scheme, "3s", availability=availability)
    options = Options(refresh_s=0.0, retransmission_s=0.0, detection_s=0.5, keeps_fates=True, drain_s=6.0)
    drawn = simulate_world(system, scheme, duration_s=60.0, seed=11, options=options)
    up: dict[str, list[tuple[float, float]]] = {}
    notices: dict[tuple[str, str], list[float]] = {}
    names = [broker.name for broker in system.overlay.brokers]
    edges: dict[str, list[float]] = {}
    for change in drawn.transitions:
        own = edges.setdefault(change.name, [])
        if change.time_s > 0.0:  # else it is down at the start
            own += [change.time_s] if own or change.up else [0.0, change.time_s]
    for name, own in edges.items():
        whole = own if len(own) % 2 == 0 else [*own, math.inf]
        up[name] = list(zip(whole[0::2], whole[1::2], strict=True))
    for link in system.overlay.links:
        a, b = names[link.a], names[link.b]
        breaks = sorted(end for name in (a, b, link.name) for _, end in up.get(name, ()) if end < math.inf)
        notices[a, b] = notices[b, a] = [moment + 0.5 for moment in breaks]
    publishers = {each.name: place for place, each in enumerate(system.publishers)}
    topics = {each.name: place for place, each in enumerate(system.topics)}
    events = sorted({fate.event for fate in drawn.fates}, key=lambda event: event.published_s)
    publications = [GivenPublication(e.published_s, publishers[e.publisher], topics[e.topic]) for e in events]
    again = simulate_world(
        system, scheme, duration_s=60.0, seed=12, options=options, given=GivenRun(up, notices, publications)
    )
    assert again.published.tolist() == drawn.published.tolist()
    assert again.on_time.tolist() == drawn.on_time.tolist()
    assert 0.2 < float(np.mean(drawn.reliability)) < 0.98


def test_a_given_run_with_a_wrong_name_or_order_is_refused() -> None:
    system = system_of("buffering")
    for up, complaint in (({"b-9": [(0.0, 1.0)]}, "no broker or link 'b-9'"), ({"b-1": [(2.0, 1.0)]}, "in order")):
        with pytest.raises(ConfigurationError, match=complaint):
            simulate_world(system, "buffering", duration_s=10.0, seed=1, given=GivenRun(up))
