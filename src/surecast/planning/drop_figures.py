"""The numbers of the dropping paper's figures 4 to 7, by formula and by simulation, for any setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from surecast.errors import AssumptionError, ConfigurationError, refuse_unknown
from surecast.prediction.dropping import ResponseTarget, largest_parameter, response_mean_s
from surecast.prediction.dropping.cases import UNPROTECTED, Case, Gives, find, gives_of
from surecast.prediction.dropping.choose import through_input
from surecast.scenario.mechanism import Mechanism, parameter_text
from surecast.simulation import simulate_queue

__all__ = ["HYBRIDS", "Effort", "FigureRow", "Setting", "drop_figures", "save_rows"]

HYBRIDS = ("join probability + buffer", "join probability + exponential expiry")
"""Mixtures of two mechanisms."""

_SINGLE = ("probabilistic", "finite-buffer", "expiry", "exponential-expiry")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Setting:
    """The setting of the paper's section IV; figure 4 is for the subscriber's queue alone."""

    service_per_s: float = 8.0
    on_s: float = 20.0
    off_s: float = 20.0
    input_per_s: float = 16.0
    target_s: float = 7.0
    joins: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    response_rates: tuple[float, ...] = (0.05, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
    fine: int = 60
    """Points of the lines for single mechanisms; the best policy and mixtures are found at `rates` only."""
    rates: tuple[float, ...] = (0.05, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.4, 7.7)


@dataclass(frozen=True)
class Effort:
    """The amount of simulation: runs are added, up to `runs_max`, until figures are known to a share `half_width`."""

    half_width: float = 0.01
    runs: int = 10
    runs_max: int = 20
    duration_s: float = 40_000.0
    warm_up_s: float = 1000.0
    seed: int = 2019


@dataclass(frozen=True)
class FigureRow:
    """One number of one figure. `low` and `high` are the ends of the 95 % interval of a simulated one."""

    figure: int
    series: str
    arrival_per_s: float
    metric: str
    how: str
    value: float
    low: float | None = None
    high: float | None = None
    parameters: str = ""


def drop_figures(
    setting: Setting | None = None, effort: Effort | None = None, progress: Progress | None = None
) -> list[FigureRow]:
    """Returns all numbers of figures 4 to 7: flat rows, by formula and, unless `effort.runs` is 0, by simulation.

    >>> rows = drop_figures(Setting(rates=(2.0,), response_rates=(2.0,), fine=1), Effort(runs=0))
    >>> [round(r.value, 4) for r in rows if r.figure == 6 and r.series == "probabilistic"]
    [0.6749, 7.0]
    """
    setting, effort = setting or Setting(), effort or Effort()
    between, closer = _between(setting, setting.fine), _between(setting, 4 * setting.fine)
    steps = len(setting.joins) + len(setting.rates) + 1
    done = 0
    rows: list[FigureRow] = []
    for join in setting.joins:
        rows += _responses(setting, effort, join)
        done += 1
        _tell(progress, done, steps)
    for rate in setting.rates:
        rows += _comparison(setting, effort, rate)
        done += 1
        _tell(progress, done, steps)
    for rate in between:
        single = (kind for kind in _SINGLE if kind != "finite-buffer")
        rows += _by_formula(rate, _possible({kind: find(_case(setting, rate), kind) for kind in single}))
    for rate in closer:
        # whole numbers of events make steps
        rows += _by_formula(rate, _possible({"finite-buffer": find(_case(setting, rate), "finite-buffer")}))
    _tell(progress, steps, steps)
    return rows


def _between(setting: Setting, points: int) -> list[float]:
    """Returns rates for smooth lines, besides those that are simulated."""
    return sorted({*np.linspace(min(setting.rates), max(setting.rates), points).tolist()} - {*setting.rates})


def _tell(progress: Progress | None, done: int, steps: int) -> None:
    if progress is not None:
        progress(done, steps)


def _responses(setting: Setting, effort: Effort, join: float) -> list[FigureRow]:
    """Returns figure 4: the mean response time of the subscriber's queue against the arrival rate."""
    share = setting.on_s / (setting.on_s + setting.off_s)
    limit = setting.service_per_s * share / (share + (1.0 - share) * join)
    rates = [rate for rate in setting.response_rates if rate < limit]
    if not rates:
        return []
    series = f"join probability {join:g}"
    periods = setting.service_per_s, setting.on_s, setting.off_s
    fine = sorted({*np.linspace(min(rates), max(rates), 60).tolist(), *rates})
    values = np.atleast_1d(response_mean_s(np.array(fine), *periods, join)).tolist()
    metric = "response_mean_s"
    rows = [FigureRow(4, series, x, metric, "formula", y) for x, y in zip(fine, values, strict=True)]
    if effort.runs:
        simulated = simulate_queue(np.array(rates), *periods, Mechanism(join_probability=join), **_timing(effort))
        rows += _simulated(4, series, rates, metric, *simulated.response_mean_s)
    return rows


