"""`surecast advise`: what to promise, to move, to add, to improve and to choose, by predicted reliability."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import AsJson, Pictures, ScenarioInput, takes_groups

if TYPE_CHECKING:
    from surecast.scenario import System

app = typer.Typer(
    help="Improve a system by prediction: promises, home brokers, new links and brokers, repairs, schemes.",
    no_args_is_help=True,
)
Limit = Annotated[int, typer.Option(min=0, help="How many rows to list.")]


@dataclass(frozen=True, kw_only=True)
class AdviceOptions(ScenarioInput):
    """The scenario to advise on, and the form of the advice."""

    picture: Pictures = None
    json: AsJson = False

    def begin(self) -> System:
        """Returns the system to advise on, and names what the predictions leave out, beside JSON on standard error.

        Refuses a file that cannot be drawn to before anything is computed.
        """
        from surecast.cli.output import check_pictures, console, errors
        from surecast.scenario.coverage import left_out

        check_pictures(self.picture)
        system = self.load().system
        for sentence in left_out(system, "the reliability model"):
            (errors if self.json else console).print(f"! {sentence}", style="yellow", markup=False)
        return system


def share(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.4f}"


@app.command()
@takes_groups
def admission(
    options: AdviceOptions,
    limit: Limit = 20,
) -> None:
    """Show which subscribers can be promised their target, and what would make the rest fit."""
    from surecast.cli.output import console, draw_pictures, print_drawn, print_json, print_more, print_table, working
    from surecast.planning import admit
    from surecast.studio.bars import draw_admission

    system = options.begin()
    with working("predicting"):
        promises = admit(system)
    draw_pictures(options.picture, lambda path: draw_admission(promises, path))
    if options.json:
        print_json([asdict(promise) for promise in promises])
        return
    served = [promise for promise in promises if promise.reliability is not None]
    met = sum(promise.met for promise in served)
    scheme = system.delivery.fault_tolerance.scheme
    console.print(f"{met} of {len(served)} subscribers can be promised their target with {scheme}.")
    rest = [promise for promise in promises if not promise.met]
    rows = [
        [p.subscriber, p.home, "nobody publishes its topics", "", share(p.target), "", ""]
        if p.reliability is None
        else [
            p.subscriber,
            p.home,
            p.other_scheme or "no scheme",
            p.other_home or "no home",
            share(p.target),
            share(p.reliability),
            share(p.best),
        ]
        for p in rest[:limit]
    ]
    if rest:
        names = ("subscriber", "home", "fits with scheme", "fits at home")
        print_table(names, ("target", "predicted", "best anywhere"), rows)
        print_more(len(rest), limit)
    print_drawn(options.picture)


@app.command()
@takes_groups
def homes(
    options: AdviceOptions,
    most: Annotated[int | None, typer.Option(min=1, help="Largest number of subscribers at one broker.")] = None,
    limit: Limit = 20,
) -> None:
    """Find the best home broker of every subscriber."""
    import numpy as np

    from surecast.cli.output import console, draw_pictures, print_drawn, print_json, print_more, print_table, working
    from surecast.planning import choose_homes
    from surecast.studio.bars import draw_homes

    system = options.begin()
    with working("predicting"):
        choice = choose_homes(system, limit=most)
    draw_pictures(options.picture, lambda path: draw_homes(choice, path, limit=most))
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
    if options.json:
        keys = ("subscriber", "from", "to", "reliability_before", "reliability_after")
        moved = [dict(zip(keys, (*names, float(x), float(y)), strict=True)) for *names, x, y in moves]
        print_json({"mean_before": before, "mean_after": after, "moves": moved})
        return
    console.print(
        f"{len(moves)} of {len(choice.subscribers)} subscribers should move: mean {before:.4f} to {after:.4f}."
    )
    if moves:
        shown = [[name, old, new, share(float(was)), share(float(then))] for name, old, new, was, then in moves[:limit]]
        print_table(("subscriber", "from", "to"), ("predicted now", "predicted then"), shown)
        print_more(len(moves), limit)
    print_drawn(options.picture)


@app.command()
@takes_groups
def improve(
    options: AdviceOptions,
    limit: Limit = 20,
) -> None:
    """Rank brokers and links by the gain in reliability if they failed less."""
    from surecast.cli.output import draw_pictures, print_drawn, print_json, print_more, print_table, working
    from surecast.planning import improvements
    from surecast.studio.bars import draw_improvements

    system = options.begin()
    with working("predicting"):
        rows = improvements(system)
    draw_pictures(options.picture, lambda path: draw_improvements(rows, path))
    if options.json:
        print_json([asdict(row) for row in rows])
        return
    shown = []
    for row in rows[:limit]:
        gains = (row.derivative, row.gain_half_repair, row.gain_perfect)
        shown.append([row.component, row.kind, share(row.availability), *(f"{gain:.5f}" for gain in gains)])
    headers = ("availability", "gain per availability", "if repaired twice as fast", "if perfect")
    print_table(("component", "kind"), headers, shown, title="Gain in mean reliability")
    print_more(len(rows), limit)
    print_drawn(options.picture)


@app.command()
@takes_groups
def scheme(options: AdviceOptions) -> None:
    """Find the cheapest scheme that meets all targets, by messages per event."""
    from surecast.cli.output import console, draw_pictures, print_drawn, print_json, print_table, working
    from surecast.planning import compare_schemes
    from surecast.studio.bars import common_target, draw_schemes

    system = options.begin()
    with working("predicting"):
        choices = compare_schemes(system)
    target = common_target(subscriber.reliability_target for subscriber in system.subscribers)
    draw_pictures(options.picture, lambda path: draw_schemes(choices, path, target=target))
    if options.json:
        print_json([asdict(choice) for choice in choices])
        return
    cheapest = next((choice.scheme for choice in choices if choice.cheapest), None)
    if cheapest is not None:
        console.print(f"{cheapest} is the cheapest scheme that meets all targets.")
    elif choices[0].targets:
        console.print("No scheme meets all targets; see: surecast advise admission, surecast advise improve")
    rows = []
    for choice in choices:
        met = f"{choice.met} of {choice.targets}" if choice.targets else "no targets"
        rows.append([choice.scheme, met, f"{choice.messages_per_event:.3g}", share(choice.mean), share(choice.worst)])
    print_table(("scheme", "targets met"), ("messages per event", "mean reliability", "worst"), rows)
    print_drawn(options.picture)


@app.command()
@takes_groups
def deploy(
    options: AdviceOptions,
    link_cost: Annotated[float, typer.Option(min=0.000001, help="Cost of a new overlay link.")] = 1.0,
    broker_cost: Annotated[
        float | None,
        typer.Option(min=0.000001, help="Cost of a new broker with two links; by default no broker is added."),
    ] = None,
    most: Annotated[int, typer.Option(min=1, max=50, help="Largest number of additions.")] = 5,
) -> None:
    """Find the overlay links or brokers to add so that every target is met at least cost."""
    from surecast.cli.output import console, draw_pictures, print_drawn, print_json, print_table, progress_bar
    from surecast.planning import plan_deployment
    from surecast.studio.bars import draw_deployment

    system = options.begin()
    with progress_bar("trying additions") as progress:
        plan = plan_deployment(system, link_cost=link_cost, broker_cost=broker_cost, most=most, progress=progress)
    draw_pictures(options.picture, lambda path: draw_deployment(plan, path))
    if options.json:
        print_json({**asdict(plan), "cost": plan.cost})
        return
    if plan.met:
        console.print(f"All targets are met at cost {plan.cost:g}" + (", the least possible." if plan.optimal else "."))
    else:
        tried = f"with {len(plan.additions)} additions" if plan.additions else "and no addition helps"
        console.print(f"{plan.below_target[-1]} subscribers stay below target {tried}; see: surecast advise improve")
    steps = [("nothing", ""), *((str(addition), f"{addition.cost:g}") for addition in plan.additions)]
    rows = [
        [str(i), name, cost, str(plan.below_target[i]), share(plan.mean[i])] for i, (name, cost) in enumerate(steps)
    ]
    print_table(("step", "add"), ("cost", "subscribers below target", "mean reliability"), rows)
    print_drawn(options.picture)


@app.command()
@takes_groups
def coding(
    source: ScenarioInput,
    target: Annotated[float, typer.Option(help="Reliability that every subscriber is to get.")] = 0.999,
    cost: Annotated[str, typer.Option(help="What to minimise: packets or bytes.")] = "packets",
    rounds: Annotated[int, typer.Option(min=0, max=20, help="Largest number of gossip rounds.")] = 6,
    limit: Limit = 10,
    json: AsJson = False,
) -> None:
    """Find the cheapest redundancy, paths and gossip rounds with which every subscriber meets a target."""
    from typing import cast

    from surecast.cli.output import console, print_json, print_more, print_table, progress_bar
    from surecast.prediction.coding.budget import Cost, choose_coding

    system = source.load().system
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
    rows = []
    for row in budget.choices[:limit]:
        amounts = (f"{row.packets_per_event:,.0f}", f"{row.bytes_per_event:,.0f}")
        shares = (share(row.worst), share(row.all_on_time))
        rows.append([row.paths, f"{row.redundancy:.3g}", str(row.rounds), *amounts, *shares])
    headers = ("redundancy", "rounds", "packets per event", "bytes per event", "worst", "all on time")
    print_table(("paths",), headers, rows)
    print_more(len(budget.choices), limit)
    for refusal in budget.refused:
        console.print(f"left out: {refusal}", markup=False)
