"""`surecast cluster`: a replicated broker on this machine, and the administration of any group."""

from __future__ import annotations

import signal
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from surecast.cli.options import AsJson, seconds_of

__all__ = ["app"]

app = typer.Typer(help="Run a replicated broker on this machine, and administer a group.", no_args_is_help=True)

GroupFile = Annotated[
    Path, typer.Argument(metavar="GROUP", help="The file of a group, or its folder.", show_default=False)
]


class _Variant(StrEnum):
    multi = "multi"
    batch = "batch"
    fast = "fast"


class _Sync(StrEnum):
    majority = "majority"
    none = "none"


def _file(path: Path) -> Path:
    return path / "group.yaml" if path.is_dir() else path


@app.command()
def up(
    replicas: Annotated[int, typer.Option("--replicas", "-n", help="How many replicas: an odd number.")] = 3,
    folder: Annotated[Path, typer.Option(help="Folder of the group's file, state and logs.")] = Path("surecast-group"),
    port: Annotated[
        int, typer.Option("--port", "-p", help="MQTT port of the first replica; 0 takes any that are free.")
    ] = 1883,
    sync: Annotated[_Sync, typer.Option(help="Whether an acknowledged message is on the disks of a majority.")] = (
        _Sync.majority
    ),
    variant: Annotated[_Variant, typer.Option(help="The protocol by which the replicas agree.")] = _Variant.multi,
    zap: Annotated[bool, typer.Option("--zap", help="Count viewers inside the broker (ZapViewers).")] = False,
    event_log: Annotated[bool, typer.Option("--event-log", help="Write an event log for each replica.")] = False,
    restart: Annotated[bool, typer.Option(help="Start a replica again when it has died.")] = True,
) -> None:
    """Start a group of real processes on this machine, and watch it until it is interrupted.

    A folder that has a group already goes on with it, and the options about the group itself are not looked at.
    """
    from surecast.broker.cluster import LocalGroup, write_group
    from surecast.cli.output import console, errors, working

    options: dict[str, Any] = {"sync": sync.value, "paxos": {"variant": variant.value}}
    options |= {"zap": {}} if zap else {}
    options |= {"event_log": {"folder": "events"}} if event_log else {}
    path = write_group(folder, replicas, port=port, options=options)
    stopping: list[int] = []
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stopping.append(1))
    with LocalGroup(path) as group:
        with working("starting the replicas"):
            group.start()
            group.wait_ready()
        _print_status(group.status(), group.spec)
        console.print(f"clients may connect to any replica: {' '.join(group.addresses)}", markup=False)
        console.print(f"another terminal: surecast cluster status {folder}; Ctrl-C stops the group", markup=False)
        while not stopping:
            time.sleep(0.2)
            for number, code in group.ended().items():
                # One that was told to stop, or says that something is wrong, would do so again.
                again = restart and code < 0
                what = "starting it again" if again else f"it stays down: {group.last_words(number)}"
                errors.print(f"replica {number} ended with code {code}; {what}", markup=False)
                if again:
                    group.start(number)
                else:
                    del group.processes[number]
            if not group.processes:
                break
        with working("stopping the replicas"):
            group.close()


@app.command()
def status(group: GroupFile = Path("surecast-group"), json: AsJson = False) -> None:
    """Show the replicas of a group: who leads, how far each is, and whether they agree."""
    import asyncio

    from surecast.broker.group_config import load_broker_group
    from surecast.broker.replica.administer import ask_status
    from surecast.cli.output import print_json

    spec = load_broker_group(_file(group))
    found = asyncio.run(ask_status(spec))
    if json:
        print_json({"replicas": found})
    else:
        _print_status(found, spec)
    if not any(one.get("leader") for one in found):
        raise typer.Exit(1)


@app.command()
def replace(
    old: Annotated[int, typer.Argument(help="The replica that leaves.", show_default=False)],
    new: Annotated[int, typer.Argument(help="The replica that takes its place; it is running.", show_default=False)],
    group: GroupFile = Path("surecast-group"),
) -> None:
    """Put a new replica in the place of one that is lost, while the group works.

    First add the new one to the group's file, with a new number and joins: true, and start it.
    """
    import asyncio

    from surecast.broker.group_config import load_broker_group
    from surecast.broker.replica.administer import ask_replace

    since = asyncio.run(ask_replace(load_broker_group(_file(group)), old, new))
    typer.echo(f"replica {new} takes the place of {old} from instance {since} on")


@app.command()
def down(
    group: GroupFile = Path("surecast-group"),
    timeout: Annotated[str, typer.Option(help="How long they may take.", metavar="DURATION")] = "1min",
) -> None:
    """Stop the replicas of a group that run on this machine."""
    from surecast.broker.cluster import stop_replicas

    stopped = stop_replicas(_file(group), seconds_of("--timeout", timeout))
    typer.echo(f"stopped: {', '.join(map(str, stopped)) or 'none was running'}")


BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file of the backup.", show_default=False)]


@app.command()
def backup(group: GroupFile, file: BackupFile) -> None:
    """Write the state of a running group to a file: sessions, queues, retained messages, applications.

    All that was acknowledged before is in it. The group goes on meanwhile.
    """
    import asyncio

    from surecast.broker.group_admin import ask_backup
    from surecast.broker.group_config import load_broker_group

    about = asyncio.run(ask_backup(load_broker_group(_file(group)), file))
    typer.echo(f"{file}: {file.stat().st_size:,} bytes, the group {about.group} at instance {about.applied}")


@app.command()
def restore(group: GroupFile, file: BackupFile) -> None:
    """Have a new group begin with a backup. It is running, and no client has been connected yet."""
    import asyncio

    from surecast.broker.group_admin import ask_restore
    from surecast.broker.group_config import load_broker_group

    about = asyncio.run(ask_restore(load_broker_group(_file(group)), file))
    typer.echo(f"restored from {file}: the group {about.group} at instance {about.applied}")


def _print_status(found: list[dict[str, Any]], spec: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    from surecast.cli.output import console

    table = Table("replica", "mqtt", "state", "leader", "applied", "behind", "hash")
    most = max((int(one["chosen"]) for one in found if "chosen" in one), default=0)
    for one in found:
        number = int(one["replica"])
        listeners = spec.replica(number).mqtt
        where = ", ".join(f"{each.host}:{each.wanted_port}" for each in listeners)
        if "error" in one:
            table.add_row(str(number), where, Text(f"down: {one['error']}"), "", "", "", "")
            continue
        state = "leads" if one["leads"] else "follows" if one["voting"] else "joins"
        applied = int(one["applied"])
        table.add_row(
            str(number),
            where,
            state,
            str(one["leader"] or "none"),
            f"{applied:,}",
            f"{most - applied:,}",
            str(one["hash"])[:8],
        )
    console.print(table)
