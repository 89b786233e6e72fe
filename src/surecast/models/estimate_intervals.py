"""Intervals of predicted figures that reflect how well the values of a scenario are known.

The estimated values are drawn many times (a Latin hypercube of normal deviations), each draw is predicted by the same
formulas, and the interval of a figure has 95 % of its draws. The same draws serve all figures and all variants. The
share of a figure's variance that an estimate explains alone says which value to measure better.

With a length of observation, components fail in each draw as they may in a window of that length: the intervals are
those of what will be observed in it, not those of the long run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError, SurecastError
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.spec.scenario import Scenario
from surecast.scenario.streams import Streams
from surecast.scenario.system import Failures, System

__all__ = ["DRAWS", "DRAWS_MIN", "observed_system", "with_intervals"]

DRAWS, DRAWS_MIN = 200, 40
_SHARE_MIN = 0.05
"""Smaller shares of the variance are not told."""
_NAMED_MAX = 5
_JUDGED = ("reliability", "delay_mean_s")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Draws:
    """Deviations by draw and estimate, and the value of each figure by draw: NaN where the draw has none."""

    deviations: Array
    values: Array

    def interval(self, value: Array) -> tuple[Array, Array]:
        """Returns the ends of the 95 % intervals, which hold the values themselves."""
        low, high = np.full(len(value), np.nan), np.full(len(value), np.nan)
        known = (~np.isnan(self.values)).sum(axis=0) >= DRAWS_MIN / 2
        low[known], high[known] = np.nanquantile(self.values[:, known], (0.025, 0.975), axis=0)
        return np.minimum(low, value), np.maximum(high, value)

    def shares(self, figure: int) -> Array:
        """Returns the share of a figure's variance that each estimate explains alone, in a linear fit of ranks."""
        column = self.values[:, figure]
        known = ~np.isnan(column)
        count = int(known.sum())
        if count < DRAWS_MIN / 2 or np.ptp(column[known]) == 0.0:
            return np.zeros(self.deviations.shape[1])
        ranks = np.argsort(np.argsort(column[known])).astype(np.float64)
        found = [np.corrcoef(deviation, ranks)[0, 1] ** 2 for deviation in self.deviations[known].T]
        # a value that explains nothing has 1 / (count - 1) on average
        return np.maximum(np.array(found) - 1.0 / (count - 1), 0.0)


def with_intervals(
    scenario: Scenario,
    report: QoSReport,
    answer: Callable[[System], QoSReport],
    *,
    draws: int = DRAWS,
    over_s: float | None = None,
) -> QoSReport:
    """Returns a report whose figures have the intervals that the estimates of its scenario give them.

    `answer` predicts a system; it is asked for each draw. With `over_s` the intervals are of what is observed in a
    window so long.
    """
    if draws < DRAWS_MIN:
        raise ConfigurationError(f"`draws` {draws}: give {DRAWS_MIN} or more, or 0 for no intervals")
    estimates = scenario.estimates
    deviations = _hypercube(scenario.seed, draws, len(estimates))
    keys = {report.columns.key(row): row for row in range(len(report))}
    values, refused = np.full((draws, len(report)), np.nan), Counter[str]()
    for draw, row in enumerate(deviations):
        try:
            system = scenario.drawn(row) if estimates else scenario.system
            if over_s is not None:
                system = observed_system(system, over_s, scenario.seed, draw)
            columns = answer(system).columns
        except SurecastError as refusal:
            refused[str(refusal).split(":")[0]] += 1
            continue
        places = [keys.get(columns.key(row), -1) for row in range(len(columns))]
        here = np.array(places, dtype=np.intp)
        values[draw, here[here >= 0]] = columns.value[here >= 0]
    if sum(refused.values()) > draws / 2:
        raise AssumptionError(f"{scenario.name}: {_refusals(refused, draws)}; learn the estimates better, or set them")
    return _built(report, _Draws(deviations, values), [each.field for each in estimates], refused, over_s)


