"""Predict: what each subscriber gets in time under every fault-tolerance scheme, and what to drop for who is away."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from surecast import predict
from surecast.prediction import POLICIES
from surecast.studio.chart import Axis, Chart, Layer, Line, Points, RuleLine
from surecast.studio.page import Cell, Table, plain_values
from surecast.studio.wording import percent
from surecast.tour.scenarios import load_scenario
from surecast.tour.stage_content import (
    Block,
    Key,
    Picture,
    SavedTable,
    StageOutcome,
    Text,
    Tile,
    TourContext,
    picture,
    share,
)

if TYPE_CHECKING:
    from surecast.report import QoSReport
    from surecast.scenario import System

__all__ = ["SCHEMES_SHOWN", "predict_stage"]

SCHEMES_SHOWN: Final = ("periodic-subscription", "buffering", "bypass", "bypass-buffering")
_RATES: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0)
_QUICK_RATES: Final = (0.5, 1.0, 2.0, 4.0, 6.0)
_NAME: Final = "subscriber"


def predict_stage(context: TourContext) -> StageOutcome:
    """Predicts reliability in an overlay whose parts fail, and dropping for a subscriber that disconnects at times."""
    overlay = load_scenario("reliability-graph").system
    context.show("on-time reliability of each subscriber", 0, 0)
    reliability = predict(overlay, schemes=SCHEMES_SHOWN)
    shares = {scheme: _shares(reliability, scheme) for scheme in SCHEMES_SHOWN}
    commuter = load_scenario("dropping").system
    rates = _QUICK_RATES if context.quick else _RATES
    reports: list[QoSReport] = []
    for done, rate_per_s in enumerate(rates):
        context.show("drop policies", done, len(rates))
        reports.append(predict(_at_rate(commuter, rate_per_s), policies=POLICIES))
    now = reports[rates.index(2.0)]
    weak, strong = float(shares[SCHEMES_SHOWN[0]].mean()), float(shares[SCHEMES_SHOWN[-1]].mean())
    none_s = _figure(now, "delay_mean_s", "none")
    best = max((p for p in now.variants if p != "none"), key=lambda p: _figure(now, "success_share", p))
    lead = (
        f"Brokers fail for hours and links for minutes. By formula, {len(overlay.subscribers)} subscribers get "
        f"{percent(weak)} of their events in time with periodic subscription alone, and {percent(strong)} with bypass "
        f"and buffering. And a subscriber that is connected half of the time would wait {none_s:.1f} s for an event on "
        f"average; to keep it at 7 s, {best} loses least and still delivers "
        f"{share(_figure(now, 'success_share', best), 0)}."
    )
    tiles = (
        Tile("in time, weakest scheme", percent(weak), SCHEMES_SHOWN[0]),
        Tile("in time, strongest scheme", percent(strong), SCHEMES_SHOWN[-1]),
        Tile("figures computed", f"{len(reliability) + sum(map(len, reports)):,}", "without one simulated event"),
        Tile(
            "delivered within the target",
            f"{share(_figure(now, 'success_share', best), 0)}",
            f"{best}, mean of 7 s kept",
        ),
    )
    blocks: tuple[Block, ...] = (
        _schemes(shares, [s.name for s in overlay.subscribers]),
        _scheme_table(reliability, shares),
        Text(
            "A phone in a pocket is away half of the time. What is published meanwhile waits at the broker, and what "
            "waits makes all that follows later. Each policy below drops just as much as it must to keep the mean "
            "response time at 7 s.",
            "Subscribers that come and go",
        ),
        _policies(rates, reports),
        _policy_table(now),
    )
    key: Key = {
        "subscribers": len(overlay.subscribers),
        **{f"reliability {scheme}": float(values.mean()) for scheme, values in shares.items()},
        "response_without_dropping_s": none_s,
        "best_policy": best,
        "best_policy_delivers": _figure(now, "success_share", best),
    }
    return StageOutcome(lead, tiles, blocks, key)


def _shares(report: QoSReport, scheme: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    chosen = report.select(scope="subscriber", metric="reliability", variant=scheme)
    return np.array([row.value for row in chosen if not row.detail])


def _figure(report: QoSReport, metric: str, policy: str, detail: str = "") -> float:
    values = [
        row.value
        for row in report.select(scope="subscriber", metric=metric, variant=policy)
        if row.name == _NAME and row.detail == detail
    ]
    return values[0] if values else math.nan


def _at_rate(system: System, rate_per_s: float) -> System:
    return replace(
        system, publishers=tuple(replace(publisher, rate_per_s=rate_per_s) for publisher in system.publishers)
    )


def _schemes(shares: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]], names: list[str]) -> Picture:
    """Returns the picture of each scheme as a curve over the subscribers, the best served first."""
    rank = np.arange(1.0, len(names) + 1.0)
    chart = Chart(
        [Line(scheme, rank, 100.0 * np.sort(values)[::-1]) for scheme, values in shares.items()],
        title="On-time reliability of each subscriber",
        x=Axis(f"subscribers, the best served first (1 to {len(names)})"),
        y=Axis("events in time (%)"),
        caption=(
            "Every subscriber has a place on each curve. Buffering lifts most of them: what a dead broker or link "
            "held up arrives late, but in time. Bypass finds another way round, and both together do best. The steps "
            "are home brokers, some of which fail more often than others."
        ),
        ratio=0.0,
    )
    rows: list[list[Cell]] = [[name, *(float(values[i]) for values in shares.values())] for i, name in enumerate(names)]
    return picture(chart, ("subscriber", *shares), rows, "reliability")


def _scheme_table(report: QoSReport, shares: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]) -> SavedTable:
    rows: list[list[Cell]] = []
    for scheme, values in shares.items():
        delay = [row.value for row in report.select(scope="system", metric="delay_mean_s", variant=scheme)]
        rows.append(
            [
                scheme,
                *(percent(float(share)) for share in (values.mean(), values.min(), values.max())),
                delay[0] if delay else None,
            ]
        )
    header = ("scheme", "mean in time", "worst subscriber", "best subscriber", "mean delay in s")
    return SavedTable(Table(header, rows, "The four schemes"), "schemes")


def _policies(rates: tuple[float, ...], reports: list[QoSReport]) -> Picture:
    """Returns the picture of the share that each policy delivers, over the rate of events."""
    layers: list[Layer] = []
    for policy in POLICIES:
        if policy != "none":
            delivered = [100.0 * _figure(report, "success_share", policy) for report in reports]
            layers += [Line(policy, rates, delivered, hover=()), Points(policy, rates, delivered)]
    chart = Chart(
        layers,
        title="What each drop policy delivers",
        x=Axis("events (1/s)"),
        y=Axis("events delivered (%)", from_zero=True),
        rules=(RuleLine("the table below", 2.0, colour="accent"),),
        caption=(
            "Connected for 20 s, away for 20 s, and the mean response time must not exceed 7 s. Expiry delivers most: "
            "it lets go of what has become too old. The optimal policy is the best of those that drop nothing while "
            "the subscriber is connected, and the simple ones come close to it. Where a curve ends, its policy cannot "
            "keep the target any more."
        ),
        ratio=0.0,
    )
    header = (
        "policy",
        "events per s",
        "delivered",
        "mean response in s",
        "join probability",
        "buffer size",
        "lifetime in s",
    )
    rows: list[list[Cell]] = [
        [policy, rate, *(_figure(report, metric, policy) for metric in _POLICY_METRICS)]
        for policy in POLICIES
        for rate, report in zip(rates, reports, strict=True)
    ]
    return picture(chart, header, rows, "drop-policies")


_POLICY_METRICS: Final = ("success_share", "delay_mean_s", "join_probability", "buffer_size", "event_lifetime_s")


def _policy_table(report: QoSReport) -> SavedTable:
    rows: list[list[Cell]] = []
    for policy in report.variants:
        join, size, life = (_figure(report, metric, policy) for metric in _POLICY_METRICS[2:])
        parameter = "-"
        if not math.isnan(life):
            parameter = f"events live {life:.2f} s"
        elif not math.isnan(size):
            parameter = f"{size:.0f} events fit"
        elif policy != "none":
            parameter = f"{share(join)} join the queue while away"
        rows.append(
            [
                policy,
                parameter,
                share(_figure(report, "success_share", policy)),
                _figure(report, "delay_mean_s", policy),
                _figure(report, "delay_quantile_s", policy, "p99"),
            ]
        )
    plain = [[plain_values(cell) for cell in row] for row in rows]
    header = ("policy", "parameter found", "delivered", "mean response in s", "99 % within s")
    return SavedTable(Table(header, plain, "At 2 events per second, with a target of 7 s"), "policies-at-2")