def _timing(effort: Effort) -> dict[str, Any]:
    return {
        "runs": effort.runs,
        "max_runs": max(effort.runs, effort.runs_max),
        "relative_half_width": effort.half_width,
        "duration_s": effort.duration_s,
        "warm_up_s": effort.warm_up_s,
        "seed": effort.seed,
    }


def _simulated(
    figure: int, series: str, rates: Sequence[float], metric: str, values: np.ndarray, halves: np.ndarray
) -> list[FigureRow]:
    rows = []
    for rate, value, half in zip(rates, np.ravel(values).tolist(), np.ravel(halves).tolist(), strict=True):
        low, high = (None, None) if math.isnan(half) else (max(0.0, value - half), value + half)
        rows.append(FigureRow(figure, series, rate, metric, "simulated", value, low, high))
    return rows


def _case(setting: Setting, rate: float) -> Case:
    return Case(rate, setting.service_per_s, setting.on_s, setting.off_s, setting.input_per_s, setting.target_s)


def _possible(gives: dict[str, Gives]) -> dict[str, Gives]:
    return {kind: each for kind, each in gives.items() if each.outcome is not None}


def _comparison(setting: Setting, effort: Effort, rate: float) -> list[FigureRow]:
    """Returns figures 5 to 7 at one arrival rate: parameters that meet the target, success shares, failures while
    connected."""
    case = _case(setting, rate)
    gives = {kind: find(case, kind) for kind in _SINGLE}
    gives |= {name: hybrid(case, name) for name in HYBRIDS}
    gives |= {"optimal": find(case, "optimal"), "best": replace(find(case, UNPROTECTED), kind="best")}
    drawn = _possible(gives)
    return _by_formula(rate, drawn) + (_simulate(case, drawn, effort) if effort.runs and drawn else [])


def _by_formula(rate: float, gives: dict[str, Gives]) -> list[FigureRow]:
    rows: list[FigureRow] = []
    for kind, each in gives.items():
        assert each.outcome is not None
        words = parameter_text(each.mechanism)
        rows += [FigureRow(5, kind, rate, *parameter, words) for parameter in _parameters(kind, each.mechanism)]
        share, lost = each.outcome.success_share, each.outcome.answer.lost_while_connected
        rows.append(FigureRow(6, kind, rate, "success_share", "formula", share, parameters=words))
        rows.append(FigureRow(6, kind, rate, "delay_mean_s", "formula", each.outcome.delay_mean_s, parameters=words))
        if not each.mechanism.expires:
            rows.append(FigureRow(7, kind, rate, "failed_connected_share", "formula", lost, parameters=words))
    return rows


def _parameters(kind: str, mechanism: Mechanism) -> list[tuple[str, str, float, None, None]]:
    chosen = {
        "probabilistic": ("join_probability", mechanism.join_probability),
        "finite-buffer": ("buffer_size", float(mechanism.buffer_size or math.inf)),
        "expiry": ("event_lifetime_s", mechanism.lifetime_s),
        "exponential-expiry": ("event_lifetime_s", mechanism.lifetime_s),
    }
    metric, value = chosen.get(kind, ("", math.inf))
    return [(metric, "formula", value, None, None)] if math.isfinite(value) else []