def _built(
    report: QoSReport, drawn: _Draws, fields: Sequence[str], refused: Counter[str], over_s: float | None
) -> QoSReport:
    info, columns = report.info, report.columns
    parameters = {**info.parameters, "draws": len(drawn.values), "estimates": len(fields)}
    if over_s is not None:
        parameters["over_s"] = over_s
    builder = ReportBuilder(
        info.scenario, info.source, seed=info.seed, notes=info.notes, warnings=info.warnings, parameters=parameters
    )
    low, high = drawn.interval(columns.value)
    texts = (columns.text(name).texts() for name in ("scope", "name", "metric", "how", "detail", "variant"))
    for row, (scope, name, metric, how, detail, variant) in enumerate(zip(*texts, strict=True)):
        spread = high[row] > low[row]
        ends = (float(low[row]), float(high[row])) if spread else (None, None)
        builder.add(
            scope, name, metric, float(columns.value[row]), how=how, detail=detail, variant=variant,
            low=ends[0], high=ends[1],
        )  # fmt: skip
    what = f"{len(fields)} estimate{'s' if len(fields) != 1 else ''} of the scenario"
    if over_s is not None:
        what += f" and for the failures in {over_s:.6g} s of observation"
    draws = len(drawn.values)
    builder.note(f"intervals: 95 %, from {draws} draws, for {what}; what formulas approximate is not in them")
    for sentence in _what_to_measure(report, drawn, fields):
        builder.note(sentence)
    if refused:
        builder.warn(f"intervals: {_refusals(refused, draws)}; these draws are in no interval")
    return builder.build()


def _what_to_measure(report: QoSReport, drawn: _Draws, fields: Sequence[str]) -> list[str]:
    """Returns a sentence for the system and each of the subscribers with the widest intervals: what explains them."""
    columns = report.columns
    low, high = drawn.interval(columns.value)
    rows = [
        row
        for row in range(len(columns))
        if columns.metric[row] in _JUDGED and not columns.detail[row] and columns.scope[row] in ("system", "subscriber")
    ]
    rows = sorted((row for row in rows if high[row] > low[row]), key=lambda row: columns.scope[row] != "system")
    sentences = []
    for metric in _JUDGED:
        of_metric = [row for row in rows if columns.metric[row] == metric]
        whole = [row for row in of_metric if columns.scope[row] == "system"]
        parts = sorted((row for row in of_metric if row not in whole), key=lambda row: low[row] - high[row])
        for row in (*whole, *parts[:_NAMED_MAX]):
            shares = drawn.shares(row)
            most = [(float(shares[i]), fields[i]) for i in np.argsort(-shares)[:3] if shares[i] >= _SHARE_MIN]
            if most:
                named = ", ".join(f"{share:.0%} from {field}" for share, field in most)
                sentences.append(f"variance of {columns.describe(row)}: {named}")
    return sentences


def _refusals(refused: Counter[str], draws: int) -> str:
    reason, count = refused.most_common(1)[0]
    return f"{sum(refused.values())} of {draws} draws have no answer, {count} of them because of {reason}"


def _hypercube(seed: int, draws: int, count: int) -> Array:
    """Returns normal deviations by draw and estimate, each column evenly spread over its distribution."""
    from scipy.stats import norm, qmc

    if count == 0:
        return np.zeros((draws, 0))
    points = qmc.LatinHypercube(count, seed=Streams(seed).generator("estimates", "draws")).random(draws)
    return np.asarray(norm.ppf(points), dtype=np.float64)


def observed_system(system: System, over_s: float, seed: int, draw: int) -> System:
    """Returns a system whose brokers and links have the mean times up and down that a window of observation may show.

    What does not fail in the window never fails. Each component has its own random numbers in each draw.
    """
    streams, overlay = Streams(seed), system.overlay

    def seen(failures: Failures | None, kind: str, name: str) -> Failures | None:
        return _observed(failures, streams, f"draw {draw}/{kind}", name, over_s)

    brokers = tuple(replace(b, failures=seen(b.failures, "broker", b.name)) for b in overlay.brokers)
    links = tuple(replace(k, failures=seen(k.failures, "link", k.name)) for k in overlay.links)
    return replace(
        system,
        overlay=replace(overlay, brokers=brokers, links=links),
        client_failures=system.client_failures,
    )


def _observed(failures: Failures | None, streams: Streams, purpose: str, name: str, over_s: float) -> Failures | None:
    if failures is None:
        return None
    from surecast.simulation.reliability.compiled.traces import draw_trace

    starts, ends = draw_trace(failures, streams, purpose, name, over_s)
    inside = starts < over_s
    up_s = float((np.minimum(ends[inside], over_s) - starts[inside]).sum())
    number = int((ends < over_s).sum()) + int(len(starts) == 0 or starts[0] > 0.0)
    down_s = over_s - up_s
    if number == 0 or down_s <= 0.0:
        return None
    up_s = max(up_s, 1e-6 * over_s)
    return Failures(failures.up.with_mean(up_s / number), failures.down.with_mean(down_s / number))
