"""Constants from measurements: recovered where the measurements are the model's own, near where they are simulated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surecast.errors import ConfigurationError
from surecast.prediction.replication import Measurement, fit_costs, predict_measurement
from surecast.scenario.group import Group, GroupCosts
from surecast.simulation.replication import ClosedLoad, OpenLoad, simulate_group

TRUE = GroupCosts(45e-6, 12e-6, 3e-6, 25e-6, 1.5e-6)
FIELDS = ("instance_s", "peer_s", "publication_s", "follower_instance_s", "follower_publication_s")


def measured(row: Measurement) -> Measurement:
    found = predict_measurement(row, TRUE)
    return replace(
        row,
        acknowledged_per_s=found.throughput_per_s,
        p50_s=found.acknowledged_quantile_s(0.5),
        cpu_s=found.leader_cpu_s + (row.replicas - 1) * found.follower_cpu_s,
    )


def test_processor_time_is_that_of_the_instances_that_were_counted() -> None:
    """By hand: an instance of n replicas and k publications, divided by k."""
    rows = []
    for replicas in (1, 3, 5):
        for batch in (0.8, 3.0, 12.0):
            peers = replicas - 1
            # there are as many publishers as never fit the instances: the model would expect others
            row = Measurement(replicas, 40, batch=batch)
            instances_per_s = predict_measurement(row, TRUE).throughput_per_s / batch
            # half of the others are told at once, and half of several instances together
            next_s = TRUE.instance_s + peers / 2 * TRUE.peer_s + TRUE.publication_s
            next_s += TRUE.follower_instance_s + TRUE.follower_publication_s
            heard = peers / 2 * (1 + 1 / (1 + instances_per_s * (Group().lazy_delay_s + Group().timer_s - next_s)))
            leader_s = (TRUE.instance_s + heard * TRUE.peer_s) / batch + TRUE.publication_s
            followers_s = heard * TRUE.follower_instance_s / batch + peers * TRUE.follower_publication_s
            rows.append(replace(row, cpu_s=leader_s + followers_s, leader_cpu_s=leader_s))
    found = fit_costs(rows)
    for field in FIELDS:
        assert getattr(found.costs, field) == pytest.approx(getattr(TRUE, field), rel=0.01)
    with pytest.raises(ConfigurationError, match=r"rows\[0\].batch: 0"):
        fit_costs([Measurement(1, cpu_s=1e-5, batch=0.0)])


def test_the_constants_are_recovered_from_rows_of_the_model() -> None:
    rows = [
        measured(Measurement(replicas, publishers, window, think_s=5e-5, sync_s=sync_s))
        for replicas in (1, 3, 5)
        for publishers, window in ((1, 1), (50, 1), (50, 16))
        for sync_s in (0.0, 5e-4)
    ]
    found = fit_costs(rows)
    for field in FIELDS:
        assert getattr(found.costs, field) == pytest.approx(getattr(TRUE, field), rel=0.02)
    assert found.error < 0.01
    assert {name for _, name, _ in found.ratios} == {"acknowledged_per_s", "p50_s", "cpu_s"}


def test_the_constants_are_near_for_rows_of_the_real_code() -> None:
    # light load shows what an instance costs, a full window what a publication does
    rows = []
    for replicas in (1, 3, 5):
        light = Measurement(replicas, rate_per_s=200.0, delay_s=1e-4)
        full = Measurement(replicas, 50, 16, think_s=1e-4, delay_s=1e-4)
        for row, load, length_s in ((light, OpenLoad(200.0), 2.0), (full, ClosedLoad(50, 16, 1e-4), 0.03)):
            run = simulate_group(row.group(TRUE), load, duration_s=length_s, seed=4, drain_s=0.01)
            count = len(run.acknowledged_s)
            total = (run.leader_cpu_s + (replicas - 1) * run.follower_cpu_s) / count
            rows.append(replace(row, cpu_s=total, leader_cpu_s=run.leader_cpu_s / count))
    found = fit_costs(rows)
    for field in FIELDS:
        assert getattr(found.costs, field) == pytest.approx(getattr(TRUE, field), rel=0.3)
    assert found.error < 0.1


def test_what_the_rows_say_nothing_of_stays() -> None:
    found = fit_costs([measured(Measurement(1, publishers, 16, sync_s=5e-4)) for publishers in (1, 50)])
    assert found.costs.follower_instance_s == pytest.approx(GroupCosts().follower_instance_s)
    assert found.costs.publication_s == pytest.approx(TRUE.publication_s, rel=0.02)


def test_rows_without_or_with_impossible_figures_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="nothing was measured"):
        fit_costs([Measurement(3)])
    with pytest.raises(ConfigurationError, match=r"rows\[1\].cpu_s: -1"):
        fit_costs([Measurement(3, p50_s=1e-3), Measurement(3, cpu_s=-1)])
