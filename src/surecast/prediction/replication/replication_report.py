"""The report of the groups of a system by formula."""

from __future__ import annotations

import math
from collections.abc import Sequence

from surecast.prediction.replication.chain import GroupChain, group_chain
from surecast.prediction.replication.election_time import failover_s
from surecast.prediction.replication.performance import GroupPerformance, predict_open
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.distributions import Exponential
from surecast.scenario.group import Group, groups_of
from surecast.scenario.saturation import broker_rates_per_s, refuse_saturated_events
from surecast.scenario.system import System

__all__ = ["predict_replication"]

ELECTION_STAGES = 20
"""Elections vary little in length: their coefficient of variation is about that of so many stages."""
OFTEN = 0.05
"""Above this share of collisions the fast variant works as the classic one for much of the time."""


def predict_replication(system: System, *, quantiles: Sequence[float] = (0.5, 0.95)) -> QoSReport:
    """Returns latency, throughput, processor time and availability of each broker of a system as a group of replicas.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: one, overlay: {brokers: [{name: b}]}, availability: {brokers: {mtbf: 90s, mttr: 10s}},
    ...  workload: {topics: [t], publishers: [{name: p, home: b, topics: [t], rate: 10/s}]},
    ...  delivery: {replication: {replicas: 3}}}
    ... '''))
    >>> report = predict_replication(system)
    >>> round(report.value("availability", name="b"), 3)
    0.968
    """
    refuse_saturated_events(system)
    replication = system.delivery.replication
    builder = ReportBuilder.of_system(system, "predicted", replication=replication.model_dump(mode="json"))
    loads, groups = broker_rates_per_s(system), groups_of(system)
    for i, broker in enumerate(system.overlay.brokers):
        group = groups[i]
        if group is None:
            continue
        performance = predict_open(group, loads[i], f"broker {broker.name}")
        gap_s = failover_s(group, loads[i])
        _add_performance(builder, broker.name, group, performance, quantiles)
        if group.replicas > 1:
            builder.add("broker", broker.name, "failover_mean_s", gap_s, how="approximation", variant=group.label)
        chain = _chain(group, gap_s)
        if chain is not None:
            _add_availability(builder, broker.name, group, chain, gap_s, quantiles)
    for sentence in left_out(system, "the model of groups"):
        builder.leave_out(sentence)
    builder.note(
        "replication: publications at random; times of processors, disks and links are constant; all replicas are up, "
        "as fewer change the latency little"
    )
    return builder.build()


def _chain(group: Group, gap_s: float) -> GroupChain | None:
    """Returns the group's chain, with elections in many stages where that has few states."""
    failures = group.failures
    if failures is None or not all(isinstance(law, Exponential) for law in (failures.up, failures.down)):
        return group_chain(group, gap_s)
    return group_chain(group, gap_s, ELECTION_STAGES)


def _add_performance(
    builder: ReportBuilder, name: str, group: Group, performance: GroupPerformance, quantiles: Sequence[float]
) -> None:
    def add(metric: str, value: float, detail: str = "", how: str = "approximation") -> None:
        if math.isfinite(value):
            builder.add("broker", name, metric, value, how=how, detail=detail, variant=group.label)

    add("throughput_per_s", performance.throughput_per_s, how="exact")
    add("capacity_per_s", performance.capacity_per_s)
    add("utilisation", performance.utilisation)
    add(
        "headroom_factor",
        performance.capacity_per_s / performance.throughput_per_s if performance.throughput_per_s else math.inf,
    )
    add("batch_size_mean", performance.batch_mean)
    add("acknowledgement_mean_s", performance.acknowledged_mean_s)
    for q in quantiles:
        add("acknowledgement_quantile_s", performance.acknowledged_quantile_s(q), f"p{100 * q:.10g}")
    add("cpu_per_event_s", performance.leader_cpu_s, "leader")
    if group.replicas > 1:
        add("commit_delay_mean_s", performance.commit_mean_s)
        add("cpu_per_event_s", performance.follower_cpu_s, "follower")
    add("cpu_per_event_s", performance.leader_cpu_s + (group.replicas - 1) * performance.follower_cpu_s)
    if performance.collisions > OFTEN:
        builder.warn(
            f"broker {name}: replicas propose in the same instance {performance.collisions:.0%} of the time; the fast "
            "variant then goes classic for a while, which the formulas leave out: write entry: leader, or variant: "
            "multi, under delivery.replication"
        )
    if group.service is not None and group.service.squared_cv > 0:
        builder.warn(
            f"broker {name}: quantiles of the acknowledgement time are those of constant service times; "
            "its mean counts their variation"
        )


def _add_availability(
    builder: ReportBuilder, name: str, group: Group, chain: GroupChain, gap_s: float, quantiles: Sequence[float]
) -> None:
    def add(metric: str, value: float, detail: str = "") -> None:
        how = "exact" if chain.is_exact and group.replicas == 1 else "approximation"
        builder.add("broker", name, metric, value, how=how, detail=detail, variant=group.label)

    add("availability", chain.availability)
    add("mtbf_s", chain.up_mean_s)
    add("mttr_s", chain.down_mean_s)
    for q, length_s in zip(quantiles, chain.down_quantiles_s(quantiles), strict=True):
        add("outage_quantile_s", length_s, f"p{100 * q:.10g}")
    if group.replicas > 1:
        builder.note(
            f"broker {name}: an election of {gap_s:.3g} s on average follows the failure of a leader and "
            "the return of a majority"
        )
