"""The stage of the overlay without processes: its checks find faults, and its formula takes the outages of the run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surecast import predict
from surecast.tour.overlay import overlay_verdicts, with_faults
from surecast.tour.overlay_clients import ArrivedEvent, OverlayFaults, OverlayWatch
from surecast.tour.scenarios import load_scenario


def watch() -> OverlayWatch:
    """Ten events that both subscribers got, in a run in which a broker was away for a quarter of the time."""
    return OverlayWatch(
        OverlayFaults("north", ("west", "north"), 2.0, 1.5),
        killed_s=2.0, back_s=5.0, cut_s=7.0, opened_s=9.0, ended_s=12.0,
        sent_s=[float(number) for number in range(10)],
        acknowledged=set(range(10)),
        arrived={name: [ArrivedEvent(number, number + 0.01) for number in range(10)] for name in ("desk", "van")},
    )  # fmt: skip


def test_a_sound_run_holds() -> None:
    assert [verdict.holds for verdict in overlay_verdicts(watch())] == [True, True]


def test_an_acknowledged_event_that_is_missing_at_one_subscriber_is_found() -> None:
    run = watch()
    del run.arrived["van"][4]
    assert [verdict.holds for verdict in overlay_verdicts(run)] == [False, True]
    assert "0 at desk, 1 at van" in overlay_verdicts(run)[0].evidence


def test_an_event_that_was_not_acknowledged_may_be_missing() -> None:
    run = watch()
    run.acknowledged.remove(4)
    del run.arrived["van"][4]
    assert overlay_verdicts(run)[0].holds


def test_an_event_that_came_twice_is_found() -> None:
    run = watch()
    run.arrived["desk"].append(ArrivedEvent(3, 3.5))
    assert [verdict.holds for verdict in overlay_verdicts(run)] == [True, False]


def test_the_formula_has_the_outages_of_the_run() -> None:
    system = with_faults(load_scenario("diamond").system, watch())
    failing = {broker.name: broker.failures for broker in system.overlay.brokers if broker.failures}
    assert list(failing) == ["north"]
    assert failing["north"].availability == pytest.approx(9 / 12)
    assert failing["north"].mttr_s == pytest.approx(3.0)
    cut = [link for link in system.overlay.links if link.failures]
    assert [(link.name, link.failures.availability) for link in cut if link.failures] == [
        ("west--north", pytest.approx(10 / 12))
    ]
    shares = {
        row.name: row.value
        for row in predict(system, schemes=["none"]).select(scope="subscriber", metric="reliability")
    }
    # Without any scheme the desk needs the broker and the link, and loses what was on its way into either.
    assert shares["desk"] == pytest.approx(9 / 12 * 10 / 12, abs=0.05)
    assert shares["van"] == 1.0


def test_other_times_of_the_run_change_the_formula() -> None:
    system = load_scenario("diamond").system
    longer = with_faults(system, replace(watch(), back_s=6.5))
    failures = next(broker.failures for broker in longer.overlay.brokers if broker.failures)
    assert failures.mttr_s == pytest.approx(4.5)
