"""Real processes and real clients, for a few seconds each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from surecast.measurement import RunPlan
from surecast.measurement.measured_events import LOST
from surecast.prediction import find_mechanisms, predict_capacity
from surecast.prediction.dropping import predict_dropping
from surecast.report import QoSReport, check_accounts

Runs = Callable[[str], tuple[RunPlan, QoSReport]]

NAMES = ("crash", "group", "buffer", "expiring", "joining")


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
        # By formula the reliability is the availability; the events of a few seconds are few.
        assert report.value("reliability", name=name) == pytest.approx(availability, abs=0.15)
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


def test_a_finite_buffer_keeps_what_fits(runs: Runs) -> None:
    plan, report = runs("buffer")
    published, expected = len(plan.events), _dropped_by_hand(plan, 4)
    dropped = report.value("count_dropped", name="s", detail="buffer full while disconnected")
    # At the edges of periods it is a matter of milliseconds who comes first.
    assert dropped == pytest.approx(expected, abs=0.1 * published)
    assert report.value("buffer_size", name="s") == 4
    assert report.value("availability", scope="subscriber", name="s") == pytest.approx(_on_share(plan), abs=0.1)


def test_what_waits_for_longer_than_its_lifetime_expires(runs: Runs) -> None:
    plan, report = runs("expiring")
    times, expected = plan.switches[0][1], 0
    for at in plan.events.time_s.tolist():
        ends = [end for end in times.tolist() if end > at]
        expected += not _is_on(plan, at) and min(ends[0], plan.end_s) - at > 3.0
    expired = report.value("count_dropped", name="s", detail="expired while disconnected")
    assert expected > 0
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
    away = _on_share(plan) - 0.5  # the periods of a few seconds are not those of long times
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


def _is_on(plan: RunPlan, time_s: float) -> bool:
    first, times = plan.switches[0]
    return bool(first) ^ bool(np.count_nonzero(times <= time_s) % 2)


def _on_share(plan: RunPlan) -> float:
    grid = np.linspace(plan.warm_up_s, plan.end_s, 4000, endpoint=False)
    return float(np.mean([_is_on(plan, at) for at in grid]))


def _dropped_by_hand(plan: RunPlan, size: int) -> int:
    """Events beyond the first `size` of each disconnected period; what was queued is sent soon after its end."""
    held: dict[int, int] = {}
    times, dropped = plan.switches[0][1], 0
    for at in plan.events.time_s.tolist():
        if not _is_on(plan, at):
            period = int(np.count_nonzero(times <= at))
            held[period] = held.get(period, 0) + 1
            dropped += held[period] > size
    return dropped
