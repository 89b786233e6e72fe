"""Check: predicted, simulated and measured side by side, with what they agree on and what they do not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from surecast import predict, simulate
from surecast.measurement import RunInterrupted, make_plan, run_plan
from surecast.models import joined
from surecast.prediction import find_mechanisms
from surecast.report import QoSReport, compare, save
from surecast.simulation.dropping import simulate_dropping
from surecast.simulation.replication import simulate_replication
from surecast.studio.chart import Axis, Chart, Layer, Line, Points
from surecast.studio.page import Cell, Table
from surecast.studio.wording import duration
from surecast.tour.predict import SCHEMES_SHOWN
from surecast.tour.scenarios import load_scenario
from surecast.tour.stage_content import (
    Block,
    CheckedClaim,
    CheckedClaims,
    Picture,
    SavedTable,
    StageOutcome,
    Text,
    Tile,
    TourContext,
    picture,
)

if TYPE_CHECKING:
    from surecast.report import Comparison, Difference
    from surecast.scenario import System

__all__ = ["Answers", "answer_all", "check_stage"]

SCALE: Final = 20.0
"""Seconds of the scenario in a second of the run."""
_POLICY: Final = "probabilistic"
_KINDS: Final = ("predicted", "simulated", "same draws", "measured")
_LONG_S: Final = 20_000.0
_CALM: Final = 30.0
_DAY_S: Final = 86_400.0


@dataclass(frozen=True)
class Answers:
    """The answers to one scenario. `repeated` is a simulation of the very periods and events of the measured run."""

    predicted: QoSReport
    simulated: QoSReport
    repeated: QoSReport
    measured: QoSReport

    def by_kind(self) -> dict[str, QoSReport]:
        """Returns the reports under the names that the page has for them."""
        return dict(zip(_KINDS, (self.predicted, self.simulated, self.repeated, self.measured), strict=True))


def check_stage(context: TourContext) -> StageOutcome:
    """Answers one small system in all three ways; predicts and simulates the reliability of a large one."""
    system = load_scenario("check").system
    answers = answer_all(system, context)
    for name in ("predicted", "simulated", "measured"):
        save(getattr(answers, name), context.out / f"check-{name}.json")
    large, seconds = _reliability(context)
    measured = compare(answers.predicted, answers.measured)
    shares = measured.rows(metric="success_share", scope="subscriber")
    off = float(np.mean([abs(row.difference) for row in shares]))
    exact = compare(answers.repeated, answers.measured).rows(metric="success_share", scope="subscriber")
    near = float(np.mean([abs(row.difference) for row in exact]))
    big = [row for row in large.summary if (row.metric, row.scope, row.detail) == ("reliability", "subscriber", "")]
    large_off = float(np.mean([row.mean_absolute for row in big]))
    lead = (
        f"One system, three answers. The formulas say which share of its events each of {len(shares)} subscribers "
        "gets, the simulator counts it in virtual time, and real brokers with real clients were measured. Predicted "
        f"and measured shares are {100 * off:.1f} percentage points apart on average; against a simulation of the very "
        "same draws it is "
        f"{100 * near:.1f}{', so much of the rest is chance of a short run' if near < 0.7 * off else ''}."
    )
    tiles = (
        Tile("predicted against measured", f"{100 * off:.1f} points", "mean difference of the delivered share"),
        Tile("same draws against measured", f"{100 * near:.1f} points", "simulated with the run's own periods"),
        Tile("predicted against simulated", f"{100 * large_off:.2f} points", "2,000 reliabilities of the large system"),
        Tile("lost although acknowledged", f"{_lost(answers.measured):.0f}", "in the measured run"),
    )
    blocks: tuple[Block, ...] = (
        _dots(
            answers, "success_share", "events delivered (%)", 100.0, "Delivered share of each subscriber", "delivered"
        ),
        _dots(answers, "delay_mean_s", "mean delay (s)", 1.0, "Mean delay of each subscriber", "delays"),
        _group_table(answers),
        _verdicts(answers, measured),
        Text(
            "Rates and periods run 20 times as fast as in the scenario, but the machine, its disks and its network "
            "do not: each millisecond of theirs counts as 20 in a delay. And a run of a minute or two sees few "
            "periods of each subscriber, so its shares scatter. Both are why measured and predicted differ; the "
            "intervals say by how much chance alone explains.",
            "How to read the differences",
        ),
        _scatter(large, seconds),
    )
    figures = {
        "delivered_mean_difference": off,
        "delivered_mean_difference_same_draws": near,
        "reliability_mean_difference": large_off,
        "failover_predicted_s": _group(answers.predicted, "failover_mean_s"),
        "failover_measured_s": _group(answers.measured, "failover_mean_s"),
        "lost_although_acknowledged": _lost(answers.measured),
    }
    return StageOutcome(lead, tiles, blocks, {name: _finite(value) for name, value in figures.items()})


def answer_all(system: System, context: TourContext) -> Answers:
    """Predicts, simulates and runs the system; the run is as long as the tour allows."""
    context.show("predicting", 0, 0)
    coming = replace(system, subscribers=tuple(s for s in system.subscribers if s.connectivity is not None))
    predicted = predict(system, schemes=["buffering"], policies=[_POLICY])
    plan = make_plan(
        system,
        scale=SCALE,
        duration_s=220.0 if context.quick else system.experiment.duration,
        leader_kills_s=[130.0] if context.quick else [400.0, 800.0, 1200.0],
    )
    mechanisms = {_POLICY: find_mechanisms(coming, _POLICY)}

    def dropping(runs: int, duration_s: float) -> QoSReport:
        return simulate_dropping(
            coming, mechanisms=mechanisms, runs=runs, duration_s=duration_s, warm_up_s=plan.warm_up_s, seed=plan.seed
        )

    context.show("simulating", 0, 0)
    groups = simulate_replication(
        system,
        runs=2 if context.quick else 6,
        duration_s=30.0,
        seed=plan.seed,
        progress=lambda done, total: context.show("simulating the group", done, total),
    )
    queues = dropping(4 if context.quick else 10, _LONG_S)
    simulated = joined([queues, groups], system.name, "simulated", plan.seed)
    repeated = dropping(1, plan.duration_s)
    try:
        measured = run_plan(plan, progress=lambda done, total: context.show("running for real", done, total))
    except RunInterrupted:
        raise KeyboardInterrupt from None
    if measured.info.parameters["interrupted"]:
        raise KeyboardInterrupt
    return Answers(predicted, simulated, repeated, measured)


def _reliability(context: TourContext) -> tuple[Comparison, float]:
    """Predicts all subscribers of the overlay of the second stage, and simulates them over years."""
    system = load_scenario("reliability-graph").system
    predicted = predict(system, schemes=SCHEMES_SHOWN)
    # Failures are slow and events are many: fewer events over more time tell more about reliability.
    calm = replace(system, publishers=tuple(replace(p, rate_per_s=p.rate_per_s / _CALM) for p in system.publishers))
    runs, years = (2, 1) if context.quick else (8, 2)
    simulated = simulate(
        calm,
        schemes=SCHEMES_SHOWN,
        runs=runs,
        duration=years * 365 * _DAY_S,
        seed=context.seed,
        progress=lambda done, total: context.show("simulating years of failures", done, total),
    )
    return compare(predicted, simulated), runs * years * 365 * _DAY_S


def _value(report: QoSReport, name: str, metric: str) -> tuple[float, float, float]:
    """Returns a figure of a subscriber with its interval; NaN if there is none."""
    for row in report.select(scope="subscriber", metric=metric):
        if row.name == name and not row.detail:
            low, high = (math.nan if end is None else end for end in (row.low, row.high))
            return row.value, low, high
    return math.nan, math.nan, math.nan


def _group(report: QoSReport, metric: str, detail: str = "") -> float:
    for row in report.select(scope="broker", metric=metric):
        if row.detail == detail and "replicas" in row.variant:
            return row.value
    return math.nan


def _lost(report: QoSReport) -> float:
    return math.fsum(
        row.value for row in report.select(metric="count_dropped") if row.detail == "lost although acknowledged"
    )


def _dots(answers: Answers, metric: str, unit: str, factor: float, title: str, name: str) -> Picture:
    """Returns a picture with one row for each subscriber, with a mark for every answer."""
    names = sorted(
        {reported.name for reported in answers.predicted.select(scope="subscriber", metric="success_share")},
        key=lambda each: -_value(answers.predicted, each, metric)[0],
    )
    layers: list[Layer] = []
    rows: list[list[Cell]] = [[each] for each in names]
    for i, (kind, report) in enumerate(answers.by_kind().items()):
        values = [_value(report, each, metric) for each in names]
        for row, (value, low, high) in zip(rows, values, strict=True):
            row += [value, low, high] if kind in ("simulated", "measured") else [value]
        scaled = factor * np.array(values).reshape(-1, 3)
        layers.append(
            Points(
                kind,
                scaled[:, 0],
                [place + 0.16 * (i - 1.5) for place in range(len(names))],
                scaled[:, 1] if kind == "measured" else None,
                scaled[:, 2] if kind == "measured" else None,
                across=True,
                size_px=10.0,
                hover=[(each, f"{kind}: {value:.4g}") for each, value in zip(names, scaled[:, 0], strict=True)],
            )
        )
    chart = Chart(
        layers,
        title=title,
        x=Axis(unit),
        y=Axis(ends=(len(names) - 0.5, -0.5), ticks=tuple(enumerate(names))),
        about=f"predicted, simulated and measured for {len(names)} subscribers.",
        caption=(
            "Predicted by formula; simulated for long; simulated with the very periods and events of the run (same "
            "draws); and measured, with its 95 % interval. Where the mark of the same draws meets the measured one, "
            "chance explains the distance to the prediction."
        ),
        ratio=0.0,
        height_px_min=140 + 46 * len(names),
    )
    header = (
        "subscriber", "predicted", "simulated", "simulated low", "simulated high", "same draws", "measured",
        "measured low", "measured high",
    )  # fmt: skip
    return picture(chart, header, rows, name)


_GROUP: Final = (
    ("fail-over after a killed leader", "failover_mean_s", ""),
    ("acknowledgement, mean", "acknowledgement_mean_s", ""),
    ("acknowledgement, 95 %", "acknowledgement_quantile_s", "p95"),
    ("events per second", "throughput_per_s", ""),
)


def _group_table(answers: Answers) -> SavedTable:
    rows: list[list[Cell]] = []
    for label, metric, detail in _GROUP:
        values = [_group(report, metric, detail) for report in (answers.predicted, answers.simulated, answers.measured)]
        texts = [f"{value:.3g}/s" if metric == "throughput_per_s" else duration(value) for value in values]
        rows.append([label, *("-" if math.isnan(value) else text for value, text in zip(values, texts, strict=True))])
    return SavedTable(
        Table(("the group", "predicted", "simulated", "measured"), rows, "The replicated broker"), "group"
    )


def _verdicts(answers: Answers, measured: Comparison) -> CheckedClaims:
    """Returns the verdicts on whether the answers agree."""
    rows = [row for row in measured.rows(scope="subscriber") if not row.detail]
    compared = [row for row in rows if row.inside is not None and row.metric in ("success_share", "delay_mean_s")]
    outside = [row for row in compared if not row.inside]
    fail = [_group(report, "failover_mean_s") for report in (answers.predicted, answers.measured)]
    wait = [_group(report, "acknowledgement_mean_s") for report in (answers.predicted, answers.measured)]
    return CheckedClaims(
        "Agreement, and honest disagreement",
        (
            CheckedClaim(
                not _lost(answers.measured),
                "Nothing that was acknowledged was lost in the measured run.",
                f"{_lost(answers.measured):.0f} events.",
            ),
            CheckedClaim(
                None if outside else True,
                "Predicted shares and delays lie in the measured 95 % intervals.",
                f"{len(compared) - len(outside)} of {len(compared)} do."
                + (f" Not so: {', '.join(_named(row) for row in outside[:4])}." if outside else ""),
            ),
            CheckedClaim(
                None if math.isnan(fail[1]) else 0.5 < fail[1] / fail[0] < 2.0 or None,
                "The group is back after a killed leader about as soon as predicted.",
                f"predicted {duration(fail[0])}, measured "
                + ("nothing: no leader died" if math.isnan(fail[1]) else f"{duration(fail[1])}."),
            ),
            CheckedClaim(
                wait[1] < 2.0 * wait[0] or None,
                "Acknowledgements take about as long as predicted.",
                f"predicted {duration(wait[0])} for a quiet machine with default costs, measured {duration(wait[1])} "
                "here, with clients, replicas and disks on the same cores.",
            ),
        ),
    )


def _named(row: Difference) -> str:
    return f"{row.name} ({'share' if row.metric == 'success_share' else 'delay'})"


def _scatter(comparison: Comparison, seconds: float) -> Picture:
    """Returns the picture of every reliability of the large system: simulated over predicted."""
    groups: list[Layer] = []
    rows: list[list[Cell]] = []
    ends: list[float] = []
    for scheme in SCHEMES_SHOWN:
        reliability = comparison.points("reliability", scope="subscriber", variant=scheme)
        a, b = 100.0 * reliability.a, 100.0 * reliability.b
        groups.append(Points(scheme, a, b, size_px=5.0, edge_px=0.5, hover=()))
        rows += [
            [scheme, *row]
            for row in zip(reliability.labels, reliability.a.tolist(), reliability.b.tolist(), strict=True)
        ]
        ends += [float(min(a.min(), b.min())), float(max(a.max(), b.max()))]
    span = min(ends) - 1.0, min(100.5, max(ends) + 1.0)
    same = Line("equal", span, span, colour="muted", width_px=1.4, dashed=True, hover=())
    summary = {
        row.variant: row
        for row in comparison.summary
        if (row.metric, row.scope, row.detail) == ("reliability", "subscriber", "")
    }
    differences = ", ".join(f"{100 * summary[s].mean_absolute:.2f} ({s})" for s in SCHEMES_SHOWN if s in summary)
    chart = Chart(
        [same, *groups],
        title="Formula and simulation, subscriber by subscriber",
        x=Axis("predicted: events in time (%)", ends=span),
        y=Axis("simulated: events in time (%)", ends=span),
        form="square",
        about=f"scatter plot of {len(rows)} reliabilities, simulated over predicted; they lie near the diagonal.",
        caption=(
            "Each of the 500 subscribers of the second stage is four marks, one for each scheme. On the dashed line "
            f"formula and simulation, over {seconds / (365 * _DAY_S):.0f} years, say the same. Mean difference in "
            f"percentage points: {differences}."
        ),
        ratio=0.0,
        height_px_min=560,
    )
    header = ("scheme", "subscriber", "predicted", "simulated")
    return picture(chart, header, rows, "agreement")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
