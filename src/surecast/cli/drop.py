"""`surecast drop`: which events to drop for a subscriber that comes and goes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.answers import progress_bar
from surecast.cli.options import AsJson
from surecast.errors import AssumptionError, ConfigurationError

if TYPE_CHECKING:
    from surecast.scenario.mechanism import Mechanism
    from surecast.studio.drop_cases import Case, Gives, RateRange

__all__ = ["app"]

app = typer.Typer(help="Decide which events to drop for a subscriber that comes and goes.")
PICTURE_WIDTH = 1280
EXAMPLE = "--arrival 2/s --service 8/s --on 20s --off 20s --target 7s"
QUANTILES = (0.5, 0.95, 0.99)


@app.callback(invoke_without_command=True)
def drop(
    context: typer.Context,
    arrival: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Events of interest published, such as 2/s. Left out: how many may be."),
    ] = None,
    service: Annotated[
        str | None, typer.Option(metavar="RATE", help="Events that can be sent while connected, such as 8/s.")
    ] = None,
    on: Annotated[str | None, typer.Option(metavar="TIME", help="Mean connected period, such as 20s.")] = None,
    off: Annotated[str | None, typer.Option(metavar="TIME", help="Mean disconnected period.")] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time from publication to delivery to keep, such as 7s.")
    ] = None,
    quantile: Annotated[
        float | None, typer.Option(help="Share of the delivered events that must keep it; by default the mean must.")
    ] = None,
    into: Annotated[
        str | None, typer.Option("--input", metavar="RATE", help="Rate of the broker's input queue; by default none.")
    ] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MECHANISM",
            help="none, probabilistic, finite-buffer, expiry, exponential-expiry or optimal. May be repeated; all by "
            "default.",
        ),
    ] = None,
    join_probability: Annotated[
        float | None, typer.Option(help="Judge this probability to join the queue while disconnected.")
    ] = None,
    buffer: Annotated[int | None, typer.Option(help="Judge a queue for so many events.")] = None,
    lifetime: Annotated[str | None, typer.Option(metavar="TIME", help="Judge this lifetime of events.")] = None,
    exponential: Annotated[bool, typer.Option("--exponential", help="Make --lifetime an exponential one.")] = False,
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
    """Decide which events to drop for a subscriber that comes and goes.

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
    given = _given(mechanism, join_probability, buffer, _time("--lifetime", lifetime), exponential)
    aim = _time("--target", target)
    if quantile is not None and not 0 < quantile < 1:
        raise ConfigurationError(f"--quantile {quantile:g}: write a share between 0 and 1, such as 0.95")
    if quantile is not None and aim is None:
        raise ConfigurationError("--quantile is the share of events that keep a target; give --target, too")
    from surecast.studio.drop_cases import Case

    entry = _rate("--input", into) or math.inf
    kinds = _kinds(mechanism)
    arrives = rates["--arrival"]
    first = min(entry, rates["--service"] or 1.0) / 2.0 if arrives is None else arrives
    case = Case(first, rates["--service"] or 0.0, times["--on"] or 0.0, times["--off"] or 0.0, entry, aim, quantile)
    if arrives is None:
        if simulate or page or picture:
            raise ConfigurationError("--simulate, --page and --picture need an --arrival rate")
        _answer_rates(case, given, kinds, json)
        return
    gives = _gives(case, given, kinds)
    checked = _simulated(gives, case, runs, _time("--duration", duration) or 20_000.0, seed) if simulate else None
    limits = _limits(case)
    if page is not None:
        _write_page(gives, case, checked, limits, page)
    if picture is not None:
        from surecast.studio.drop_page import draw_case

        draw_case(gives, case, picture)
    if json:
        from surecast.cli.output import print_json

        print_json(_as_data(gives, case, checked, limits))
    else:
        _print(gives, case, checked, limits, [file for file in (page, picture) if file is not None])


def _check_files(page: Path | None, picture: Path | None) -> None:
    from surecast.studio.files import checked_path

    for path in (page, picture):
        if path is not None:
            checked_path(path, PICTURE_WIDTH)
    if page is not None and page.suffix.lower() != ".html":
        raise ConfigurationError(f"--page {page}: end its name in .html")


def _rate(option: str, text: str | None) -> float | None:
    from surecast.scenario.units import parse_rate

    return _positive(option, text, parse_rate, "a rate such as 2/s")


def _time(option: str, text: str | None) -> float | None:
    from surecast.scenario.units import parse_duration

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


