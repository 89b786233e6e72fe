"""Comparisons and fits of `surecast zap` in the terminal, and as pictures."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from surecast.zap import EventTable, LogComparison, Traffic
    from surecast.zap.fit import FitNotes

__all__ = ["draw_gaps", "draw_ranks", "print_comparison", "print_fit"]

Logs = tuple["EventTable", "EventTable"]
Labels = tuple[str, str]


def print_comparison(comparison: LogComparison, labels: Labels) -> None:
    """Prints two logs side by side, and their distance."""
    from surecast.cli.output import print_table
    from surecast.zap.log_comparison import QUANTILES

    counts = [f"{count:,}" for count in comparison.gap_counts]
    distances = (f"{comparison.gap_distance:.3f}", f"{comparison.gap_chance:.3f}")
    rows = [["times between zaps", *counts, *distances]]
    for i, quantile in enumerate(QUANTILES):
        first, second = (log[i] for log in comparison.gap_quantiles_s)
        rows.append([f"  {100 * quantile:g} % within", f"{first:,.4g} s", f"{second:,.4g} s", "", ""])
    counts = [f"{count:,}" for count in comparison.channel_counts]
    rows.append(["channels", *counts, f"{comparison.rank_distance:.3f}", f"{comparison.rank_chance:.3f}"])
    for rank in (1, 2, 5, 10):
        shares = [f"{100 * log[rank - 1]:.1f} %" if len(log) >= rank else "-" for log in comparison.top_shares]
        rows.append([f"  share of rank {rank}", *shares, "", ""])
    print_table(("",), (*labels, "Distance", "By chance"), rows)


def print_fit(traffic: Traffic, notes: FitNotes) -> None:
    """Prints the parameters, and the data they rest on."""
    from surecast.cli.output import console, print_table

    rows = []
    unfitted = {"boxes", "volume_per_h", "mute_per_h", "retention_s", "batch_s", *notes.kept}
    for field in fields(traffic):
        value = getattr(traffic, field.name)
        text = f"{value:.6g}" if isinstance(value, int | float) else " ".join(f"{item:.3g}" for item in value)
        rows.append([field.name, text, "left as it was" if field.name in unfitted else "the log"])
    print_table(("Parameter", "Value", "From"), (), rows)
    console.print(
        f"{notes.gaps:,} times between zaps, {notes.cut_off:,} that were cut off, {notes.changes:,} channel changes; "
        f"boxes went off {notes.offs:,} times and on {notes.ons:,} times",
        soft_wrap=True,
    )


def draw_gaps(logs: Logs, labels: Labels, path: Path) -> None:
    """Draws the distribution functions of the times between zaps."""
    from surecast.studio import Axis, Chart, Line, draw_chart
    from surecast.zap import gaps_s

    lines = []
    for log, label in zip(logs, labels, strict=True):
        gaps = np.sort(gaps_s(log))
        points = np.unique(np.concatenate([np.arange(1.0, 11.0), np.geomspace(1.0, 1e5, 160).round()]))
        share = 100.0 * np.searchsorted(gaps, points, side="right") / len(gaps)
        lines.append(Line(label, points, share))
    chart = Chart(
        lines,
        title="Time between zaps of a box",
        x=Axis("time (s)", log=True),
        y=Axis("zaps that come within (%)", from_zero=True),
    )
    draw_chart(chart, path)


def draw_ranks(logs: Logs, labels: Labels, path: Path) -> None:
    """Draws the shares of the channels by rank."""
    from surecast.studio import Axis, Chart, Line, draw_chart
    from surecast.zap import rank_shares

    lines = []
    for log, label in zip(logs, labels, strict=True):
        shares = rank_shares(log)
        lines.append(Line(label, np.arange(1.0, len(shares) + 1.0), 100.0 * shares))
    chart = Chart(
        lines,
        title="Channels by rank",
        x=Axis("rank of the channel in its log", log=True),
        y=Axis("share of the channel changes (%)", log=True),
    )
    draw_chart(chart, path)
