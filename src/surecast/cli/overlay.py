"""`surecast overlay`: an overlay of brokers, planned from a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.options import AsJson, ScenarioInput, takes_groups
from surecast.errors import AssumptionError, ConfigurationError

if TYPE_CHECKING:
    from surecast.broker.overlay.overlay_file import OverlayFile
    from surecast.protocol.overlay.overlay_plan import OverlayPlan
    from surecast.scenario import System

__all__ = ["app"]

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
        out, system.name, plan_of(system, scheme, algorithm), hosts=hosts, certificates=certificates
    )
    if json:
        print_json(_described(overlay, out))
        return
    console.print(f"{out}: {_summary(overlay.plan)}", markup=False, soft_wrap=True)
    console.print(f"epoch {overlay.epoch}, hash {overlay.hash}", markup=False, soft_wrap=True)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="OVERLAY", help="The file of an overlay.", show_default=False)],
    json: AsJson = False,
) -> None:
    """Check the file of an overlay: every mistake is named with its line and field."""
    from surecast.broker.overlay.overlay_file import load_overlay
    from surecast.cli.output import console, print_json

    overlay = load_overlay(file)
    if json:
        print_json(_described(overlay, file))
    else:
        console.print(f"{file}: ok: {_summary(overlay.plan)}", markup=False, soft_wrap=True)


def plan_of(system: System, scheme: str | None, algorithm: str | None) -> OverlayPlan:
    """Returns the plan of a system's overlay, with another scheme or algorithm if they are named."""
    from surecast.protocol.overlay.plan_of_system import plan_of_system

    replicas = system.delivery.replication.replicas
    if replicas > 1:
        raise AssumptionError(
            f"delivery.replication.replicas: {replicas}: a broker of an overlay is one process, not a group of "
            "replicas; write 1, or --set delivery.replication.replicas=1"
        )
    is_hierarchical = None
    if algorithm is not None:
        routing, _, name = algorithm.rpartition(" ")
        if routing not in ("", "peer-to-peer", "hierarchical"):
            raise ConfigurationError(f"--algorithm {algorithm}: write peer-to-peer or hierarchical before its name")
        algorithm, is_hierarchical = name, None if not routing else routing == "hierarchical"
    return plan_of_system(system, scheme=scheme, algorithm=algorithm, is_hierarchical=is_hierarchical)


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
            {"name": each.name, "link": each.link, "mqtt": overlay.mqtt_address(each.name)} for each in overlay.brokers
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