def _given(
    kinds: list[str] | None, join: float | None, buffer: int | None, lifetime_s: float | None, exponential: bool
) -> Mechanism | None:
    """The mechanism whose parameters are given, None if none are."""
    from surecast.scenario.mechanism import Mechanism

    if exponential and lifetime_s is None:
        raise ConfigurationError("--exponential says how --lifetime is distributed; give --lifetime, too")
    if join is None and buffer is None and lifetime_s is None:
        return None
    if kinds:
        raise ConfigurationError(
            "--mechanism looks for parameters, and --join-probability, --buffer or --lifetime give them; use one or "
            "the other"
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


def _kinds(names: list[str] | None) -> tuple[str, ...]:
    from surecast.studio.drop_cases import MECHANISMS

    for name in names or []:
        if name not in MECHANISMS:
            raise ConfigurationError(f"there is no mechanism {name!r}; there are: {', '.join(MECHANISMS)}")
    return tuple(dict.fromkeys(names)) if names else MECHANISMS


def _gives(case: Case, given: Mechanism | None, kinds: tuple[str, ...]) -> list[Gives]:
    """One row for each mechanism; an error where there is none to show."""
    from surecast.cli.output import working
    from surecast.studio.drop_cases import all_gives, gives_of

    if given is None and case.target_s is None and kinds != ("none",):
        raise ConfigurationError(
            "which parameters are best depends on --target; give it, or parameters of your own (--join-probability, "
            "--buffer, --lifetime), or --mechanism none"
        )
    with working("computing"):
        gives = [gives_of(case, given)] if given is not None else all_gives(case, kinds)
    found = [one for one in gives if one.outcome is not None]
    if not found or (given is None and case.target_s is not None and not any(one.met for one in found)):
        reasons: dict[str, list[str]] = {}
        for one in gives:
            reasons.setdefault(_reason(one, case), []).append(one.kind)
        raise AssumptionError("; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items()))
    return gives


def _reason(one: Gives, case: Case) -> str:
    """Why a mechanism does not help."""
    if one.outcome is None:
        return one.refusal.removeprefix(f"{one.kind}: ")
    return f"{_aim(case)} is missed, the mean is {one.outcome.delay_mean_s:.4g} s"


def _limits(case: Case) -> dict[str, RateRange | None]:
    """How many events may be published without dropping, and with all dropped while disconnected."""
    from surecast.scenario.mechanism import Mechanism
    from surecast.studio.drop_cases import rates_meeting

    if case.target_s is None:
        return {}
    return {
        "without dropping": rates_meeting(case, Mechanism()),
        "with everything dropped while disconnected": rates_meeting(case, Mechanism(join_probability=0.0)),
    }


def _answer_rates(case: Case, given: Mechanism | None, kinds: tuple[str, ...], json: bool) -> None:
    """How many events may be published so that a target is met."""
    from surecast.cli.output import console, print_json
    from surecast.studio.drop_cases import MECHANISMS, parameter_text, rates_meeting

    if case.target_s is None:
        raise ConfigurationError(f"give --arrival, or --target to see what may arrive; for instance: {EXAMPLE}")
    if kinds != MECHANISMS:
        raise ConfigurationError("--mechanism looks for parameters at an arrival rate; give --arrival, too")
    found = _limits(case) if given is None else {f"with {parameter_text(given)}": rates_meeting(case, given)}
    if all(one is None for one in found.values()):
        raise AssumptionError(f"{_aim(case)} is met at no arrival rate {' or '.join(found)}; ask for more time")
    if json:
        data = {
            name: None if one is None else {"low_per_s": one.low_per_s, "high_per_s": _finite(one.high_per_s)}
            for name, one in found.items()
        }
        print_json({"target_s": case.target_s, "quantile": case.quantile, "arrival_rates": data})
        return
    for name, one in found.items():
        console.print(f"{_aim(case)[0].upper()}{_aim(case)[1:]} {_range_text(one)} {name}.", soft_wrap=True)


def _aim(case: Case) -> str:
    if case.quantile is None:
        return f"a mean of {case.target_s:g} s"
    return f"{100 * case.quantile:g} % within {case.target_s:g} s"


def _range_text(found: RateRange | None) -> str:
    if found is None:
        return "is met at no arrival rate"
    low = f" from {found.low_per_s:.4g}/s" if found.low_per_s > 0 else ""
    return "is met" + low + (" at any rate" if math.isinf(found.high_per_s) else f" up to {found.high_per_s:.4g}/s")


def _simulated(gives: list[Gives], case: Case, runs: int, duration_s: float, seed: int) -> dict[str, dict[str, Any]]:
    """Each row by simulation: values and half-widths, by kind and metric."""
    from surecast.cli.output import working
    from surecast.simulate import simulate_queue

    kept = [one for one in gives if one.outcome is not None]
    with working("simulating"):
        sweep = simulate_queue(
            case.arrival_per_s,
            case.service_per_s,
            case.on_s,
            case.off_s,
            [one.mechanism for one in kept],
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
    found: dict[str, dict[str, Any]] = {}
    for k, one in enumerate(kept):
        found[one.kind] = {
            name: {"value": _finite(float(value[k])), "half_width": _finite(float(half[k]))}
            for name, (value, half) in estimates.items()
        } | {name: _finite(float(values[k])) for name, values in tails.items()}
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _row(one: Gives) -> dict[str, Any]:
    """All about one mechanism, as plain values."""
    from surecast.studio.drop_cases import parameter_text

    data: dict[str, Any] = {"mechanism": one.kind, "possible": one.outcome is not None}
    if one.outcome is None:
        return data | {"reason": one.refusal}
    outcome, used = one.outcome, one.mechanism
    return data | {
        "parameters": parameter_text(used),
        "join_probability": used.join_probability if used.join_table is None else None,
        "buffer_size": used.buffer_size,
        "lifetime_s": _finite(used.lifetime_s),
        "lifetime_distribution": used.lifetime_distribution if used.expires else None,
        "join_table": used.join_table,
        "exact": outcome.exact,
        "meets_target": one.met,
        "success_share": outcome.success_share,
        "delay_mean_s": outcome.delay_mean_s,
        **{f"delay_p{100 * q:g}_s": one.law.quantile_s(q) for q in QUANTILES},
        "turned_away_connected_share": outcome.answer.lost_while_connected,
        "queue_length_mean": outcome.answer.queue_length_mean,
        "dropped": outcome.dropped,
    }


def _as_data(
    gives: list[Gives], case: Case, checked: dict[str, dict[str, Any]] | None, limits: dict[str, RateRange | None]
) -> dict[str, Any]:
    rows = [_row(one) | ({"simulated": checked.get(one.kind)} if checked is not None else {}) for one in gives]
    return {
        "arrival_per_s": case.arrival_per_s,
        "service_per_s": case.service_per_s,
        "on_s": case.on_s,
        "off_s": case.off_s,
        "input_per_s": _finite(case.input_per_s),
        "target_s": case.target_s,
        "quantile": case.quantile,
        "target_met_up_to_per_s": {name: None if x is None else _finite(x.high_per_s) for name, x in limits.items()},
        "mechanisms": rows,
    }


def _summary(gives: list[Gives], case: Case) -> str:
    """The answer in a sentence."""
    where = (
        f"{case.arrival_per_s:g} events/s for a subscriber that can be sent {case.service_per_s:g}/s while connected"
    )
    if case.target_s is None:
        return f"{where}."
    meeting = [one for one in gives if one.met and one.outcome is not None]
    if not meeting:
        return f"{where}: {_aim(case)} is missed."
    if any(one.kind == "none" for one in meeting) or not all(one.needed for one in meeting):
        return f"{where}: {_aim(case)} is met without dropping anything."
    best = max(meeting, key=lambda one: one.outcome.success_share if one.outcome else 0.0)
    assert best.outcome is not None
    if len(gives) == 1:
        return f"{where}: {_aim(case)} is met, and {best.outcome.success_share:.1%} of the events are delivered."
    return f"{where}: {_aim(case)} is met; {best.kind} delivers most, {best.outcome.success_share:.1%} of the events."


def _notes(gives: list[Gives], case: Case, limits: dict[str, RateRange | None]) -> list[str]:
    notes = [f"{_aim(case)} {_range_text(one)} {name}" for name, one in limits.items()]
    kinds = {one.kind for one in gives if one.outcome is not None}
    if "optimal" in kinds:
        notes.append(
            "optimal is the best policy that decides on arrival and turns nobody away while connected; expiry decides "
            "later, and may deliver more"
        )
    if "threshold" in kinds:
        notes.append("threshold is the best bound on the queue while disconnected; better policies may exist")
    if kinds & {"expiry", "exponential-expiry"}:
        notes.append("expiry counts in the mean what is delivered only; some that arrive while connected expire, too")
    if any(one.outcome is not None and not one.outcome.exact for one in gives):
        notes.append("≈: lifetimes count from publication, and the part spent in the input queue enters by its mean")
    return notes


HEADER = ("mechanism", "parameters", "delivered", "mean s", "p50 s", "p95 s", "p99 s", "refused")


def _cells(one: Gives) -> list[str]:
    row = _row(one)
    sign = "" if row["exact"] else "≈ "
    numbers = [row["delay_mean_s"], *(row[f"delay_p{100 * q:g}_s"] for q in QUANTILES)]
    lost = row["turned_away_connected_share"]
    shown = "nothing dropped" if row["parameters"] == "nothing is dropped" else row["parameters"]
    cells = [one.kind, shown, f"{sign}{100 * row['success_share']:.1f} %", *(f"{x:.3g}" for x in numbers)]
    return [*cells, f"{100 * lost:.2f} %"]


def _print(
    gives: list[Gives],
    case: Case,
    checked: dict[str, dict[str, Any]] | None,
    limits: dict[str, RateRange | None],
    files: list[Path],
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from surecast.cli.output import console

    console.print(_summary(gives, case), soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    aims = case.target_s is not None
    for name in (*HEADER, *(("meets",) if aims else ())):
        table.add_column(name, justify="left" if name in HEADER[:2] else "right", overflow="fold")
    for one in gives:
        if one.outcome is None:
            table.add_row(one.kind, "not possible", *["-"] * 6, *(("no",) if aims else ()), style="dim")
        else:
            table.add_row(*_cells(one), *((("yes" if one.met else "no"),) if aims else ()))
    console.print(table)
    reasons = [
        f"{one.kind}: "
        + ", ".join(f"{name} {100 * lost:.2f} %" for name, lost in one.outcome.dropped.items() if lost > 0)
        for one in gives
        if one.outcome is not None and any(lost > 0 for lost in one.outcome.dropped.values())
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
    console.print("refused: of the events that arrive while the subscriber is connected, those turned away")
    for note in _notes(gives, case, limits):
        console.print(note, soft_wrap=True, markup=False)
    for file in files:
        console.print(f"wrote {file}", markup=False, soft_wrap=True)


def _print_checked(gives: list[Gives], checked: dict[str, dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from surecast.cli.output import console

    table = Table(title="Simulated, with 95 % intervals", box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for name in ("mechanism", "delivered", "mean s", "p50 s", "p95 s", "p99 s", "lost of those while connected"):
        table.add_column(name, justify="left" if name == "mechanism" else "right")
    for one in gives:
        row = checked.get(one.kind)
        if row is not None:
            tails = [f"{row[f'p{100 * q:g}']:.4g}" for q in QUANTILES]
            shares = [_interval(row[name], 100.0, " %") for name in ("success_share", "failed_connected_share")]
            table.add_row(one.kind, shares[0], _interval(row["delay_mean_s"], 1.0, ""), *tails, shares[1])
    console.print(table)


def _interval(estimate: dict[str, float | None], factor: float, unit: str) -> str:
    value, half = estimate["value"], estimate["half_width"]
    if value is None:
        return "-"
    return f"{factor * value:.2f}" + ("" if half is None else f" ± {factor * half:.2f}") + unit


def _write_page(
    gives: list[Gives],
    case: Case,
    checked: dict[str, dict[str, Any]] | None,
    limits: dict[str, RateRange | None],
    path: Path,
) -> None:
    from surecast.studio.drop_page import write_case_page
    from surecast.studio.page import Cell, Table

    columns = ("success_share", "delay_mean_s", "delay_p50_s", "delay_p95_s", "delay_p99_s")
    rows = [_row(one) for one in gives if one.outcome is not None]
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
        for kind, found in checked.items():
            parts = [found[name] for name in ("success_share", "delay_mean_s", "failed_connected_share")]
            lines.append([kind, *(part[end] for part in parts for end in ("value", "half_width"))])
        head = ["Mechanism", "Delivered", "±", "Mean (s)", "± s", "Lost of those while on", "± share"]
        tables.append(Table(head, lines, "Simulated, with 95 % half-widths"))
    write_case_page(gives, case, _summary(gives, case), _notes(gives, case, limits), tables, path)


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
    from surecast.cli.output import console
    from surecast.studio.drop_figures import Effort, Setting, drop_figures, save_rows
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
    write_figures_page(rows, setting, effort, out)
    written = [out]
    if data is not None:
        written.append(save_rows(rows, data))
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        written += draw_figures(rows, setting, pictures)
    for path in written:
        console.print(f"wrote {path}", markup=False, soft_wrap=True)
