"""Output of `surecast drop`: tables, data and pages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surecast.prediction.dropping.cases import Case, Gives, RateRange

__all__ = ["QUANTILES", "aim_text", "as_data", "print_answer", "range_text", "write_answer_page"]

QUANTILES = (0.5, 0.95, 0.99)
HEADER = ("mechanism", "setting")
FIGURES = ("delivered", "mean s", "p50 s", "p95 s", "p99 s", "refused")


def aim_text(case: Case) -> str:
    if case.quantile is None:
        return f"a mean of {case.target_s:g} s"
    return f"{100 * case.quantile:g} % within {case.target_s:g} s"


def range_text(rates: RateRange | None) -> str:
    if rates is None:
        return "is met at no arrival rate"
    low = f" from {rates.low_per_s:.4g}/s" if rates.low_per_s > 0 else ""
    return "is met" + low + (" at any rate" if math.isinf(rates.high_per_s) else f" up to {rates.high_per_s:.4g}/s")


def _row(gives: Gives) -> dict[str, Any]:
    """Returns the figures of one mechanism as plain values."""
    from surecast.scenario.mechanism import parameter_text

    data: dict[str, Any] = {"mechanism": gives.kind, "possible": gives.outcome is not None}
    if gives.outcome is None:
        return data | {"reason": gives.refusal}
    outcome, used = gives.outcome, gives.mechanism
    return data | {
        "parameters": parameter_text(used),
        "join_probability": used.join_probability if used.join_table is None else None,
        "buffer_size": used.buffer_size,
        "lifetime_s": used.lifetime_s,
        "lifetime_distribution": used.lifetime_distribution if used.expires else None,
        "join_table": used.join_table,
        "exact": outcome.exact,
        "meets_target": gives.met,
        "success_share": outcome.success_share,
        "delay_mean_s": outcome.delay_mean_s,
        **{f"delay_p{100 * q:g}_s": gives.law.quantile_s(q) for q in QUANTILES},
        "turned_away_connected_share": outcome.answer.lost_while_connected,
        "queue_length_mean": outcome.answer.queue_length_mean,
        "dropped": outcome.dropped,
    }


def as_data(
    gives: list[Gives], case: Case, checked: dict[str, dict[str, Any]] | None, limits: dict[str, RateRange | None]
) -> dict[str, Any]:
    rows = [_row(each) | ({"simulated": checked.get(each.kind)} if checked is not None else {}) for each in gives]
    return {
        "arrival_per_s": case.arrival_per_s,
        "service_per_s": case.service_per_s,
        "on_s": case.on_s,
        "off_s": case.off_s,
        "input_per_s": case.input_per_s,
        "target_s": case.target_s,
        "quantile": case.quantile,
        "target_met_up_to_per_s": {name: None if x is None else x.high_per_s for name, x in limits.items()},
        "mechanisms": rows,
    }


def _summary(gives: list[Gives], case: Case) -> str:
    """Returns the answer in a sentence."""
    where = (
        f"{case.arrival_per_s:g} events/s for a subscriber that can be sent {case.service_per_s:g}/s while connected"
    )
    if case.target_s is None:
        return f"{where}."
    meeting = [each for each in gives if each.met and each.outcome is not None]
    if not meeting:
        return f"{where}: {aim_text(case)} is missed."
    if any(each.kind == "none" for each in meeting) or not all(each.needed for each in meeting):
        return f"{where}: {aim_text(case)} is met without dropping anything."
    best = max(meeting, key=lambda each: each.outcome.success_share if each.outcome else 0.0)
    assert best.outcome is not None
    if len(gives) == 1:
        return f"{where}: {aim_text(case)} is met, and {best.outcome.success_share:.1%} of the events are delivered."
    return (
        f"{where}: {aim_text(case)} is met; {best.kind} delivers most, {best.outcome.success_share:.1%} of the events."
    )


def _notes(gives: list[Gives], case: Case, limits: dict[str, RateRange | None]) -> list[str]:
    notes = [f"{aim_text(case)} {range_text(each)} {name}" for name, each in limits.items()]
    kinds = {each.kind for each in gives if each.outcome is not None}
    if "optimal" in kinds:
        notes.append(
            "optimal is the best policy that decides on arrival and turns nobody away while connected; expiry decides "
            "later, and may deliver more"
        )
    if "unprotected" in kinds:
        notes.append(
            "unprotected is the best policy that decides on arrival, also where it turns events away while connected"
        )
    if "threshold" in kinds:
        notes.append("threshold is the best bound on the queue while disconnected; better policies may exist")
    if kinds & {"expiry", "exponential-expiry"}:
        notes.append("expiry counts in the mean what is delivered only; some that arrive while connected expire, too")
    if any(each.outcome is not None and not each.outcome.exact for each in gives):
        notes.append("≈: lifetimes count from publication, and the part spent in the input queue enters by its mean")
    return notes


def _cells(gives: Gives) -> list[str]:
    row = _row(gives)
    sign = "" if row["exact"] else "≈ "
    numbers = [row["delay_mean_s"], *(row[f"delay_p{100 * q:g}_s"] for q in QUANTILES)]
    lost = row["turned_away_connected_share"]
    shown = "-" if row["parameters"] == "nothing is dropped" else row["parameters"]
    shown = shown.replace("join probability", "join").replace("mean lifetime", "lifetime")
    cells = [gives.kind, shown, f"{sign}{100 * row['success_share']:.1f} %", *(f"{x:.3g}" for x in numbers)]
    return [*cells, f"{100 * lost:.2f} %"]


def print_answer(
    gives: list[Gives],
    case: Case,
    checked: dict[str, dict[str, Any]] | None,
    limits: dict[str, RateRange | None],
    files: list[Path],
) -> None:
    from surecast.cli.output import console, print_table

    console.print(_summary(gives, case), soft_wrap=True)
    headers = (*(("meets",) if case.target_s is not None else ()), *FIGURES)
    rows = []
    for each in gives:
        cells = [each.kind, "not possible", *["-"] * len(FIGURES)] if each.outcome is None else _cells(each)
        met = ["yes" if each.met else "no"] if case.target_s is not None else []
        rows.append([*cells[: len(HEADER)], *met, *cells[len(HEADER) :]])
    print_table(HEADER, headers, rows, styles=["dim" if each.outcome is None else "" for each in gives])
    reasons = [
        f"{each.kind}: "
        + ", ".join(f"{name} {100 * lost:.2f} %" for name, lost in each.outcome.dropped.items() if lost > 0)
        for each in gives
        if each.outcome is not None and any(lost > 0 for lost in each.outcome.dropped.values())
    ]
    for title, lines in (
        ("Dropped", reasons),
        ("Not possible", [f"{g.kind}: {g.refusal}" for g in gives if g.refusal]),
    ):
        if lines:
            console.print(f"{title}:")
            for line in lines:
                console.print(f"  {line}", soft_wrap=True, markup=False)
    if checked is not None:
        _print_checked(gives, checked)
    console.print("refused: share of the events that are turned away although the subscriber is connected")
    for note in _notes(gives, case, limits):
        console.print(note, soft_wrap=True, markup=False)
    for file in files:
        console.print(f"wrote {file}", markup=False, soft_wrap=True)


def _print_checked(gives: list[Gives], checked: dict[str, dict[str, Any]]) -> None:
    from surecast.cli.output import print_table

    rows = []
    for each in gives:
        row = checked.get(each.kind)
        if row is not None:
            tails = [f"{row[f'p{100 * q:g}']:.4g}" for q in QUANTILES]
            shares = [_interval(row[name], 100.0, " %") for name in ("success_share", "failed_connected_share")]
            rows.append([each.kind, shares[0], _interval(row["delay_mean_s"], 1.0, ""), *tails, shares[1]])
    headers = ("delivered", "mean s", "p50 s", "p95 s", "p99 s", "lost while connected")
    print_table(("mechanism",), headers, rows, title="Simulated, with 95 % intervals")


def _interval(estimate: dict[str, float | None], factor: float, unit: str) -> str:
    value, half = estimate["value"], estimate["half_width"]
    if value is None:
        return "-"
    return f"{factor * value:.2f}" + ("" if half is None else f" ± {factor * half:.2f}") + unit


def write_answer_page(
    gives: list[Gives],
    case: Case,
    checked: dict[str, dict[str, Any]] | None,
    limits: dict[str, RateRange | None],
    path: Path,
) -> None:
    from surecast.studio.drop_page import write_case_page
    from surecast.studio.page import Cell, Table

    columns = ("success_share", "delay_mean_s", "delay_p50_s", "delay_p95_s", "delay_p99_s")
    rows = [_row(each) for each in gives if each.outcome is not None]
    cells: list[list[Cell]] = [
        [row["mechanism"], row["parameters"], *(row[name] for name in columns), row["turned_away_connected_share"]]
        for row in rows
    ]
    header = ["Mechanism", "Parameters", "Delivered", "Mean (s)", "p50 (s)", "p95 (s)", "p99 (s)", "Refused while on"]
    tables = [Table(header, cells, "By formula")]
    reasons: list[list[Cell]] = [[row["mechanism"], why, lost] for row in rows for why, lost in row["dropped"].items()]
    if reasons:
        tables.append(Table(["Mechanism", "Reason", "Share of all events"], reasons, "Dropped"))
    if checked is not None:
        lines: list[list[Cell]] = []
        for kind, figures in checked.items():
            parts = [figures[name] for name in ("success_share", "delay_mean_s", "failed_connected_share")]
            lines.append([kind, *(part[end] for part in parts for end in ("value", "half_width"))])
        head = ["Mechanism", "Delivered", "±", "Mean (s)", "± s", "Lost of those while on", "± share"]
        tables.append(Table(head, lines, "Simulated, with 95 % half-widths"))
    write_case_page(gives, case, _summary(gives, case), _notes(gives, case, limits), tables, path)
