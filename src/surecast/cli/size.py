"""`surecast size`: how many brokers, on which machines, at which cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import AsJson, ScenarioInput, takes_groups
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.planning.sizing import Candidate, Sizing

__all__ = ["size"]

NOTHING_FITS = 3


@takes_groups
def size(
    source: ScenarioInput,
    machines: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Machine classes with their costs; by default those of Surecast."),
    ] = None,
    headroom: Annotated[str, typer.Option(metavar="SHARE", help="Part of each resource that stays free.")] = "30%",
    may_fail: Annotated[
        bool, typer.Option("--may-fail/--none-fails", help="All holds also with any one broker down.")
    ] = True,
    json: AsJson = False,
) -> None:
    """Find how many brokers a scenario needs at each site, on which machines, at which cost.

    Each broker of the scenario stands for a site and has a profile. Exits with 3 where nothing carries the load.
    """
    from surecast.cli.output import print_json, working
    from surecast.planning.sizing import Limits, load_catalogue, size_system

    limits = Limits(_share(headroom), may_fail)
    catalogue = load_catalogue(machines)
    scenario = source.load()
    with working("sizing"):
        found = size_system(scenario.system, catalogue, limits)
    if json:
        print_json(found.as_dict())
    else:
        _print(found)
    if found.chosen is None:
        raise typer.Exit(NOTHING_FITS)


def _share(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%")) / (100.0 if text.strip().endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise ConfigurationError(f"--headroom {text}: write a share such as 30% or 0.3, below 1")
    return value


def _print(found: Sizing) -> None:
    from surecast.cli.load_output import time_text
    from surecast.cli.output import console, print_table

    console.print(found.sentence, soft_wrap=True)
    promise = found.promise
    if promise is not None and promise.reliability is not None:
        delays = [time_text(each) for each in (promise.delay_p50_s, promise.delay_p99_s) if each is not None]
        console.print(
            f"Every subscriber gets {100 * promise.reliability:.5g} % of its events in time or more"
            + (f", half of them within {delays[0]} and 99 % within {delays[1]}" if len(delays) == 2 else "")
            + " (by prediction).",
            soft_wrap=True,
        )
    if found.chosen is not None:
        limiting = found.chosen.limiting
        console.print(f"What limits it: {limiting.words}, {limiting.share:.0%} of its limit.", soft_wrap=True)
        console.print(
            f"No answer is cheaper than {found.chosen.cost / (1.0 + found.gap):g} {found.currency}: the gap is at most "
            f"{found.gap:.0%}.",
            soft_wrap=True,
        )
    rows = [_row(found, candidate.machine.name, candidate) for candidate in found.tried]
    print_table(["machines"], ("brokers", "cost", "used", "what limits"), rows)
    print_table(["else"], ("brokers", "cost", "used", "what limits"), list(_others(found)))
    changes = [
        [w.change, "yes" if w.still_fits else "no", _counts(w.needed) if w.needed.fits else "nothing does"]
        for w in found.what_if
    ]
    if changes:
        print_table(["what if"], ("still enough", "needed"), changes, title="The same machines under other loads")
    for note in found.notes:
        console.print(note, soft_wrap=True)


def _counts(candidate: Candidate) -> str:
    return " + ".join(str(count) for count in candidate.counts)


def _row(found: Sizing, name: str, candidate: Candidate) -> list[str]:
    if not candidate.fits:
        return [name, "-", "-", f"{candidate.limiting.share:.0%}", candidate.limiting.words]
    return [
        name, _counts(candidate), f"{candidate.cost:g}", f"{candidate.limiting.share:.0%}", candidate.limiting.words
    ]  # fmt: skip


def _others(found: Sizing) -> list[list[str]]:
    rows = []
    for name, candidate in (
        ("cheaper: no broker may fail", found.cheaper),
        ("safer: more headroom", found.safer),
        ("if cores are as slow as assumed", found.slowest),
    ):
        if candidate is not None:
            rows.append(_row(found, f"{name} ({candidate.machine.name})", candidate))
    return rows
