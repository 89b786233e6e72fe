"""The capacity of a system whose day falls into periods, each in its own steady state.

The capacity paper captures correlated clients so (section 5): where all B follow within ten minutes of an A that comes
once an hour, the system is predicted with the rate of B in these ten minutes, not with that of the hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.capacity.capacity_report import predict_capacity
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.build.classes import RatePeriod
from surecast.scenario.system import System

__all__ = ["predict_periods"]

_Key = tuple[str, str, str, str]
_Figures = dict[_Key, tuple[float, str]]

_TIME_MEAN: Final = frozenset(
    (
        "message_rate_per_s",
        "rate_in_per_s",
        "table_entries",
        "throughput_per_s",
        "traffic_per_s",
        "utilisation",
    )
)
_WORST: Final = {
    "headroom_factor": min,
    "notification_delay_worst_s": max,
    "subscription_delay_worst_s": max,
    "targets_met_share": min,
}
_MESSAGE_MEAN: Final = frozenset(
    ("delay_mean_s", "notification_delay_latest_s", "waiting_averaged_s", "waiting_mean_s")
)
_MESSAGES: Final = {
    "broker": "rate_in_per_s",
    "class": "throughput_per_s",
    "overlay_link": "traffic_per_s",
    "physical_link": "traffic_per_s",
    "router": "traffic_per_s",
    "subscriber": "throughput_per_s",
    "system": "throughput_per_s",
}


def predict_periods(
    system: System,
    periods: Sequence[RatePeriod],
    algorithms: Sequence[str] | None = None,
    *,
    shared_directions: bool = True,
    by_client: bool = True,
) -> QoSReport:
    """Returns the capacity of a system in each period, and over all of them.

    Each algorithm is a variant for the whole time, and one more for every period, named `algorithm, period`. Over all
    periods rates, tables and utilisation are means over time, mean delays are means over messages, and worst-path
    delays and headroom are those of the worst period. Quantiles are given by period only. An algorithm that is
    overloaded in a period has no delays over all, and a warning names the period.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: pair
    ... overlay: {brokers: [{name: a, capacity: 1.5/s}, {name: b, capacity: 1.5/s}], links: [[a, b]]}
    ... workload:
    ...   classes: [B]
    ...   clients: [{name: x, home: a}, {name: y, home: b}]
    ...   subscriptions: {active: 20, lifetime: 100000s}
    ...   publications: 600/h
    ... '''))
    >>> follow = RatePeriod("after A", 1 / 6, np.array([6.0]), np.array([1.0]))
    >>> quiet = RatePeriod("quiet", 5 / 6, np.array([0.0]), np.array([1.0]))
    >>> report = predict_periods(system, [follow, quiet], ["flooding"])
    >>> for variant in report.variants:
    ...     print(f"{variant}: {report.value('utilisation', name='a', variant=variant):.2f}")
    flooding: 0.11
    flooding, after A: 0.67
    flooding, quiet: 0.00
    """
    _check(system, periods)
    reports = [
        predict_capacity(_during(system, period), algorithms, shared_directions=shared_directions, by_client=by_client)
        for period in periods
    ]
    builder = ReportBuilder.of_system(
        system, "predicted", **reports[0].info.parameters, periods={period.name: period.share for period in periods}
    )
    for algorithm in reports[0].variants:
        _add_whole(builder, algorithm, periods, reports)
        for period, report in zip(periods, reports, strict=True):
            for figure in report.figures(variant=algorithm):
                builder.add(
                    figure.scope,
                    figure.name,
                    figure.metric,
                    figure.value,
                    how=figure.how,
                    detail=figure.detail,
                    variant=f"{algorithm}, {period.name}",
                )
    _add_texts(builder, periods, reports)
    return builder.build()


def _check(system: System, periods: Sequence[RatePeriod]) -> None:
    workload = system.class_workload
    if workload is None:
        raise AssumptionError(f"{system.name} has no filter classes: periods belong to workload.classes")
    names = [period.name for period in periods]
    if not periods or len(set(names)) < len(names):
        raise ConfigurationError("give one period or more, with different names")
    total = sum(period.share for period in periods)
    if abs(total - 1.0) > 1e-9:
        raise ConfigurationError(f"the shares of the periods sum to {total:g}; they must sum to 1")
    for period in periods:
        for factors in (period.publications, period.subscriptions):
            if factors.shape != (len(workload.classes),) or not (np.isfinite(factors) & (factors >= 0)).all():
                raise ConfigurationError(
                    f"period {period.name} needs a factor of 0 or more for each of the {len(workload.classes)} classes"
                )


def _during(system: System, period: RatePeriod) -> System:
    """Returns the system as if the period lasted forever."""
    workload = system.class_workload
    assert workload is not None  # checked before
    changed = replace(
        workload,
        publication_rate_per_s=workload.publication_rate_per_s * period.publications[:, None],
        subscription_rate_per_s=workload.subscription_rate_per_s * period.subscriptions[:, None],
    )
    return replace(system, class_workload=changed)


def _add_whole(
    builder: ReportBuilder, algorithm: str, periods: Sequence[RatePeriod], reports: Sequence[QoSReport]
) -> None:
    """Adds the figures of an algorithm over all periods."""
    by_period: list[_Figures] = [
        {
            (figure.scope, figure.name, figure.metric, figure.detail): (figure.value, figure.how)
            for figure in report.figures(variant=algorithm)
        }
        for report in reports
    ]
    stable = [all(value < 1 for key, (value, _) in each.items() if key[2] == "utilisation") for each in by_period]
    for key in dict.fromkeys(key for each in by_period for key in each):
        value = _combined(key, periods, by_period, all(stable))
        if value is not None:
            how = next(each[key][1] for each in by_period if key in each)
            scope, name, metric, detail = key
            builder.add(scope, name, metric, value, how=how, detail=detail, variant=algorithm)
    overloaded = [period.name for period, fine in zip(periods, stable, strict=True) if not fine]
    if overloaded:
        builder.warn(f"{algorithm}: overloaded in period {' and '.join(overloaded)}, so there are no delays over all")
        return
    mean = ("system", "", "delay_mean_s", "")
    delays = [(each[mean][0], period.name) for each, period in zip(by_period, periods, strict=True) if mean in each]
    if delays:
        value, name = max(delays)
        builder.note(f"{algorithm}: the period with the longest mean delay is {name}, {value:.4g} s")


def _combined(key: _Key, periods: Sequence[RatePeriod], by_period: Sequence[_Figures], stable: bool) -> float | None:
    """Returns one figure over all periods; None where there is none."""
    scope, name, metric, _ = key
    there = [(period.share, each) for period, each in zip(periods, by_period, strict=True) if key in each]
    if metric in _TIME_MEAN:
        return sum(share * each[key][0] for share, each in there)
    delay = metric.endswith("_s") and not metric.endswith("_per_s")
    if delay and not stable:
        return None
    if metric in _WORST:
        return _WORST[metric](each[key][0] for _, each in there)
    if metric not in _MESSAGE_MEAN:
        return None
    messages = (scope, name, _MESSAGES[scope], "")
    weights = [share * each[messages][0] for share, each in there]
    if not sum(weights):
        return None
    return sum(weight * each[key][0] for weight, (_, each) in zip(weights, there, strict=True)) / sum(weights)


def _add_texts(builder: ReportBuilder, periods: Sequence[RatePeriod], reports: Sequence[QoSReport]) -> None:
    """Notes and warnings of the periods; those about an algorithm, and all warnings, name their period."""
    for period, report in zip(periods, reports, strict=True):
        starts = tuple(f"{algorithm}: " for algorithm in report.variants)
        for text in report.info.notes:
            builder.note(f"period {period.name}: {text}" if text.startswith(starts) else text)
        for text in report.info.warnings:
            builder.warn(f"period {period.name}: {text}" if text.startswith(starts) else text)
    builder.note(
        "each period is predicted in its own steady state, so it should last much longer than a subscription; over all "
        "periods mean delays are means over messages, and worst-path delays and headroom are those of the worst period"
    )
