"""Real processes and real clients, for a few seconds each."""

from __future__ import annotations

import itertools
import math
from typing import Protocol

import numpy as np
import pytest

from surecast.measurement import RunPlan
from surecast.measurement.measured_events import LOST
from surecast.measurement.workload_drive import Measured
from surecast.prediction import find_mechanisms, predict_capacity
from surecast.prediction.dropping import predict_dropping
from surecast.report import QoSReport, check_accounts

NAMES = ("crash", "group", "buffer", "expiring", "joining", "asking")
LONG_S = 5.0
"""A second of real time, at a scale of 5."""


class Runs(Protocol):
    """The fixture of the same name."""

    def __call__(self, name: str) -> tuple[RunPlan, QoSReport]: ...
    def measured(self, name: str) -> Measured: ...


@pytest.mark.parametrize("name", NAMES)
def test_the_accounts_balance_and_nothing_acknowledged_is_lost(runs: Runs, name: str) -> None:
    plan, report = runs(name)
    assert report.info.source == "measured"
    assert check_accounts(report) == []
    assert not [warning for warning in report.info.warnings if "accounts" in warning or "lost" in warning]
    for subscriber in plan.system.subscribers:
        assert report.value("count_dropped", name=subscriber.name, detail=LOST) == 0
        assert report.value("count_out_of_order", name=subscriber.name) == 0
        wanted = [i for i, topic in enumerate(plan.system.topics) if topic.name in subscriber.topics]
        published = np.isin(plan.events.topic, wanted) & (plan.events.time_s >= plan.warm_up_s)
        assert report.value("count_published", name=subscriber.name) == published.sum()


def test_what_is_published_while_the_broker_is_down_is_lost_and_nothing_else(runs: Runs) -> None:
    _, report = runs("crash")
    availability = report.value("availability", scope="broker", name="b")
    assert availability < 0.95
    for name in ("s", "all"):
        down = report.value("share_dropped", name=name, detail="home broker down")
        # By formula the reliability is the availability, where nothing is late; the events of a few seconds are few.
        assert 1.0 - down == pytest.approx(availability, abs=0.15)
        late = report.value("share_late", name=name) + report.value("share_dropped", name=name, detail="expired")
        assert report.value("reliability", name=name) + down + late == pytest.approx(1.0)
    assert report.figure("mtbf_s", scope="broker", name="b").samples == 1


def test_a_group_survives_its_leader(runs: Runs) -> None:
    plan, report = runs("group")
    variant = plan.group.label
    assert report.value("availability", scope="broker", name="b", variant=variant) < 1.0
    # Patient publishers get every event in; how soon depends on the machine.
    for name in ("s", "all"):
        assert report.value("share_dropped", name=name, detail="home broker down") == 0
        assert report.value("share_queued", name=name) == 0
    failover = report.figure("failover_mean_s", scope="broker", name="b", variant=variant)
    assert failover.samples == 1
    assert failover.value > plan.group.suspect_s / 2
    assert report.value("throughput_per_s", scope="broker", name="b", variant=variant) == pytest.approx(40, rel=0.3)


def test_a_broker_that_is_asked_for_a_target_decides_by_what_it_sees(runs: Runs) -> None:
    """What it sees in five seconds depends on the machine, and so does what it decides."""
    plan, report = runs("asking")
    view = runs.measured("asking").targets["s"]
    assert (view["asked_by"], view["target"]) == ("client", "a mean of 0.06 s")
    assert view["policy"] in ("none", "probabilistic")
    assert view["expected_s"] > 0
    assert report.value("failed_connected_share", name="s") == 0
    (note,) = [note for note in report.info.notes if "decided on" in note]
    assert f"join probability {plan.asked['s'].predicted.join_probability:.4g}" in note


def test_a_finite_buffer_keeps_what_fits(runs: Runs) -> None:
    plan, report = runs("buffer")
    published, expected = len(plan.events), _dropped_by_hand(runs.measured("buffer"), 4)
    dropped = report.value("count_dropped", name="s", detail="buffer full while disconnected")
    # What is left of one period may still be there in the next, if the one between them is short.
    assert dropped == pytest.approx(expected, abs=0.1 * published)
    assert report.value("buffer_size", name="s") == 4


def test_a_subscriber_is_connected_when_it_should_be(runs: Runs) -> None:
    plan, report = runs("buffer")
    measured = runs.measured("buffer")
    share = _on_share(measured)
    assert report.value("availability", scope="subscriber", name="s") == pytest.approx(share, abs=0.01)
    # The machine decides how late it comes and goes; but no long period is left out.
    first, times = plan.switches[0]
    edges = [0.0, *times[times < plan.end_s].tolist()]
    periods = [(bool(first) ^ bool(n % 2), *ends) for n, ends in enumerate(itertools.pairwise(edges))]
    long = [period for period in periods if period[2] - period[1] > LONG_S]
    assert long
    for is_on, begin_s, end_s in long:
        changes = [is_there for moment, is_there in _changes(measured) if begin_s < moment < end_s]
        assert _was_on(measured, begin_s) == is_on or is_on in changes
    assert 0.0 < share < 1.0


