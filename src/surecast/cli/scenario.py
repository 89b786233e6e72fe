"""`surecast scenario`: start, check, show and document scenario files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.options import AsJson, Overrides, ScenarioInput, parse_overrides, takes_groups

if TYPE_CHECKING:
    from surecast.scenario import System


@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """The options of --from-question."""

    devices: Annotated[int, typer.Option(help="Devices that publish.")] = 1000
    every: Annotated[str, typer.Option(metavar="TIME", help="How often each of them publishes.")] = "10s"
    size: Annotated[str, typer.Option(help="Size of a message.")] = "200B"
    qos: Annotated[int, typer.Option("-q", "--qos", min=0, max=1, help="Quality of service.")] = 1
    subscribers: Annotated[int, typer.Option(help="Subscribers, such as dashboards, that want everything.")] = 1
    sites: Annotated[int, typer.Option(help="Sites, over which devices and subscribers are spread.")] = 1
    latency: Annotated[str, typer.Option(metavar="TIME", help="Latency of the links between sites.")] = "20ms"
    links_up: Annotated[str, typer.Option(metavar="SHARE", help="Share of time that a link is up.")] = "100%"
    outages: Annotated[str, typer.Option(metavar="TIME", help="How often a link fails, on average.")] = "1h"
    deadline: Annotated[str, typer.Option(metavar="TIME", help="Age at which a message is late.")] = "60s"
    reliability: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Share of messages that every subscriber must get in time.")
    ] = None
    profile: Annotated[
        str | None, typer.Option(metavar="FILE", help="Profile of the brokers, beside the file that is written.")
    ] = None
    capacity: Annotated[
        str | None, typer.Option(metavar="RATE", help="Messages per second of a broker, in place of a profile.")
    ] = None

    def text(self, name: str) -> str:
        """Returns the scenario file of the question."""
        from surecast.documents.units import parse_duration, parse_rate, parse_size
        from surecast.errors import ConfigurationError
        from surecast.scenario.question_file import SizingQuestion, question_text

        def read(option: str, parse: Callable[[str], float], text: str) -> float:
            try:
                return parse(text)
            except ValueError as error:
                raise ConfigurationError(f"{option}: {error}") from None

        def share(text: str) -> float:
            return float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)

        period_s = read("--every", parse_duration, self.every)
        question = SizingQuestion(
            self.devices,
            1.0 / period_s if period_s else 0.0,
            read("--size", parse_size, self.size),
            self.qos,
            self.subscribers,
            self.sites,
            read("--latency", parse_duration, self.latency),
            read("--links-up", share, self.links_up),
            read("--outages", parse_duration, self.outages),
            read("--deadline", parse_duration, self.deadline),
            None if self.reliability is None else read("--reliability", share, self.reliability),
            self.profile,
            None if self.capacity is None else read("--capacity", parse_rate, self.capacity),
        )
        return question_text(question, name)


app = typer.Typer(help="Describe a system: start from a template, check, show, draw.", no_args_is_help=True)


@app.command()
@takes_groups
def new(
    asked: QuestionOptions,
    file: Annotated[Path | None, typer.Argument(help="The file to write; left out, the templates are listed.")] = None,
    template: Annotated[str, typer.Option("--template", "-t", help="Which template to start from.")] = "minimal",
    from_question: Annotated[
        bool, typer.Option("--from-question", help="Write the system of a question, as the options below ask it.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    json: AsJson = False,
) -> None:
    """Write a scenario file to start from: a template, or the system that a question describes."""
    from surecast.cli.output import console, print_json, print_table
    from surecast.errors import ConfigurationError, refuse_unknown
    from surecast.scenario import TEMPLATES, template_text

    if file is None and from_question:
        raise ConfigurationError("name the file to write: surecast scenario new FILE --from-question ...")
    if file is None:
        if json:
            print_json(TEMPLATES)
            return
        print_table(("template", "what it describes"), (), TEMPLATES.items(), title="Templates")
        console.print("Write one with: surecast scenario new FILE --template NAME")
        return
    refuse_unknown("template", [template], TEMPLATES)
    text = asked.text(file.stem) if from_question else template_text(template)
    try:
        with file.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ConfigurationError(f"{file} exists; add --force to overwrite it") from None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from None
    if json:
        print_json({"file": str(file), "template": None if from_question else template})
    else:
        console.print(f"wrote {file}; look at it with: surecast scenario show {file}", markup=False, soft_wrap=True)


@app.command()
def check(
    files: Annotated[
        list[Path], typer.Argument(metavar="SCENARIO...", help="Scenario files.", show_default=False, readable=False)
    ],
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """List every mistake in scenario files. Exits with 1 if there is any."""
    from rich.text import Text

    from surecast.cli.output import console, name_options, print_json, print_problems, working
    from surecast.errors import ScenarioError
    from surecast.scenario import Scenario

    results: list[dict[str, Any]] = []
    changes = parse_overrides(overrides)
    for file in files:
        try:
            with working(f"checking {file}"):
                system = Scenario.load(file, changes).system
        except ScenarioError as error:
            problems = [{**each.as_dict(), "file": name_options(each.file)} for each in error.problems]
            results.append({"file": str(file), "ok": False, "problems": problems, "notes": []})
            if not json:
                print_problems(error.problems)
            continue
        results.append({"file": str(file), "ok": True, "problems": [], "notes": list(system.notes)})
        if not json:
            console.print(Text.assemble(f"{file}: ", ("ok", "green")), soft_wrap=True)
            for note in system.notes:
                console.print(f"  note: {note}", markup=False, soft_wrap=True)
    if json:
        print_json(results)
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)


@app.command()
@takes_groups
def show(
    source: ScenarioInput,
    draw: Annotated[
        list[Path] | None,
        typer.Option("--draw", metavar="PICTURE", help="Draw it to a .html, .svg or .png file. May be repeated."),
    ] = None,
    dark: Annotated[
        bool,
        typer.Option("--dark", help="Draw on a dark background; by default pages follow the setting of the reader."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Summarise the system that a scenario describes, and draw it."""
    from surecast.cli.output import console, print_json, working
    from surecast.scenario.summary import system_data

    with working(f"reading {source.file}"):
        scenario = source.load()
    system = scenario.system
    pictures = []
    for picture in draw or []:
        from surecast.studio import draw_system

        with working(f"drawing {picture}"):
            pictures.append(str(draw_system(system, picture, dark=dark)))
    if json:
        print_json({**system_data(system), "pictures": pictures})
        return
    _print_summary(system, scenario.description)
    for picture_name in pictures:
        console.print(f"drew {picture_name}", markup=False, soft_wrap=True)


def _print_summary(system: System, description: str) -> None:
    from surecast.cli.output import console, print_table
    from surecast.scenario.summary import summarise

    rows = [
        [part if i == 0 else "", label, value]
        for part, lines in summarise(system).items()
        for i, (label, value) in enumerate(lines)
    ]
    title = f"{system.name} (seed {system.seed})"
    print_table(("part", "what", "value"), (), rows, title=title, caption=description)
    for note in system.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)


@app.command()
def schema(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it to a file.")] = None,
) -> None:
    """Print the JSON schema of scenario files, for editors that complete and check as you type."""
    import json as json_module

    from surecast.cli.output import console, print_json
    from surecast.errors import ConfigurationError
    from surecast.scenario import scenario_schema

    if out is None:
        print_json(scenario_schema())
        return
    try:
        out.write_text(json_module.dumps(scenario_schema(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror}") from None
    console.print(f"wrote {out}", markup=False, soft_wrap=True)
