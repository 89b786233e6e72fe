"""Figures of delays in the capacity report, beyond the worst paths: by client and class, and the latest delivery."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.capacity.averaging import OVERLOADED_MAX, Averaged
from surecast.prediction.capacity.client_delays import QUANTILES, ReceivedDelays, ReceivedRates
from surecast.prediction.capacity.latest import LatestDelivery
from surecast.report import ReportBuilder
from surecast.scenario.system import ClassWorkload, System

__all__ = ["add_latest", "add_received", "warn_of_averaging"]

Array = NDArray[np.float64]

_UNDERESTIMATED = 1.2


def add_received(
    builder: ReportBuilder,
    workload: ClassWorkload,
    audience: ReceivedRates,
    delays: ReceivedDelays,
    algorithm: str,
    by_client: bool,
) -> None:
    """Rates, means and quantiles of what is received: in all, and by client and class where wanted."""
    if by_client:
        names = tuple(workload.clients), tuple(each.name for each in workload.classes)
        quantiles = delays.client_quantile_s, delays.class_quantile_s
        _add_rows(
            builder, "subscriber", names[0], audience.client_rate_per_s, delays.client_mean_s, quantiles[0], algorithm
        )
        _add_rows(builder, "class", names[1], audience.class_rate_per_s, delays.class_mean_s, quantiles[1], algorithm)
    total = float(audience.class_rate_per_s.sum())
    builder.add("system", "", "throughput_per_s", total, how="exact", variant=algorithm)
    if total > 0:
        builder.add("system", "", "delay_mean_s", delays.mean_s, how="approximation", variant=algorithm)
        for detail, value in zip(QUANTILES, delays.quantile_s, strict=True):
            builder.add("system", "", "delay_quantile_s", value, how="approximation", detail=detail, variant=algorithm)


def _add_rows(
    builder: ReportBuilder,
    scope: str,
    names: Sequence[str],
    rate: Array,
    mean: Array,
    quantiles: Array,
    algorithm: str,
) -> None:
    """Adds one row for each name; a component that receives nothing has no delay."""
    builder.add_many(scope, names, "throughput_per_s", rate, how="exact", variant=algorithm)
    some = rate > 0
    builder.add_many(scope, names, "delay_mean_s", mean, how="approximation", variant=algorithm, where=some)
    for column, detail in enumerate(QUANTILES):
        values = quantiles[:, column]
        builder.add_many(
            scope, names, "delay_quantile_s", values, how="approximation", detail=detail, variant=algorithm, where=some
        )


def add_latest(builder: ReportBuilder, latest: LatestDelivery | None, algorithm: str) -> None:
    """Adds the expected latest delivery by each approximation; the best one has no detail."""
    if latest is None:
        return
    for detail, value in (
        ("", latest.branches_s),
        ("mean-path", latest.mean_path_s),
        ("worst-path", latest.worst_path_s),
    ):
        if value is not None:
            builder.add(
                "system",
                "",
                "notification_delay_latest_s",
                value,
                how="approximation",
                detail=detail,
                variant=algorithm,
            )
    if latest.branches_s is None:
        builder.note("links times classes are too many for the mean of the latest delivery; its approximations remain")


def warn_of_averaging(
    builder: ReportBuilder, system: System, algorithm: str, plain_s: Array, averaged: Averaged
) -> None:
    """Says where the delays, which are those at mean rates, are far from those over the sets of subscriptions."""
    intro = f"{algorithm}: delays are underestimated: the traffic follows the set of active subscriptions, "
    names = [broker.name for broker in system.overlay.brokers]
    worst = int(averaged.overloaded_share.argmax())
    if averaged.overloaded_share[worst] > OVERLOADED_MAX:
        builder.warn(
            f"{intro}which overloads broker {names[worst]} for {averaged.overloaded_share[worst]:.2g} of the time"
        )
        return
    ratio = np.divide(averaged.waiting_s, plain_s, out=np.ones_like(plain_s), where=plain_s > 0)
    worst = int(ratio.argmax())
    if ratio[worst] > _UNDERESTIMATED:
        builder.warn(
            f"{intro}and over these a message waits {averaged.waiting_s[worst]:.3g} s at broker {names[worst]} in the "
            f"mean, not {plain_s[worst]:.3g} s as at mean rates"
        )
