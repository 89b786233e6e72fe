"""`surecast drop`: which events to drop for a subscriber that comes and goes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.drop_output import (
    QUANTILES,
    aim_text,
    as_data,
    print_answer,
    range_text,
    write_answer_page,
)
from surecast.cli.options import AsJson
from surecast.errors import AssumptionError, ConfigurationError, SaturationError, refuse_unknown

if TYPE_CHECKING:
    from surecast.prediction.dropping.cases import Case, Gives, RateRange
    from surecast.scenario.mechanism import Mechanism

__all__ = ["app"]

app = typer.Typer(help="Choose which events to drop for a subscriber that connects and disconnects.")
PICTURE_WIDTH = 1280
EXAMPLE = "--arrival 2/s --service 8/s --on 20s --off 20s --target 7s"


@app.callback(invoke_without_command=True)
def drop(
    context: typer.Context,
    arrival: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Rate of events for the subscriber, such as 2/s; left out, the highest possible is shown.",
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Rate at which events can be sent while it is connected, such as 8/s."),
    ] = None,
    on: Annotated[str | None, typer.Option(metavar="TIME", help="Mean connected period, such as 20s.")] = None,
    off: Annotated[str | None, typer.Option(metavar="TIME", help="Mean disconnected period.")] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TIME", help="Target for the time from publication to delivery, such as 7s.")
    ] = None,
    quantile: Annotated[
        float | None,
        typer.Option(help="Share of the delivered events that must meet the target; by default their mean must."),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="RATE",
            help="Service rate of the broker's input queue; by default there is no such queue.",
        ),
    ] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MECHANISM",
            help="none, probabilistic, finite-buffer, expiry, exponential-expiry or optimal. May be repeated; all by "
            "default.",
        ),
    ] = None,
    unprotected: Annotated[
        bool,
        typer.Option(
            "--unprotected", help="Show also the best policy that may refuse events while the subscriber is connected."
        ),
    ] = False,
    join_probability: Annotated[
        float | None, typer.Option(help="Evaluate this join probability while disconnected.")
    ] = None,
    buffer: Annotated[int | None, typer.Option(help="Evaluate a queue of so many events.")] = None,
    lifetime: Annotated[str | None, typer.Option(metavar="TIME", help="Evaluate this lifetime of events.")] = None,
    exponential: Annotated[
        bool,
        typer.Option("--exponential", help="Draw lifetimes from an exponential distribution with mean --lifetime."),
    ] = False,
    simulate: Annotated[bool, typer.Option("--simulate", help="Check every row by simulation.")] = False,
    runs: Annotated[int, typer.Option(min=2, help="Runs of the simulation.")] = 10,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Simulated time of a run.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 1,
    page: Annotated[Path | None, typer.Option(help="Write the answer as a page (.html).")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw what is delivered within which time (.html, .svg or .png).")
    ] = None,
    json: AsJson = False,
) -> None:
    """Choose which events to drop for a subscriber that connects and disconnects.

    With --arrival and --target: the parameter of each mechanism that meets the target, and what it then delivers. With
    parameters of your own: what they deliver, and whether they meet the target. Without --arrival: how many events may
    be published.
    """
    if context.invoked_subcommand is not None:
        return
    _check_files(page, picture)
    rates = {"--arrival": _rate("--arrival", arrival), "--service": _rate("--service", service)}
    times = {"--on": _time("--on", on), "--off": _time("--off", off)}
    for option, value in {"--service": rates["--service"], **times}.items():
        if value is None:
            raise ConfigurationError(f"{option} is missing; write for instance: surecast drop {EXAMPLE}")
    if unprotected and (arrival is None or target is None):
        raise ConfigurationError("--unprotected looks for the best policy; give --arrival and --target, too")
    parameters = _mechanism_of(
        mechanism or unprotected, join_probability, buffer, _time("--lifetime", lifetime), exponential
    )
    aim = _time("--target", target)
    if quantile is not None and not 0 < quantile < 1:
        raise ConfigurationError(f"--quantile {quantile:g}: write a share between 0 and 1, such as 0.95")
    if quantile is not None and aim is None:
        raise ConfigurationError("--quantile is the share of events that keep a target; give --target, too")
    from surecast.prediction.dropping.cases import Case

    entry = _rate("--input", into) or math.inf
    kinds = _kinds(mechanism, unprotected)
    arrives = rates["--arrival"]
    first = min(entry, rates["--service"] or 1.0) / 2.0 if arrives is None else arrives
    case = Case(first, rates["--service"] or 0.0, times["--on"] or 0.0, times["--off"] or 0.0, entry, aim, quantile)
    if arrives is None:
        if simulate or page or picture:
            raise ConfigurationError("--simulate, --page and --picture need an --arrival rate")
        _answer_rates(case, parameters, kinds, json)
        return
    gives = _gives(case, parameters, kinds)
    checked = _simulated(gives, case, runs, _time("--duration", duration) or 20_000.0, seed) if simulate else None
    limits = _limits(case)
    if page is not None:
        write_answer_page(gives, case, checked, limits, page)
    if picture is not None:
        from surecast.studio.drop_page import draw_case

        draw_case(gives, case, picture)
    if json:
        from surecast.cli.output import print_json

        print_json(as_data(gives, case, checked, limits))
    else:
        print_answer(gives, case, checked, limits, [file for file in (page, picture) if file is not None])


def _check_files(page: Path | None, picture: Path | None) -> None:
    from surecast.studio.files import checked_path

    for path in (page, picture):
        if path is not None:
            checked_path(path, PICTURE_WIDTH)
    if page is not None and page.suffix.lower() != ".html":
        raise ConfigurationError(f"--page {page}: end its name in .html")


def _rate(option: str, text: str | None) -> float | None:
    from surecast.documents.units import parse_rate

    return _positive(option, text, parse_rate, "a rate such as 2/s")


def _time(option: str, text: str | None) -> float | None:
    from surecast.documents.units import parse_duration

    return _positive(option, text, parse_duration, "a time such as 20s")


def _positive(option: str, text: str | None, parse: Any, example: str) -> float | None:
    if text is None:
        return None
    try:
        value: float = parse(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None
    if not 0.0 < value < math.inf:
        raise ConfigurationError(f"{option} {text}: write {example}, above 0 and finite")
    return value


def _mechanism_of(
    wanted: list[str] | bool, join: float | None, buffer: int | None, lifetime_s: float | None, exponential: bool
) -> Mechanism | None:
    """Returns the mechanism that the options describe, None if they describe none."""
    from surecast.scenario.mechanism import Mechanism

    if exponential and lifetime_s is None:
        raise ConfigurationError("--exponential says how --lifetime is distributed; give --lifetime, too")
    if join is None and buffer is None and lifetime_s is None:
        return None
    if wanted:
        raise ConfigurationError(
            "--mechanism and --unprotected look for parameters, and --join-probability, --buffer or --lifetime give "
            "them; use one or the other"
        )
    if join is not None and not 0.0 <= join <= 1.0:
        raise ConfigurationError(f"--join-probability {join:g}: write a number from 0 to 1")
    if buffer is not None and buffer < 1:
        raise ConfigurationError(f"--buffer {buffer}: write 1 or more")
    return Mechanism(
        join_probability=1.0 if join is None else join,
        buffer_size=buffer,
        lifetime_s=math.inf if lifetime_s is None else lifetime_s,
        lifetime_distribution="exponential" if exponential else "deterministic",
    )


def _kinds(names: list[str] | None, unprotected: bool) -> tuple[str, ...]:
    from surecast.prediction.dropping.cases import MECHANISMS, UNPROTECTED

    refuse_unknown("mechanism", names or (), MECHANISMS)
    return (*(dict.fromkeys(names) if names else MECHANISMS), *((UNPROTECTED,) if unprotected else ()))


def _gives(case: Case, parameters: Mechanism | None, kinds: tuple[str, ...]) -> list[Gives]:
    """Returns one row for each mechanism; raises an error if there is none to show."""
    from surecast.cli.output import working
    from surecast.prediction.dropping.cases import all_gives, gives_of

    if parameters is None and case.target_s is None and kinds != ("none",):
        raise ConfigurationError(
            "which parameters are best depends on --target; give it, or parameters of your own (--join-probability, "
            "--buffer, --lifetime), or --mechanism none"
        )
    with working("computing"):
        gives = [gives_of(case, parameters)] if parameters is not None else all_gives(case, kinds)
    possible = [each for each in gives if each.outcome is not None]
    if not possible or (parameters is None and case.target_s is not None and not any(each.met for each in possible)):
        reasons: dict[str, list[str]] = {}
        for each in gives:
            reasons.setdefault(_reason(each, case), []).append(each.kind)
        text = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        raise SaturationError(text) if all(each.is_saturated for each in gives) else AssumptionError(text)
    return gives


def _reason(gives: Gives, case: Case) -> str:
    """Returns the reason why a mechanism does not help."""
    if gives.outcome is None:
        return gives.refusal.removeprefix(f"{gives.kind}: ")
    return f"{aim_text(case)} is missed, the mean is {gives.outcome.delay_mean_s:.4g} s"


def _limits(case: Case) -> dict[str, RateRange | None]:
    """Returns how many events may be published without dropping, and with all dropped while disconnected."""
    from surecast.prediction.dropping.cases import rates_meeting
    from surecast.scenario.mechanism import Mechanism

    if case.target_s is None:
        return {}
    return {
        "without dropping": rates_meeting(case, Mechanism()),
        "with everything dropped while disconnected": rates_meeting(case, Mechanism(join_probability=0.0)),
    }


def _answer_rates(case: Case, parameters: Mechanism | None, kinds: tuple[str, ...], json: bool) -> None:
    """Prints how many events may be published so that a target is met."""
    from surecast.cli.output import console, print_json
    from surecast.prediction.dropping.cases import MECHANISMS, rates_meeting
    from surecast.scenario.mechanism import parameter_text

    if case.target_s is None:
        raise ConfigurationError(f"give --arrival, or --target to see what may arrive; for instance: {EXAMPLE}")
    if kinds != MECHANISMS:
        raise ConfigurationError("--mechanism looks for parameters at an arrival rate; give --arrival, too")
    ranges = (
        _limits(case) if parameters is None else {f"with {parameter_text(parameters)}": rates_meeting(case, parameters)}
    )
    if all(rates is None for rates in ranges.values()):
        raise AssumptionError(f"{aim_text(case)} is met at no arrival rate {' or '.join(ranges)}; ask for more time")
    if json:
        data = {
            name: None if rates is None else {"low_per_s": rates.low_per_s, "high_per_s": rates.high_per_s}
            for name, rates in ranges.items()
        }
        print_json({"target_s": case.target_s, "quantile": case.quantile, "arrival_rates": data})
        return
    for name, rates in ranges.items():
        console.print(f"{aim_text(case)[0].upper()}{aim_text(case)[1:]} {range_text(rates)} {name}.", soft_wrap=True)


def _simulated(gives: list[Gives], case: Case, runs: int, duration_s: float, seed: int) -> dict[str, dict[str, Any]]:
    """Returns each row by simulation: values and half-widths, by kind and metric."""
    from surecast.cli.output import working
    from surecast.simulation import simulate_queue

    possible = [each for each in gives if each.outcome is not None]
    with working("simulating"):
        sweep = simulate_queue(
            case.arrival_per_s,
            case.service_per_s,
            case.on_s,
            case.off_s,
            [each.mechanism for each in possible],
            input_per_s=case.input_per_s,
            runs=runs,
            duration_s=duration_s,
            warm_up_s=duration_s / 20.0,
            seed=seed,
        )
    estimates = {
        "success_share": sweep.success_share,
        "delay_mean_s": sweep.delay_mean_s,
        "failed_connected_share": sweep.failed_connected_share,
    }
    tails = {f"p{100 * q:g}": sweep.delay_quantile_s(q) for q in QUANTILES}
    results: dict[str, dict[str, Any]] = {}
    for k, each in enumerate(possible):
        results[each.kind] = {
            name: {"value": float(value[k]), "half_width": float(half[k])} for name, (value, half) in estimates.items()
        } | {name: float(values[k]) for name, values in tails.items()}
    return results


@app.command()
def figures(
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write (.html).")],
    data: Annotated[Path | None, typer.Option(help="Save all numbers (.json or .parquet).")] = None,
    pictures: Annotated[Path | None, typer.Option(help="A folder for the single figures as .svg pictures.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rates and shorter runs.")] = False,
    runs: Annotated[int | None, typer.Option(min=0, help="Least number of runs of the simulation; 0: none.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 2019,
) -> None:
    """Draw the comparison of mechanisms in the dropping paper, its figures 4 to 7, by formula and by simulation."""
    from surecast.cli.output import console, progress_bar
    from surecast.planning.drop_figures import Effort, Setting, drop_figures, save_rows
    from surecast.studio.drop_page import draw_figures, write_figures_page

    _check_files(out, None)
    if data is not None and (data.suffix.lower() not in (".json", ".parquet") or not data.parent.is_dir()):
        raise ConfigurationError(f"--data {data}: end its name in .json or .parquet, in a folder that exists")
    setting, effort = Setting(), Effort(seed=seed)
    if quick:
        setting = replace(setting, rates=(0.05, 1.0, 2.0, 4.0, 6.0, 7.7), response_rates=(0.05, 1.0, 2.0, 3.0), fine=12)
        effort = replace(effort, runs=4, runs_max=4, duration_s=10_000.0)
    if runs is not None:
        effort = replace(effort, runs=runs, runs_max=max(runs, effort.runs_max if not quick else runs))
    with progress_bar("computing and simulating") as progress:
        rows = drop_figures(setting, effort, progress)
    write_figures_page(rows, setting, effort, out, quick=quick)
    written = [out]
    if data is not None:
        written.append(save_rows(rows, data))
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        written += draw_figures(rows, setting, pictures)
    for path in written:
        console.print(f"wrote {path}", markup=False, soft_wrap=True)
