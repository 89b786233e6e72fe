"""`surecast advise`: what to promise, to move, to add, to improve and to choose, by predicted reliability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.options import AsJson, Overrides, ScenarioFile, parse_overrides

if TYPE_CHECKING:
    from surecast.scenario import System

app = typer.Typer(
    help="Decide by prediction: admission, home brokers, deployment, improvement, choice of scheme, coding.",
    no_args_is_help=True,
)
Limit = Annotated[int, typer.Option(min=0, help="How many rows to list.")]
WIDTH_PX = 1280
Pictures = Annotated[
    list[Path] | None,
    typer.Option(
        "--picture", metavar="PICTURE", help="Draw the answer to a .html, .svg or .png file. May be repeated."
    ),
]


def share(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.4f}"


@app.command()
def admission(
    file: ScenarioFile,
    limit: Limit = 20,
    picture: Pictures = None,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Show which subscribers can be promised their target, and what would make the rest fit."""
    from rich.table import Table

    from surecast.cli.output import console, print_json, working
    from surecast.planning import admit
    from surecast.studio.bars_advice import draw_admission

    system = _begin(file, overrides, picture, json)
    with working("predicting"):
        promises = admit(system)
    _draw(picture, lambda path: draw_admission(promises, path))
    if json:
        print_json([asdict(promise) for promise in promises])
        return
    served = [promise for promise in promises if promise.reliability is not None]
    met = sum(promise.met for promise in served)
    scheme = system.delivery.fault_tolerance.scheme
    console.print(f"{met} of {len(served)} subscribers can be promised their target with {scheme}.")
    table = Table("subscriber", "home", "target", "predicted", "best anywhere", "fits with scheme", "fits at home")
    rest = [promise for promise in promises if not promise.met]
    for p in rest[:limit]:
        if p.reliability is None:
            table.add_row(p.subscriber, p.home, share(p.target), "nobody publishes its topics")
            continue
        table.add_row(
            p.subscriber,
            p.home,
            share(p.target),
            share(p.reliability),
            share(p.best),
            p.other_scheme or "no scheme",
            p.other_home or "no home",
        )
    if rest:
        console.print(table)
        _print_more(len(rest), limit)
    _print_drawn(picture)


