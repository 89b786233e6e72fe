"""`surecast overlay`: an overlay of brokers, planned from a scenario, and its brokers on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.options import AsJson, Overrides, ScenarioInput, parse_overrides, takes_groups
from surecast.documents.units import format_duration
from surecast.errors import AssumptionError, ConfigurationError

if TYPE_CHECKING:
    from surecast.broker.overlay.local_overlay import LocalOverlay
    from surecast.broker.overlay.overlay_file import OverlayFile
    from surecast.protocol.overlay.overlay_plan import OverlayPlan
    from surecast.scenario import System

__all__ = ["app"]

OverlayPath = Annotated[
    Path, typer.Argument(metavar="OVERLAY", help="The file of an overlay, or its folder.", show_default=False)
]
FOLDER = Path("surecast-overlay")

app = typer.Typer(help="Run an overlay of brokers.", no_args_is_help=True)

SchemeName = Annotated[
    str | None,
    typer.Option(metavar="SCHEME", help="Another fault-tolerance scheme than the scenario's, such as bypass."),
]
AlgorithmName = Annotated[
    str | None,
    typer.Option(
        metavar="ALGORITHM", help="Another routing algorithm than the scenario's, such as 'hierarchical merging'."
    ),
]

Replicas = Annotated[
    list[str] | None,
    typer.Option(
        metavar="BROKER=COUNT",
        help="Make a broker a group of so many replicas, such as b2=3; by default the brokers are groups that "
        "delivery.replication of the scenario makes so. May be repeated.",
    ),
]


@app.command()
@takes_groups
def plan(
    source: ScenarioInput,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write.")] = Path("overlay.yaml"),
    scheme: SchemeName = None,
    algorithm: AlgorithmName = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKER=ADDRESS",
            help="The machine of a broker, which then uses the usual ports; by default all brokers are on this "
            "machine, at free ports. May be repeated.",
        ),
    ] = None,
    certificates: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder with ca.pem, and NAME.pem and NAME.key for each broker: links are then TLS."
        ),
    ] = None,
    replicas: Replicas = None,
    json: AsJson = False,
) -> None:
    """Write the file of an overlay from a scenario: brokers, links, trees, topics, addresses, times.

    All brokers read this file. Without --certificates a secret is written beside it, for brokers of one machine.
    """
    from surecast.broker.overlay.overlay_writing import write_overlay
    from surecast.cli.output import console, print_json

    system = source.load().system
    hosts = dict(_host(text) for text in host or ())
    overlay = write_overlay(
        out,
        system.name,
        plan_of(system, scheme, algorithm),
        hosts=hosts,
        certificates=certificates,
        options=_options_of(system),
        groups=_groups_of(system, dict(map(_group, replicas or ()))),
        told=_told(system),
    )
    if json:
        print_json(_described(overlay, out))
        return
    console.print(f"{out}: {_summary(overlay.plan)}", markup=False, soft_wrap=True)
    console.print(f"epoch {overlay.epoch}, hash {overlay.hash}", markup=False, soft_wrap=True)
    if hosts:
        text = f"next: copy {out} to all machines; on each, surecast broker --overlay {out} --name NAME"
    else:
        text = f"next: surecast overlay up {out}"
    console.print(text, markup=False, soft_wrap=True)


@app.command()
def check(file: OverlayPath = FOLDER, json: AsJson = False) -> None:
    """Check the file of an overlay: every mistake is named with its line and field."""
    from surecast.broker.overlay.overlay_file import load_overlay
    from surecast.cli.output import console, print_json

    path = _file(file)
    overlay = load_overlay(path)
    if json:
        print_json(_described(overlay, path))
    else:
        console.print(f"{path}: ok: {_summary(overlay.plan)}", markup=False, soft_wrap=True)


@app.command()
def up(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO|OVERLAY",
            help="A scenario, or the file of an overlay; by default the overlay that is in the folder.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder of the overlay's file, state and logs.")] = FOLDER,
    scheme: SchemeName = None,
    algorithm: AlgorithmName = None,
    replicas: Replicas = None,
    settings: Overrides = None,
    event_log: Annotated[bool, typer.Option("--event-log", help="Write an event log for each broker.")] = False,
    gates: Annotated[
        bool, typer.Option("--gates", help="Let surecast overlay gate cut, delay and lose on links, to experiment.")
    ] = False,
    restart: Annotated[bool, typer.Option(help="Restart a broker that was killed.")] = True,
    json: AsJson = False,
) -> None:
    """Start all brokers of an overlay as processes of this machine, and watch them until it is interrupted.

    If the folder has an overlay already, that overlay goes on where it was stopped.
    """
    from surecast.broker.local_processes import stop_on_signals
    from surecast.broker.overlay.local_overlay import LocalOverlay
    from surecast.cli.output import errors, working

    options: dict[str, Any] = {"event_log": {"folder": "events"}} if event_log else {}
    options |= {"gates": True} if gates else {}
    groups = dict(map(_group, replicas or ()))
    path = _founded(source, folder, scheme, algorithm, settings, options, groups)
    stops = stop_on_signals()
    with LocalOverlay(path) as overlay:
        missing = overlay.not_running()
        with working("starting the brokers"):
            overlay.start(*missing)
            overlay.wait_ready(stops=stops)
        if not stops:
            _print_begun(overlay, json)
        for line in overlay.watch(stops, restarts=restart):
            errors.print(line, markup=False, soft_wrap=True)
        with working("stopping the brokers"):
            overlay.close()


@app.command()
def status(file: OverlayPath = FOLDER, json: AsJson = False) -> None:
    """Show which brokers of an overlay run on this machine, and whether all links are up. Exits with 1 if not."""
    from surecast.cli.output import print_json
    from surecast.cli.overlay_output import link_rows, print_status

    overlay = _local(file)
    statuses, links = overlay.ask_all("/status"), overlay.ask_all("/links")
    if json:
        print_json({"brokers": statuses, "links": link_rows(links)})
    else:
        print_status(statuses, links, {name: " ".join(overlay.file.mqtt_addresses(name)) for name in overlay.brokers})
    if any("error" in each for each in statuses.values()) or not all(row["is_up"] for row in link_rows(links)):
        raise typer.Exit(1)


@app.command()
def links(file: OverlayPath = FOLDER, json: AsJson = False) -> None:
    """Show the links of an overlay: up or down and why, round trips, bytes. Exits with 1 if one is down."""
    from surecast.cli.output import print_json
    from surecast.cli.overlay_output import link_rows, print_links

    rows = link_rows(_local(file).ask_all("/links"))
    if json:
        print_json({"links": rows})
    else:
        print_links(rows)
    if not all(row["is_up"] for row in rows):
        raise typer.Exit(1)


@app.command()
def routes(
    file: OverlayPath = FOLDER,
    filters: Annotated[bool, typer.Option("--filters", help="List the filters themselves, too.")] = False,
    json: AsJson = False,
) -> None:
    """Show what brokers have announced to each other: filters by link and tree."""
    from surecast.cli.output import print_json
    from surecast.cli.overlay_output import print_routes

    answers = _local(file).ask_all("/routes", {"filters": str(filters).lower()})
    if json:
        print_json({"brokers": answers})
    else:
        print_routes(answers)


@app.command()
def sessions(
    file: OverlayPath = FOLDER,
    client: Annotated[str, typer.Option(metavar="CLIENT", help="Only the sessions of this client.")] = "",
    json: AsJson = False,
) -> None:
    """Show where the lasting sessions of clients are, what is queued there, and which are moving to another broker."""
    from surecast.cli.output import print_json
    from surecast.cli.overlay_output import print_sessions

    answers = _local(file).ask_all("/homes")
    for answer in answers.values():
        if client and "sessions" in answer:
            answer["sessions"] = [row for row in answer["sessions"] if row["client"] == client]
    if json:
        print_json({"brokers": answers})
    else:
        print_sessions(answers)


@app.command()
def accounts(file: OverlayPath = FOLDER, json: AsJson = False) -> None:
    """Show what became of all events at each broker, by neighbour, and over each link as of one cut through the running
    overlay. Exits with 1 if something does not add up."""
    from surecast.broker.overlay.overlay_cut import take_cut
    from surecast.cli.output import print_json
    from surecast.cli.overlay_output import print_accounts

    overlay = _local(file)
    answers = overlay.ask_all("/accounts")
    running = [name for name, answer in answers.items() if "error" not in answer]
    cut = take_cut(overlay, running) if running else {"links": [], "problems": [], "incomplete": []}
    if json:
        print_json({"brokers": answers, "cut": cut})
    else:
        print_accounts(answers, cut)
    if cut["problems"] or any(answer.get("problems") for answer in answers.values()):
        raise typer.Exit(1)


@app.command()
def gate(
    a: Annotated[str, typer.Argument(help="One end of the link.", show_default=False)],
    b: Annotated[str, typer.Argument(help="The other end.", show_default=False)],
    file: OverlayPath = FOLDER,
    cut: Annotated[bool, typer.Option("--cut", help="Let nothing through.")] = False,
    delay: Annotated[str, typer.Option(metavar="DURATION", help="Delay in each direction.")] = "0s",
    loss: Annotated[float, typer.Option(help="Share of writes that arrive as if lost once: 0.2 s later.")] = 0.0,
) -> None:
    """Cut, delay or make lossy a link of an overlay with gates, to experiment; without options, open it again."""
    from surecast.documents.units import seconds_of

    overlay = _local(file)
    query = {"cut": str(cut).lower(), "delay_s": seconds_of("--delay", delay), "loss": loss}
    for name, neighbour in ((a, b), (b, a)):
        overlay.file.broker(name)
        overlay.ask(name, "/gate", {"neighbour": neighbour, **query}, "POST")
    state = "cut" if cut else f"delay {delay}, loss {loss:g}" if loss or query["delay_s"] else "open"
    typer.echo(f"{a} - {b}: {state}")


@app.command()
def down(
    file: OverlayPath = FOLDER,
    timeout: Annotated[str, typer.Option(help="Longest time they may take.", metavar="DURATION")] = "1min",
) -> None:
    """Stop the brokers of an overlay that run on this machine."""
    from surecast.broker.overlay.local_overlay import stop_brokers
    from surecast.documents.units import seconds_of

    stopped = stop_brokers(_file(file), seconds_of("--timeout", timeout))
    typer.echo(f"stopped: {', '.join(stopped) or 'none was running'}")


def _file(path: Path) -> Path:
    return path / "overlay.yaml" if path.is_dir() else path


def _local(path: Path) -> LocalOverlay:
    from surecast.broker.overlay.local_overlay import LocalOverlay

    return LocalOverlay(_file(path))


def _founded(
    source: Path | None,
    folder: Path,
    scheme: str | None,
    algorithm: str | None,
    settings: list[str] | None,
    options: dict[str, Any],
    groups: dict[str, int],
) -> Path:
    """Returns the file of the overlay to start: written for a scenario where there is none yet."""
    from surecast.broker.overlay.overlay_file import load_overlay
    from surecast.broker.overlay.overlay_writing import write_overlay
    from surecast.documents.reading import read_source
    from surecast.scenario import Scenario

    path = folder / "overlay.yaml"
    data = read_source(source).data if source is not None else None
    is_scenario = isinstance(data, dict) and "trees" not in data
    if not is_scenario:
        given = [name for name, value in (("--scheme", scheme), ("--algorithm", algorithm)) if value is not None]
        given += ["--replicas"] if groups else []
        given += ["--set"] if settings else []
        given += [f"--{name.replace('_', '-')}" for name in options]
        if given:
            raise ConfigurationError(f"{', '.join(given)}: only for a scenario; the overlay's file says it already")
        return source if source is not None else path
    assert source is not None
    system = Scenario.load(source, parse_overrides(settings)).system
    wanted = plan_of(system, scheme, algorithm)
    groups = _groups_of(system, groups)
    if not path.exists():
        options = _options_of(system) | options
        written = write_overlay(path, system.name, wanted, options=options, groups=groups, told=_told(system))
        return _written(written, path)
    there = load_overlay(path)
    replicas = {broker.name: len(broker.replicas) for broker in there.brokers if broker.replicas}
    if there.plan != wanted or replicas != groups or any(name not in there.model_fields_set for name in options):
        raise ConfigurationError(
            f"{path}: this folder has an overlay that differs from these options: {there.name}, "
            f"{_summary(there.plan)}; leave them out to start that one, or choose another folder"
        )
    return path


def _written(overlay: OverlayFile, path: Path) -> Path:
    from surecast.cli.output import errors

    errors.print(f"{path}: {_summary(overlay.plan)}", markup=False, soft_wrap=True)
    return path


def _print_begun(overlay: LocalOverlay, as_json: bool) -> None:
    from surecast.cli.output import console, print_json
    from surecast.cli.overlay_output import print_status

    addresses = {name: " ".join(overlay.file.mqtt_addresses(name)) for name in overlay.brokers}
    if as_json:
        print_json({"mqtt": addresses, "brokers": overlay.ask_all("/status")})
        return
    print_status(overlay.ask_all("/status"), overlay.ask_all("/links"), addresses)
    console.print(
        f"in another terminal: surecast overlay status {overlay.path.parent}; Ctrl-C stops all brokers",
        markup=False,
        soft_wrap=True,
    )


def plan_of(system: System, scheme: str | None, algorithm: str | None) -> OverlayPlan:
    """Returns the plan of a system's overlay, with another scheme or algorithm if they are named.

    `delivery.fault_tolerance.refresh` says how brokers that have lost their tables have them again.
    """
    from surecast.protocol.overlay.plan_of_system import plan_of_system

    if system.delivery.routing is not None and system.delivery.routing.advertisements:
        raise AssumptionError(
            "delivery.routing.advertisements: clients of MQTT do not say beforehand what they will publish; write "
            "false, or --set delivery.routing.advertisements=false"
        )
    is_hierarchical = None
    if algorithm is not None:
        routing, _, name = algorithm.rpartition(" ")
        if routing not in ("", "peer-to-peer", "hierarchical"):
            raise ConfigurationError(f"--algorithm {algorithm}: write peer-to-peer or hierarchical before its name")
        algorithm, is_hierarchical = name, None if not routing else routing == "hierarchical"
    return plan_of_system(system, scheme=scheme, algorithm=algorithm, is_hierarchical=is_hierarchical)


def _groups_of(system: System, given: dict[str, int]) -> dict[str, int]:
    """Returns the brokers that are groups: those that options name, or else those of the scenario."""
    from surecast.scenario.group import groups_of

    replicas = system.delivery.replication.replicas
    if given or replicas == 1:
        return given
    named = zip(system.overlay.brokers, groups_of(system), strict=True)
    return {broker.name: replicas for broker, group in named if group is not None}


def _told(system: System) -> dict[str, Any]:
    """Returns what a scenario with replicas tells them."""
    from surecast.scenario.group import group_of

    return group_of(system, 0).file_fields if system.delivery.replication.replicas > 1 else {}


def _options_of(system: System) -> dict[str, Any]:
    """Returns the options of a scenario that the file of its overlay has: times, and whether replicas sync."""
    replication = system.delivery.replication
    is_unsynced = replication.replicas > 1 and not replication.durable
    return _times_of(system) | ({"durability": "os"} if is_unsynced else {})


def _times_of(system: System) -> dict[str, Any]:
    """Returns the times of a scenario that the file of its overlay has."""
    from surecast.broker.overlay.overlay_writing import detector_times

    tolerance = system.delivery.fault_tolerance
    times = detector_times(tolerance.detection) if tolerance.detection > 0 else {}
    timeout_s = tolerance.subscription_timeout or 3 * tolerance.refresh_interval
    if tolerance.refresh_interval <= 0 or timeout_s <= tolerance.refresh_interval:
        return times
    return times | {"refresh": format_duration(tolerance.refresh_interval), "timeout": format_duration(timeout_s)}


def _group(text: str) -> tuple[str, int]:
    broker, separator, count = text.partition("=")
    if not separator or not broker or not (count.isascii() and count.isdigit()):
        raise ConfigurationError(f"--replicas {text}: write BROKER=COUNT, such as b2=3")
    return broker, int(count)


def _host(text: str) -> tuple[str, str]:
    broker, separator, address = text.partition("=")
    if not separator or not broker or not address:
        raise ConfigurationError(f"--host {text}: write BROKER=ADDRESS, such as b1=10.0.0.1")
    return broker, address


def _summary(overlay_plan: OverlayPlan) -> str:
    """Returns the sizes of a plan in words."""
    trees = overlay_plan.trees
    schemes = ", ".join(dict.fromkeys(tree.scheme for tree in trees))
    algorithms = ", ".join(
        dict.fromkeys(f"{'peer-to-peer' if tree.root is None else 'hierarchical'} {tree.algorithm}" for tree in trees)
    )
    counts = [(len(overlay_plan.brokers), "broker"), (len(overlay_plan.links), "link"), (len(trees), "tree")]
    sizes = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
    return f"{sizes}; {schemes}, {algorithms}"


def _described(overlay: OverlayFile, path: Path) -> dict[str, Any]:
    return {
        "file": str(path),
        "name": overlay.name,
        "epoch": overlay.epoch,
        "hash": overlay.hash,
        "brokers": [
            {
                "name": each.name,
                "links": [str(address) for address in overlay.addresses(each.name)],
                "mqtt": overlay.mqtt_addresses(each.name),
            }
            for each in overlay.brokers
        ],
        "links": [list(link) for link in overlay.plan.links],
        "trees": [
            {
                "scheme": tree.scheme,
                "algorithm": tree.algorithm,
                "root": tree.root,
                "links": [list(x) for x in tree.links],
            }
            for tree in overlay.plan.trees
        ],
    }
