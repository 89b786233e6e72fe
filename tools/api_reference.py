"""Writes docs/reference/python.md from the packages, so that the reference cannot drift from the code.

What is listed is what each package has in its `__all__`, with the first sentence of its docstring. The examples stand
here, and are run with those of all other pages.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "reference" / "python.md"
_KEYWORDS_MAX = 4
HEAD = """# The Python API

What can be imported, in one line each. This page is written from the packages by `tools/api_reference.py`. Public is
what a package lists in its `__all__`, and nothing else; `help(NAME)` says the rest, with an example. Everything is
typed (`py.typed`), units stand last in names (`delay_s`, `rate_per_s`), and `import surecast` alone loads nothing
heavy.

Everything begins with a scenario, whichever models it needs. Answers have one type, so that any two can be compared:

| question | call | more |
|---|---|---|
| what does the file mean? | `Scenario.load(file)` | [scenario](#surecastscenario) |
| by formula? | `predict(scenario)` | [models](#surecastmodels), [prediction](#surecastprediction) |
| in virtual time? | `simulate(scenario)` | [models](#surecastmodels), [simulation](#surecastsimulation) |
| measured? | `run(scenario)` | [measurement](#surecastmeasurement) |
| what would be best? | `plan(scenario)` | [planning](#surecastplanning) |
| how do two answers differ? | `compare(scenario)`, `compare(a, b)` | [report](#surecastreport) |
"""


@dataclass(frozen=True)
class Section:
    """A package of the page: an example that runs, and the packages below it that are worth a table of their own."""

    module: str
    example: str = ""
    parts: tuple[str, ...] = ()


SECTIONS = (
    Section("surecast"),
    Section(
        "surecast.scenario",
        """
        >>> from surecast.scenario import Scenario, build, parse_text
        >>> scenario = Scenario.load("examples/reliability-graph.yaml", {"seed": 7})
        >>> system = scenario.system
        >>> len(system.overlay.brokers), system.seed
        (10, 7)
        """,
        ("surecast.scenario.mechanism", "surecast.scenario.topology"),
    ),
    Section(
        "surecast.report",
        """
        >>> from surecast.report import ReportBuilder
        >>> builder = ReportBuilder("shop", "predicted")
        >>> builder.add("subscriber", "ann", "reliability", 0.95, how="exact")
        >>> report = builder.build()
        >>> report.value("reliability", name="ann")
        0.95
        """,
    ),
    Section("surecast.models"),
    Section(
        "surecast.prediction",
        """
        >>> from surecast.prediction import predict_reliability
        >>> predicted = predict_reliability(system, ["buffering"])
        >>> round(predicted.value("reliability", variant="buffering"), 2)
        0.8
        """,
        (
            "surecast.prediction.reliability",
            "surecast.prediction.capacity",
            "surecast.prediction.dropping",
            "surecast.prediction.replication",
            "surecast.prediction.coding",
            "surecast.prediction.composed",
        ),
    ),
    Section(
        "surecast.simulation",
        """
        >>> from surecast.simulation import simulate_reliability
        >>> simulated = simulate_reliability(system, ["buffering"], runs=2, duration_s=86_400, seed=1)
        >>> from surecast.report import compare
        >>> len(compare(predicted, simulated).rows(3))
        3
        """,
        (
            "surecast.simulation.reliability.compiled",
            "surecast.simulation.reliability.protocol",
            "surecast.simulation.capacity",
            "surecast.simulation.dropping",
            "surecast.simulation.replication",
            "surecast.simulation.coding",
            "surecast.simulation.composed",
        ),
    ),
    Section(
        "surecast.planning",
        """
        >>> from surecast.planning import compare_schemes
        >>> cheapest = min(compare_schemes(system), key=lambda choice: choice.messages_per_event)
        >>> cheapest.scheme
        'periodic-subscription'
        """,
        ("surecast.planning.placement", "surecast.planning.sizing", "surecast.planning.sweeps"),
    ),
    Section(
        "surecast.broker",
        """
        >>> from pathlib import Path
        >>> from surecast.broker.cluster import LocalGroup, write_group
        >>> from surecast.client import SyncGroupClient
        >>> with LocalGroup(write_group(Path("group"), 3)) as group:
        ...     group.start()
        ...     group.wait_ready()
        ...     with SyncGroupClient(group.addresses) as client:
        ...         _ = client.subscribe("pump/#", qos=1)
        ...         _ = client.publish("pump/1", b"on")
        ...         client.message(timeout_s=30).payload
        b'on'
        """,
        ("surecast.broker.cluster", "surecast.broker.config", "surecast.broker.event_log_reader"),
    ),
    Section("surecast.client"),
    Section("surecast.load"),
    Section("surecast.profile"),
    Section("surecast.calibration"),
    Section(
        "surecast.measurement",
        """
        >>> from surecast.measurement import make_plan
        >>> make_plan(Scenario.load("examples/p2s.yaml").system, scale=1.0, duration_s=5.0).real_s
        5.0
        """,
    ),
    Section(
        "surecast.zap",
        """
        >>> from surecast.zap import parse_line
        >>> parse_line("2024-01-01,20:16:58,10.0.0.1,MBC2,MBC Action").to_channel
        'MBC2'
        """,
    ),
    Section("surecast.pipeline", parts=("surecast.pipeline.learn",)),
    Section("surecast.studio"),
    Section("surecast.errors"),
)
PROTOCOL = (
    "filters",
    "mqtt",
    "broker",
    "demand",
    "link",
    "overlay",
    "paxos",
    "group",
    "coding",
    "gossip",
    "dissemination",
)
PROTOCOL_HEAD = """## surecast.protocol

The system itself, without sockets, clocks or disks: messages and a time go in, messages and effects come out. Programs
rarely need it; whoever [extends Surecast](../guides/extend.md) does. Each package lists its own in `__all__`.

| package | what it has |
|---|---|"""

UNWRITTEN = {
    "surecast.__version__": "The version",
    "surecast.scenario.TEMPLATES": "The scenarios to start from, by name, and what each is",
    "surecast.report.SOURCES": "Where a report can come from",
    "surecast.simulation.replication.Load": "A load of a group: `OpenLoad` or `ClosedLoad`",
    "surecast.planning.sweeps.OVERLOAD": "What stands for the best algorithm where all are overloaded",
    "surecast.planning.sweeps.TIE": "What stands for the best algorithm where several are equally good",
    "surecast.zap.Event": "What a set-top box reports: a `ChannelChange` or a `Status`",
    "surecast.pipeline.learn.WORKLOADS": "What a learned workload can consist of",
    "surecast.studio.Section": "Anything that a page can have: heading, paragraph, bullets, figure, table, downloads",
}
"""Constants and unions that cannot, or do not, say at their place what they are."""


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        sys.exit(0 if current else f"{PAGE} is stale: run tools/api_reference.py")
    PAGE.write_text(text, encoding="utf-8")


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for section in SECTIONS:
        module = import_module(section.module)
        parts.append(f"## {section.module}\n\n{first_paragraph(module)}\n")
        if section.example:
            parts.append(f"```python\n{textwrap.dedent(section.example).strip()}\n\n```\n")
        if names_of(module):
            parts.append(table(module))
        known = set(names_of(module))
        parts += [part(import_module(name), known) for name in section.parts]
    rows = [f"| `surecast.protocol.{name}` | {sentence(_doc(f'surecast.protocol.{name}'))} |" for name in PROTOCOL]
    return "\n".join([*parts, PROTOCOL_HEAD, *rows]) + "\n"


def part(module: ModuleType, known: set[str]) -> str:
    """The table of a package below another, without what that one has already."""
    also = sorted(known.intersection(names_of(module)))
    more = f"\n\nAlso here: {', '.join(f'`{name}`' for name in also)}." if also else ""
    return f"### {module.__name__}\n\n{first_paragraph(module)}{more}\n\n{table(module, known)}"


def table(module: ModuleType, known: set[str] | None = None) -> str:
    """One row for each public name that is not yet known."""
    names = [name for name in names_of(module) if name not in (known or ())]
    rows = [f"| `{written(module, name)}` | {meaning(module, name)} |" for name in names]
    if not rows:
        return ""
    return "\n".join(["| name | what it is |", "|---|---|", *rows]) + "\n"


def names_of(module: ModuleType) -> list[str]:
    """Returns the names that a package lists as public, in its order: constants, classes, functions."""
    return list(getattr(module, "__all__", ()))


def written(module: ModuleType, name: str) -> str:
    """A name as it is used: a function with its parameters; of many keywords the first two."""
    what = getattr(module, name)
    if not inspect.isroutine(what):
        return name
    parameters = list(inspect.signature(what).parameters.values())
    marks: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    shown = [marks.get(each.kind, "") + each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    keywords = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    if keywords:
        shown += ["*", *keywords] if len(keywords) <= _KEYWORDS_MAX else ["*", *keywords[:2], "..."]
    return f"{name}({', '.join(shown)})"


def meaning(module: ModuleType, name: str) -> str:
    """The first sentence about a name; where it is written below an assignment, from the source."""
    what = getattr(module, name)
    if inspect.isclass(what) or inspect.isroutine(what):
        own = what.__doc__ or ""
        return sentence("" if own.startswith(f"{name}(") else own)
    return UNWRITTEN.get(f"{module.__name__}.{name}") or sentence(assigned_doc(module.__name__, name))


def assigned_doc(module: str, name: str) -> str:
    """The text below the assignment of a name, wherever it was imported from."""
    tree = ast.parse(source_of(module).read_text(encoding="utf-8"))
    # Names that a package imports when they are first used are imported for type checkers alone.
    statements = [each for node in tree.body for each in (node.body if isinstance(node, ast.If) else [node])]
    for at, node in enumerate(statements):
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return assigned_doc(str(node.module), name)
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            below = statements[at + 1] if at + 1 < len(statements) else None
            if (
                isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                return below.value.value
    return ""


def source_of(module: str) -> Path:
    """The file of a module of ours."""
    place = SOURCE.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def first_paragraph(module: ModuleType) -> str:
    """The first paragraph of a package's docstring, on one line."""
    return " ".join(_doc(module.__name__).split("\n\n")[0].split())


def sentence(text: str) -> str:
    """The first sentence of a docstring, fit for a table."""
    paragraph = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    found = re.match(r".*?(?<!Eq)(?<!Eqs)[.](?=\s+[A-Z`]|$)", paragraph)
    return (found[0] if found else paragraph).rstrip(".:").replace("|", "\\|")


def _doc(module: str) -> str:
    return inspect.cleandoc(import_module(module).__doc__ or "")


if __name__ == "__main__":
    main()