@app.command()
def homes(
    file: ScenarioFile,
    most: Annotated[int | None, typer.Option(min=1, help="Most subscribers at one broker.")] = None,
    limit: Limit = 20,
    picture: Pictures = None,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Find the best home broker for every subscriber."""
    import numpy as np
    from rich.table import Table

    from surecast.cli.output import console, print_json, working
    from surecast.planning import choose_homes
    from surecast.studio.bars_advice import draw_homes

    system = _begin(file, overrides, picture, json)
    with working("predicting"):
        choice = choose_homes(system, limit=most)
    _draw(picture, lambda path: draw_homes(choice, path, limit=most))
    before, after = float(np.nanmean(choice.reliability_before)), float(np.nanmean(choice.reliability_after))
    rows = zip(
        choice.subscribers,
        choice.before,
        choice.after,
        choice.reliability_before,
        choice.reliability_after,
        strict=True,
    )
    moves = sorted((r for r in rows if r[1] != r[2]), key=lambda r: float(np.nan_to_num(r[3] - r[4])))
    if json:
        keys = ("subscriber", "from", "to", "reliability_before", "reliability_after")
        moved = [
            dict(zip(keys, (*names, _number_or_none(x), _number_or_none(y)), strict=True)) for *names, x, y in moves
        ]
        print_json({"mean_before": before, "mean_after": after, "moves": moved})
        return
    console.print(
        f"{len(moves)} of {len(choice.subscribers)} subscribers should move: mean {before:.4f} to {after:.4f}."
    )
    table = Table("subscriber", "from", "to", "predicted now", "predicted then")
    for name, old, new, was, becomes in moves[:limit]:
        table.add_row(name, old, new, share(float(was)), share(float(becomes)))
    if moves:
        console.print(table)
        _print_more(len(moves), limit)
    _print_drawn(picture)


@app.command()
def improve(
    file: ScenarioFile,
    limit: Limit = 20,
    picture: Pictures = None,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Find the single component to improve first."""
    from rich.table import Table

    from surecast.cli.output import console, print_json, working
    from surecast.planning import improvements
    from surecast.studio.bars_advice import draw_improvements

    system = _begin(file, overrides, picture, json)
    with working("predicting"):
        rows = improvements(system)
    _draw(picture, lambda path: draw_improvements(rows, path))
    if json:
        print_json([asdict(row) for row in rows])
        return
    table = Table(
        "component", "kind", "availability", "gain per availability", "if repaired twice as fast", "if perfect",
        title="Gain in mean reliability",
    )  # fmt: skip
    for row in rows[:limit]:
        gains = (row.derivative, row.gain_half_repair, row.gain_perfect)
        table.add_row(row.component, row.kind, share(row.availability), *(f"{gain:.5f}" for gain in gains))
    console.print(table)
    _print_more(len(rows), limit)
    _print_drawn(picture)


@app.command()
def scheme(file: ScenarioFile, picture: Pictures = None, overrides: Overrides = None, json: AsJson = False) -> None:
    """Find the cheapest scheme that meets all targets, by messages per event."""
    from rich.table import Table

    from surecast.cli.output import console, print_json, working
    from surecast.planning import compare_schemes
    from surecast.studio.bars_advice import common_target, draw_schemes

    system = _begin(file, overrides, picture, json)
    with working("predicting"):
        choices = compare_schemes(system)
    target = common_target(subscriber.reliability_target for subscriber in system.subscribers)
    _draw(picture, lambda path: draw_schemes(choices, path, target=target))
    if json:
        print_json([asdict(choice) for choice in choices])
        return
    table = Table("scheme", "messages per event", "mean reliability", "worst", "targets met")
    for choice in choices:
        met = f"{choice.met} of {choice.targets}" if choice.targets else "no targets"
        met += ", the cheapest that meets all" if choice.cheapest else ""
        table.add_row(choice.scheme, f"{choice.messages_per_event:.3g}", share(choice.mean), share(choice.worst), met)
    console.print(table)
    if choices[0].targets and not any(choice.cheapest for choice in choices):
        console.print("No scheme meets all targets; see: surecast advise admission, surecast advise improve")
    _print_drawn(picture)


@app.command()
def deploy(
    file: ScenarioFile,
    link_cost: Annotated[float, typer.Option(min=0.000001, help="Cost of a new overlay link.")] = 1.0,
    broker_cost: Annotated[
        float | None, typer.Option(min=0.000001, help="Cost of a new broker with two links; left out, none is added.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, max=50, help="Most additions.")] = 5,
    picture: Pictures = None,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Find the overlay links or brokers to add so that every target is met at least cost."""
    from rich.table import Table

    from surecast.cli.output import console, print_json, progress_bar
    from surecast.planning import plan_deployment
    from surecast.studio.bars_advice import draw_deployment

    system = _begin(file, overrides, picture, json)
    with progress_bar("trying additions") as progress:
        plan = plan_deployment(system, link_cost=link_cost, broker_cost=broker_cost, most=most, progress=progress)
    _draw(picture, lambda path: draw_deployment(plan, path))
    if json:
        print_json({**asdict(plan), "cost": plan.cost})
        return
    table = Table("step", "add", "cost", "subscribers below target", "mean reliability")
    table.add_row("0", "nothing", "", str(plan.below_target[0]), share(plan.mean[0]))
    for i, addition in enumerate(plan.additions, 1):
        cost = f"{addition.cost:g}"
        table.add_row(str(i), str(addition), cost, str(plan.below_target[i]), share(plan.mean[i]))
    console.print(table)
    if plan.met:
        console.print(f"All targets are met at cost {plan.cost:g}" + (", the least possible." if plan.optimal else "."))
    else:
        tried = f"with {len(plan.additions)} additions" if plan.additions else "and no addition helps"
        console.print(f"{plan.below_target[-1]} subscribers stay below target {tried}; see: surecast advise improve")
    _print_drawn(picture)


@app.command()
def coding(
    file: ScenarioFile,
    target: Annotated[float, typer.Option(help="Reliability that every subscriber is to get.")] = 0.999,
    cost: Annotated[str, typer.Option(help="What to spend least of: packets or bytes.")] = "packets",
    rounds: Annotated[int, typer.Option(min=0, max=20, help="Most rounds of gossip.")] = 6,
    limit: Limit = 10,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Find the cheapest redundancy, paths and gossip rounds with which every subscriber gets a target."""
    from typing import cast

    from rich.table import Table

    from surecast import Scenario
    from surecast.cli.output import console, print_json, progress_bar
    from surecast.prediction.coding.budget import Cost, choose_coding

    system = Scenario.load(file, parse_overrides(overrides)).system
    with progress_bar("trying redundancy, paths and rounds") as progress:
        budget = choose_coding(system, target, by=cast(Cost, cost), rounds_max=rounds, progress=progress)
    if json:
        print_json(asdict(budget))
        return
    best = budget.best
    if best is None:
        console.print(f"No choice reaches {target:g} for every subscriber; the most reliable ones:")
    else:
        console.print(
            f"The cheapest for {target:g}: {best.paths} paths, {best.coded_packets} coded packets (redundancy "
            f"{best.redundancy:.3g}), {best.rounds} rounds of gossip: {best.packets_per_event:,.0f} packets per event."
        )
    table = Table("paths", "redundancy", "rounds", "packets per event", "bytes per event", "worst", "all on time")
    for row in budget.choices[:limit]:
        amounts = (f"{row.packets_per_event:,.0f}", f"{row.bytes_per_event:,.0f}")
        table.add_row(
            row.paths, f"{row.redundancy:.3g}", str(row.rounds), *amounts, share(row.worst), share(row.all_on_time)
        )
    console.print(table)
    _print_more(len(budget.choices), limit)
    for refusal in budget.refused:
        console.print(f"left out: {refusal}", markup=False)


def _begin(file: Path, overrides: list[str] | None, pictures: list[Path] | None, json: bool) -> System:
    """Returns the system to advise on. Names what the predictions leave out, beside JSON on standard error.

    Refuses a file that cannot be drawn to before anything is computed.
    """
    from surecast import Scenario
    from surecast.cli.output import console, errors
    from surecast.scenario.coverage import left_out

    if pictures:
        from surecast.studio.files import checked_path

        for path in pictures:
            checked_path(path, WIDTH_PX)
    system = Scenario.load(file, parse_overrides(overrides)).system
    for sentence in left_out(system, "the reliability model"):
        (errors if json else console).print(f"! {sentence}", style="yellow", markup=False)
    return system


def _print_more(total: int, limit: int) -> None:
    from surecast.cli.output import console

    if total > limit:
        console.print(f"... and {total - limit} more; --limit shows more, --json shows all")


def _number_or_none(value: float) -> float | None:
    """Returns a number that JSON can carry; None for the reliability of a subscriber without a publisher."""
    return None if value != value else float(value)


def _draw(paths: list[Path] | None, draw: Callable[[Path], Any]) -> None:
    from surecast.cli.output import working

    for path in paths or []:
        with working(f"drawing {path}"):
            draw(path)


def _print_drawn(paths: list[Path] | None) -> None:
    from surecast.cli.output import console

    for path in paths or []:
        console.print(f"drew {path}", markup=False, soft_wrap=True)
