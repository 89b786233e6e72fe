"""The verdict of a report: in one to three lines, what subscribers get, who gets least, and what limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from surecast.report.figure import SCOPES
from surecast.report.formatting import format_value
from surecast.report.metric_registry import metric_or_plain
from surecast.report.report import QoSReport
from surecast.report.report_summary import Summary

__all__ = ["verdict_of"]

_GOALS: Final = ("reliability", "success_share", "on_time_probability")
"""What subscribers want most, the first that a report has."""
_RECEIVERS: Final = ("subscriber", "class")
_WORTH_NAMING: Final = 1e-6


def verdict_of(report: QoSReport) -> list[str]:
    """Returns the lines that answer first; none for a report that has nothing of what they are about.

    >>> from surecast.report.report import example_report
    >>> verdict_of(example_report())
    ['Real-time reliability: 92.5 % in the mean of 2 subscribers, 90.0 % for the worst, s2; most is lost as expired, \
7.5 %.', 'The busiest is broker b1, at 42.0 % of what it can carry.']
    """
    rows = report.summary()
    lines = [_targets(report), _goal(rows), _busiest(rows)]
    return [line for line in lines if line]


def _targets(report: QoSReport) -> str:
    """Says which share of the targets is met, where one answer is given and targets are stated."""
    met = report.figures(scope="system", metric="targets_met_share")
    if len(met) != 1:
        return ""
    share = met[0].value
    if share in (0.0, 1.0):
        return "All targets are met." if share else "No target is met."
    return f"{format_value(share, 'share')} of the targets are met."


def _goal(rows: Sequence[Summary]) -> str:
    """Says what subscribers get in the mean, and who gets least; of several variants the best and the worst."""
    for metric, scope in ((metric, scope) for metric in _GOALS for scope in _RECEIVERS):
        means = [row for row in rows if (row.metric, row.scope, row.detail) == (metric, scope, "")]
        if not means:
            continue
        best = max(means, key=lambda row: row.mean)
        text = f"{metric_or_plain(metric).label}: {_share(best.mean)}"
        if len(means) > 1:
            least = min(means, key=lambda row: row.mean)
            return f"{text} under {best.variant}, the best of {len(means)}; {_share(least.mean)} under {least.variant}."
        if best.count == 1:
            return f"{text} for {best.worst}{_loss(rows, best)}."
        who = f"{best.count:,} {SCOPES[scope]}{'es' if scope == 'class' else 's'}"
        return f"{text} in the mean of {who}, {_share(best.smallest)} for the worst, {best.worst}{_loss(rows, best)}."
    return ""


def _loss(rows: Sequence[Summary], goal: Summary) -> str:
    """Names what takes most from subscribers."""
    parts = [
        (row.mean, row.detail or "late")
        for row in rows
        if (row.variant, row.scope) == (goal.variant, goal.scope)
        and (row.metric == "share_late" or (row.metric == "share_dropped" and row.detail))
    ]
    share, reason = max(parts, default=(0.0, ""))
    return f"; most is lost as {reason}, {_share(share)}" if share > _WORTH_NAMING else ""


def _busiest(rows: Sequence[Summary]) -> str:
    """Names the component with the highest utilisation."""
    loads = [row for row in rows if row.metric == "utilisation"]
    if not loads or len({row.variant for row in loads}) > 1:
        return ""
    most = max(loads, key=lambda row: row.largest)
    return f"The busiest is {SCOPES[most.scope]} {most.worst}, at {_share(most.largest)} of what it can carry."


def _share(value: float) -> str:
    return format_value(value, "share")
