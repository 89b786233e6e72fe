"""`surecast calibrate`: measure what an MQTT broker on this machine costs, and write its profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.load import BrokerAddress, BrokerPids
from surecast.cli.mqtt_options import AccessOptions
from surecast.cli.options import AsJson, takes_groups
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.calibration import Calibration, Checked
    from surecast.profile import BrokerProfile

__all__ = ["calibrate"]


@takes_groups
def calibrate(
    address: BrokerAddress,
    entry: AccessOptions,
    pids: BrokerPids = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the profile.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the profile; by default that of its file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter loads; wider intervals.")] = False,
    no_memory: Annotated[
        bool, typer.Option("--no-memory", help="Leave out what connections and messages keep.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order and of the times of messages.")] = 1,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Drive the broker to saturation without asking.")] = False,
    json: AsJson = False,
) -> None:
    """Measure what a broker on this machine costs, and write its profile.

    It drives the broker to saturation, and asks before. Nothing half-measured becomes a profile.
    """
    from surecast.calibration import calibrate as measure
    from surecast.calibration import find_processes, intention
    from surecast.cli.output import console, print_json, progress_bar
    from surecast.profile.profile_file import profile_text

    access = entry.access(address)
    if out is not None and not out.parent.is_dir():
        raise ConfigurationError(f"--out {out}: there is no folder {out.parent}")
    _consent(intention(access, quick), yes)
    processes = pids or find_processes(access)
    title = name or (out.stem if out is not None else str(access))
    with progress_bar(f"calibrating {access}") as move:
        found = measure(
            access,
            processes,
            name=title,
            quick=quick,
            memory=not no_memory,
            seed=seed,
            on_progress=lambda _, done, total: move(int(done), int(total)),
        )
    if out is not None:
        out.write_text(profile_text(found.profile), encoding="utf-8")
    if json:
        print_json(found.as_dict())
        return
    console.print(verdict(found, out), soft_wrap=True)
    _print_tables(found)
    for note in found.notes:
        console.print(note, soft_wrap=True)


def _consent(intention: str, yes: bool) -> None:
    """Says what will happen; asks, or refuses where nobody can be asked."""
    import sys

    typer.echo(intention, err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError("--yes is missing: a broker that others use is not driven to saturation by accident")
    if not typer.confirm("Go on?", err=True):
        raise ConfigurationError("nothing was done")


def verdict(found: Calibration, out: Path | None = None) -> str:
    """Returns the answer in a few sentences."""
    profile, errors = found.profile, found.profile.errors
    costs = profile.costs.seconds()
    where = f" Written to {out}." if out is not None else " Not written: name a file with --out."
    text = (
        f"{profile.name}: a message costs {costs['message'] * 1e6:.3g} µs and a delivery "
        f"{(costs['delivery'] + costs['flush']) * 1e6:.3g} µs of processor time"
    )
    if errors.points:
        text += (
            f"; for {errors.points} loads that it had not seen, it was {errors.processor_time_median:.1%} off at the "
            f"median and {errors.processor_time_worst:.1%} at worst"
        )
    if errors.saturation is not None:
        text += f", and {errors.saturation:.1%} for the largest rate"
    return f"{text}. The same load again differs by {errors.repeatability:.1%}.{where}"


def _print_tables(found: Calibration) -> None:
    from surecast.cli.output import print_table

    profile = found.profile
    print_table(["processor time of"], ("cost", "from", "to"), _cost_rows(profile))
    print_table(["loads not used for it"], ("cores, predicted", "measured", "error"), _rows(found.checks, "{:.3g}"))
    print_table(["largest rate"], ("predicted /s", "measured /s", "error"), _rows(found.overloads, "{:,.0f}"))
    sizes = [
        [each, f"{getattr(profile.memory, each).estimate / 1e3:,.3g} kB"] for each in type(profile.memory).model_fields
    ]
    print_table(["memory of"], ("size",), sizes)


def _cost_rows(profile: BrokerProfile) -> list[list[str]]:
    rows = []
    for each in type(profile.costs).model_fields:
        interval = getattr(profile.costs, each)
        factor, unit = (1e9, "ns") if each.endswith("_byte") or each == "lookup" else (1e6, "µs")
        if interval.high:
            ends = (interval.estimate, interval.low, interval.high)
            rows.append([each.replace("_", " "), *(f"{value * factor:.3g} {unit}" for value in ends)])
    return rows


def _rows(checks: list[Checked], form: str) -> list[list[str]]:
    return [[c.name, form.format(c.predicted), form.format(c.measured), f"{c.error:+.1%}"] for c in checks]
