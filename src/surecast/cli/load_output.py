"""The output of `surecast load`: the verdict, the times, and what broker and generator used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from surecast.cli.output import console, print_table

if TYPE_CHECKING:
    from surecast.load import Histogram, LoadOutcome

__all__ = ["print_outcome", "time_text", "verdict"]

_LATE_S = 0.01
_HEADERS = ("mean", "p50", "p99", "longest", "times kept")
_FROM = "From when each was due; where the generator was late or not running, times are not kept."


def print_outcome(outcome: LoadOutcome) -> None:
    """Prints the verdict and the tables of a load."""
    console.print(verdict(outcome), soft_wrap=True)
    probes, storm, received, sent = outcome.probes, outcome.storm, outcome.received, outcome.sent
    rows = []
    if probes is not None:
        rows.append(_row("probes", probes.delay, probes.thrown_away))
    rows.append(_row("deliveries", received.delay, received.thrown_away))
    if outcome.plan.qos:
        rows.append(_row("acknowledgements", sent.acknowledgement))
    if storm is not None:
        rows.append(_row("connections", storm.delay))
    rows.append(_row("sending (lateness)", sent.late))
    print_table(["time until"], _HEADERS, rows, caption=_FROM)
    for line in _use(outcome):
        console.print(line, soft_wrap=True)


def verdict(outcome: LoadOutcome) -> str:
    """Returns the answer in one or two sentences."""
    plan, problems = outcome.plan, outcome.problems()
    rates = (
        f"{plan.access} took {outcome.sent_per_s:,.0f} messages/s and delivered {outcome.delivered_per_s:,.0f}/s "
        f"for {plan.seconds:g} s"
    )
    end = "; ".join(problems) if problems else "nothing was lost, out of order or sent again"
    text = f"{rates}: {end}."
    if plan.rate_per_s and (late_s := outcome.sent.late.quantile_s(0.5)) > _LATE_S:
        text += f" The generator itself was {time_text(late_s)} late at the median: take more --processes."
    if outcome.storm is not None and outcome.storm.failures:
        reasons = ", ".join(f"{count:,} x {words}" for words, count in outcome.storm.failures.most_common(5))
        text += f" Connections that failed: {reasons}."
    return text


def _row(name: str, times: Histogram, thrown_away: int = 0) -> list[str]:
    figures = [times.mean_s(), *(times.quantile_s(share) for share in (0.5, 0.99)), times.max_s]
    kept = f"{times.count:,} of {times.count + thrown_away:,}" if thrown_away else f"{times.count:,}"
    return [name, *map(time_text, figures), kept]


def _use(outcome: LoadOutcome) -> list[str]:
    plan, sent, received = outcome.plan, outcome.sent, outcome.received
    lines = []
    if outcome.broker is not None:
        lines.append(
            f"The broker used {outcome.broker_share:.3g} cores, {outcome.broker_us_per_message:.3g} µs for a message "
            f"with its deliveries, and {outcome.broker.memory_bytes / 1e6:,.1f} MB of memory."
        )
    cores = outcome.generator_s / (plan.seconds + plan.warm_up_s)
    lines.append(
        f"The generator used {cores:.3g} cores, sent {sent.sent / max(1, sent.writes):.3g} messages in a write and "
        f"took {received.delivered / max(1, received.reads):.3g} deliveries in a read."
    )
    if sent.written_off:
        lines.append(f"{sent.written_off:,} deliveries did not come for a second; publishers went on without them.")
    return lines


def time_text(seconds: float) -> str:
    """Returns a time with three digits and its unit.

    >>> time_text(0.00012345), time_text(1.5), time_text(float("nan"))
    ('123 µs', '1.50 s', '-')
    """
    if math.isnan(seconds):
        return "-"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (math.inf, 1.0, "s")):
        if seconds < limit:
            scaled = seconds * factor
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f} {unit}"
    return "-"