def test_what_waits_for_longer_than_its_lifetime_expires(runs: Runs) -> None:
    plan, report = runs("expiring")
    expected = _expired_by_hand(runs.measured("expiring"))
    assert expected > 0
    expired = report.value("count_dropped", name="s", detail="expired while disconnected")
    # At the edges of periods it is a matter of milliseconds what comes first.
    assert expired == pytest.approx(expected, abs=0.2 * len(plan.events))
    assert report.value("event_lifetime_s", name="s") == 3.0
    # The other subscriber is always there, so that nothing waits for it.
    assert report.value("count_dropped", scope="subscriber", name="wall", detail="") == 0
    assert report.value("count_published", scope="subscriber", name="wall") == len(plan.events)
    assert any(each.startswith("the lifetime of events holds for wall too") for each in report.info.warnings)


def test_clients_of_filter_classes_get_what_they_asked_for(runs: Runs) -> None:
    plan, report = runs("classes")
    assert report.variants == ("peer-to-peer covering",)
    assert not [warning for warning in report.info.warnings if "asked" in warning]
    predicted = predict_capacity(plan.system, ["peer-to-peer covering"])
    for metric, detail in (("rate_in_per_s", "notification"), ("table_entries", "local")):
        expected = predicted.value(metric, name="b", detail=detail)
        # 100 publications, and about 12 subscriptions at a time, half of them new: four standard deviations.
        assert report.value(metric, name="b", detail=detail) == pytest.approx(expected, rel=0.8)
    clients = report.values("throughput_per_s", scope="subscriber")
    assert sum(clients.values()) == pytest.approx(report.value("throughput_per_s"))
    assert sum(report.values("throughput_per_s", scope="class").values()) == pytest.approx(sum(clients.values()))


def test_a_join_probability_is_kept_as_predicted(runs: Runs) -> None:
    plan, report = runs("joining")
    join = report.figure("join_probability", scope="subscriber", name="s")
    assert join.value == pytest.approx(0.3, abs=4 * (0.21 / (join.samples or 1)) ** 0.5 + 0.05)
    predicted = predict_dropping(plan.system).value("success_share", name="s")
    away = _on_share(runs.measured("joining")) - 0.5  # the periods of a few seconds are not those of long times
    assert report.value("success_share", scope="subscriber", name="s") == pytest.approx(
        predicted + 0.7 * away, abs=0.15
    )
    assert find_mechanisms(plan.system)["s"].join_probability == 0.3


def test_measured_and_predicted_have_the_same_keys(runs: Runs) -> None:
    plan, report = runs("joining")
    predicted = predict_dropping(plan.system)
    missing = _keys(predicted) - _keys(report)
    # The service of the broker is the machine's; all else that is predicted is measured.
    assert {metric for _, _, _, metric, _ in missing} <= {"delay_quantile_s", "response_quantile_s"}


def _keys(report: QoSReport) -> set[tuple[str, ...]]:
    return {(f.variant, f.scope, f.name, f.metric, f.detail) for f in report}


def _changes(measured: Measured) -> list[tuple[float, bool]]:
    """Returns when subscriber `s` came (True) and went by the broker's log, in the scenario's time."""
    place = [each.name for each in measured.plan.system.subscribers].index("s")
    changes = measured.event_fates.changes[measured.receivers[place].client_id]
    return [((moment - measured.began) * measured.plan.scale, is_on) for moment, is_on in changes]


def _was_on(measured: Measured, time_s: float) -> bool:
    before = [is_on for moment, is_on in _changes(measured) if moment <= time_s]
    return bool(before) and before[-1]


def _on_share(measured: Measured) -> float:
    plan = measured.plan
    grid = np.linspace(plan.warm_up_s, plan.end_s, 4000, endpoint=False)
    moments = np.array([moment for moment, _ in _changes(measured)])
    are_on = np.array([False, *(is_on for _, is_on in _changes(measured))])
    return float(np.mean(are_on[np.searchsorted(moments, grid, side="right")]))


def _accepted_s(measured: Measured) -> list[float]:
    """Returns when the broker took each event over, in the scenario's time."""
    accepted = (measured.event_fates.accepted[number] for number in range(len(measured.plan.events)))
    return [(moment - measured.began) * measured.plan.scale for moment in accepted]


def _dropped_by_hand(measured: Measured, size: int) -> int:
    """Events beyond the first `size` of each disconnected period; what was queued is sent soon after its end."""
    held: dict[int, int] = {}
    changes, dropped = _changes(measured), 0
    for accepted_s in _accepted_s(measured):
        if not _was_on(measured, accepted_s):
            period = sum(moment <= accepted_s for moment, _ in changes)
            held[period] = held.get(period, 0) + 1
            dropped += held[period] > size
    return dropped


def _expired_by_hand(measured: Measured) -> int:
    """Events that came while `s` was away, and whose 3 s were over before it was back."""
    changes = [(-math.inf, False), *_changes(measured), (math.inf, False)]
    away = [(begin, end) for (begin, is_on), (end, _) in itertools.pairwise(changes) if not is_on]
    times = zip(_accepted_s(measured), measured.plan.events.time_s.tolist(), strict=True)
    return sum(
        any(begin <= accepted_s and published_s + 3.0 < end for begin, end in away) for accepted_s, published_s in times
    )