def _simulate(case: Case, gives: dict[str, Gives], effort: Effort) -> list[FigureRow]:
    mechanisms = [each.mechanism for each in gives.values()]
    sweep = simulate_queue(
        case.arrival_per_s,
        case.service_per_s,
        case.on_s,
        case.off_s,
        mechanisms,
        input_per_s=case.input_per_s,
        **_timing(effort),
    )
    rows = []
    for figure, metric, (values, halves) in (
        (6, "success_share", sweep.success_share),
        (6, "delay_mean_s", sweep.delay_mean_s),
        (7, "failed_connected_share", sweep.failed_connected_share),
    ):
        for k, kind in enumerate(gives):
            simulated = _simulated(figure, kind, [case.arrival_per_s], metric, values[k : k + 1], halves[k : k + 1])
            rows += [replace(row, parameters=parameter_text(mechanisms[k])) for row in simulated]
    return rows


def hybrid(case: Case, name: str) -> Gives:
    """Returns the best mixture of a join probability with a buffer or with exponential lifetimes, by formula."""
    refuse_unknown("mixture", [name], HYBRIDS)
    try:
        return _with_buffer(case) if name == HYBRIDS[0] else _with_lifetime(case)
    except AssumptionError as error:
        return Gives(name, case, None, str(error))


def _with_buffer(case: Case) -> Gives:
    """Returns the best buffer with a join probability: sizes grow from the one that needs none, as long as they may
    improve."""
    assert case.target_s is not None
    target, queue = ResponseTarget(case.target_s - case.before_s), case.outlet.queue
    alone = find(case, "finite-buffer")
    if alone.mechanism.buffer_size is None:
        return replace(alone, kind=HYBRIDS[0])
    best, size, worse = alone, alone.mechanism.buffer_size, 0
    while worse < 8:
        size += 1
        search = largest_parameter(queue, "join_probability", target, Mechanism(buffer_size=size))
        if search.mechanism is None:
            break
        candidate = gives_of(case, search.mechanism)
        better = _share(candidate) > _share(best)
        best, worse = (candidate, 0) if better else (best, worse + 1)
    return replace(best, kind=HYBRIDS[0])


def _with_lifetime(case: Case) -> Gives:
    """Returns the lifetime at which most is delivered, from the longest that needs no join probability on."""
    alone = find(case, "exponential-expiry")
    if not alone.mechanism.expires:
        return replace(alone, kind=HYBRIDS[1])
    least = alone.mechanism.lifetime_s

    def gives_at(factor: float) -> Gives:
        return _joined(case, Mechanism(lifetime_s=least * factor, lifetime_distribution="exponential"))

    optimum = minimize_scalar(lambda e: -_share(gives_at(math.exp(e))), bounds=(0.0, 4.0), method="bounded")
    best = max((alone, gives_at(math.exp(float(optimum.x)))), key=_share)
    return replace(best, kind=HYBRIDS[1])


def _joined(case: Case, base: Mechanism) -> Gives:
    """Returns the largest join probability beside a lifetime that meets the target."""
    assert case.target_s is not None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2.0
        outcome = through_input(case.outlet, replace(base, join_probability=middle))
        low, high = (middle, high) if outcome.delay_mean_s <= case.target_s else (low, middle)
    return gives_of(case, replace(base, join_probability=low))


def _share(gives: Gives) -> float:
    return -1.0 if gives.outcome is None else gives.outcome.success_share


def save_rows(rows: Sequence[FigureRow], path: Path | str) -> Path:
    """Writes the rows to a ``.json`` or ``.parquet`` file, whole or not at all, and returns its path."""
    import json

    from surecast.report.report_files import save_table, write_whole

    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".json":
        text = json.dumps([asdict(row) for row in rows], indent=1)
        write_whole(path, lambda file: file.write(text.encode()))
    elif suffix == ".parquet":
        import pyarrow

        save_table(pyarrow.Table.from_pylist([asdict(row) for row in rows]), path)
    else:
        raise ConfigurationError(f"cannot write numbers to {path}: end its name in .json or .parquet")
    return path
