"""`surecast cluster`: a replicated broker on this machine, and the administration of any group."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.options import AsJson

if TYPE_CHECKING:
    from surecast.broker.cluster import LocalGroup
    from surecast.broker.config_models import BrokerConfig
    from surecast.broker.group_config import BrokerGroupSpec

__all__ = ["app"]

app = typer.Typer(help="Run a replicated broker on this machine, or administer one.", no_args_is_help=True)

_CLOCK_S = 0.1
"""A clock that differs by less is called right: so much may come of the measurement."""

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
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-n", help="Number of replicas, odd; 3 by default.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder of the group's file, state and logs.")] = Path("surecast-group"),
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            help="MQTT port of the first replica; the others use the next. 1883 by default; 0: free ports.",
        ),
    ] = None,
    sync: Annotated[
        _Sync | None,
        typer.Option(
            help="majority, the default: acknowledge what is on the disks of a majority; none: do not wait for disks."
        ),
    ] = None,
    variant: Annotated[_Variant | None, typer.Option(help="Variant of Paxos; multi by default.")] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Configuration of a broker, YAML; it applies to every replica."),
    ] = None,
    users: Annotated[Path | None, typer.Option(help="Users file, made by surecast passwd.")] = None,
    acl: Annotated[Path | None, typer.Option(help="File of access rules.")] = None,
    websocket_port: Annotated[
        int | None, typer.Option(help="WebSocket port of the first replica; 0 for any free ports.")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(help="Port of the first replica for metrics and health over HTTP.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Set a field of the configuration. May be repeated."),
    ] = None,
    zap: Annotated[bool, typer.Option("--zap", help="Count viewers inside the broker (ZapViewers).")] = False,
    event_log: Annotated[bool, typer.Option("--event-log", help="Write an event log for each replica.")] = False,
    restart: Annotated[bool, typer.Option(help="Restart a replica that was killed.")] = True,
    json: AsJson = False,
) -> None:
    """Start a group of real processes on this machine, and watch it until it is interrupted.

    If the folder has a group already, that group is started; options that contradict its file are refused.
    """
    from surecast.broker.cluster import LocalGroup, write_group
    from surecast.broker.local_processes import stop_on_signals
    from surecast.broker.private import make_private
    from surecast.cli.output import errors, working

    options: dict[str, Any] = {"sync": sync.value} if sync is not None else {}
    options |= {"paxos": {"variant": variant.value}} if variant is not None else {}
    options |= {"zap": {}} if zap else {}
    options |= {"event_log": {"folder": "events"}} if event_log else {}
    flags: dict[str, Any] = {"security.users": users, "security.acl": acl, "http.port": http_port}
    loaded = _configuration(config, flags, websocket_port, settings)
    is_new = not (folder / "group.yaml").exists()
    path = write_group(folder, replicas, port=port, options=options, config=loaded)
    if warning := make_private(folder):
        errors.print(f"warning: {warning}", markup=False, soft_wrap=True)
    stops = stop_on_signals()
    with LocalGroup(path) as group:
        missing = group.not_running()
        with working("starting the replicas"):
            group.start(*missing)
            # A group that was there works without some: the way to repair one is to have the others run.
            group.wait_ready(failures_max=0 if is_new else (len(group.numbers) - 1) // 2)
        _print_begun(group, folder, json)
        for line in group.watch(stops, restarts=restart):
            errors.print(line, markup=False, soft_wrap=True)
        with working("stopping the replicas"):
            group.close()


def _configuration(
    file: Path | None, flags: dict[str, Any], websocket_port: int | None, settings: list[str] | None
) -> BrokerConfig | None:
    """Returns the checked broker configuration from file and options; None if neither sets anything."""
    from surecast.broker.config import load_config
    from surecast.cli.broker import listener_count, settings_of

    fields = {name: value for name, value in flags.items() if value is not None} | settings_of(settings)
    if websocket_port is not None:
        number = listener_count(file)
        fields |= {f"listeners[{number}].kind": "websocket", f"listeners[{number}].port": websocket_port}
    if file is None and not fields:
        return None
    return load_config(None if file is None else file.absolute(), fields)


def _print_begun(group: LocalGroup, folder: Path, as_json: bool) -> None:
    from surecast.cli.output import console, print_json

    replicas = _described(group.status(), group.spec)
    if as_json:
        print_json({"verdict": group_verdict(replicas), "replicas": replicas, "mqtt": group.addresses})
        return
    _print_status(replicas)
    console.print(f"clients may connect to any replica: {' '.join(group.addresses)}", markup=False, soft_wrap=True)
    console.print(
        f"in another terminal: surecast cluster status {folder}; Ctrl-C stops the group", markup=False, soft_wrap=True
    )


@app.command()
def found(
    group: GroupFile = Path("surecast-group"),
    replicas: Annotated[
        list[int] | None,
        typer.Option("--id", help="Make the empty store of this replica on this machine. May be repeated."),
    ] = None,
) -> None:
    """Found a group, once, before its replicas run; `cluster up` does it for a new folder.

    First without --id: it writes a founding into the group's file, which then goes to all machines. Then with --id, on
    the machine of each founder: it makes its empty store. A replica whose data are lost is not founded but replaced;
    where another replica answers that remembers it, that is refused.
    """
    import asyncio

    from surecast.broker.group_config import load_broker_group
    from surecast.broker.replica.administer import check_never_ran
    from surecast.broker.replica.founding import found_replica, new_founding, write_founding

    path = _file(group)
    if not replicas:
        write_founding(path, new_founding(), load_broker_group)
    spec = load_broker_group(path)
    for number in replicas or ():
        asyncio.run(check_never_ran(spec, number))
        typer.echo(f"founded: replica {number} in {found_replica(spec, number)}")
    if not replicas:
        founders = [replica.id for replica in spec.replicas if not replica.joins]
        typer.echo(f"founded: the group {spec.name}, as {spec.founding}")
        typer.echo(f"next: copy {path} to all machines; on each, surecast cluster found {path} --id N, N of {founders}")


@app.command()
def status(group: GroupFile = Path("surecast-group"), json: AsJson = False) -> None:
    """Show whether a group works; then its replicas: which one leads, how far each has applied the log, where it
    listens, and whether they agree."""
    import asyncio

    from surecast.broker.group_config import load_broker_group
    from surecast.broker.replica.administer import ask_status
    from surecast.cli.output import print_json

    spec = load_broker_group(_file(group))
    replicas = _described(asyncio.run(ask_status(spec)), spec)
    if json:
        print_json({"verdict": group_verdict(replicas), "replicas": replicas})
    else:
        _print_status(replicas)
    if not any(replica.get("leader") for replica in replicas) or any(replica.get("alarm") for replica in replicas):
        raise typer.Exit(1)


@app.command()
def verify(group: GroupFile = Path("surecast-group"), json: AsJson = False) -> None:
    """Compare the whole state of all replicas at one instance of the log. Exits with 1 if they differ.

    Each replica hashes its whole state, which takes as long as a snapshot.
    """
    import asyncio

    from surecast.broker.group_config import load_broker_group
    from surecast.broker.replica.administer import ask_verify
    from surecast.broker.replica.standing import verdict
    from surecast.cli.output import print_json

    instance, hashes = asyncio.run(ask_verify(load_broker_group(_file(group))))
    compared = verdict(instance, hashes)
    if json:
        print_json(compared.as_dict())
    else:
        typer.echo(str(compared))
    if not compared.is_equal:
        raise typer.Exit(1)


@app.command()
def replace(
    old: Annotated[int, typer.Argument(help="The replica that leaves.", show_default=False)],
    new: Annotated[int, typer.Argument(help="The replica that takes its place; it is running.", show_default=False)],
    group: GroupFile = Path("surecast-group"),
    timeout: Annotated[str, typer.Option(help="Longest time it may take.", metavar="DURATION")] = "2min",
    json: AsJson = False,
) -> None:
    """Put a new replica in the place of one that is lost, while the group works.

    First add the new one to the group's file, with a new number and joins: true, and start it. The command ends when
    the new one has the state of the others and votes.
    """
    import asyncio

    from surecast.broker.group_config import load_broker_group
    from surecast.broker.replica.administer import ask_replace, await_member
    from surecast.cli.output import errors, print_json
    from surecast.documents.units import seconds_of

    spec = load_broker_group(_file(group))
    limit_s = seconds_of("--timeout", timeout, is_positive=True)
    begun_s = time.monotonic()

    def tell(line: str) -> None:
        errors.print(f"{time.monotonic() - begun_s:5.1f} s  {line}", markup=False, soft_wrap=True)

    async def run() -> tuple[int, dict[str, Any]]:
        since = await ask_replace(spec, old, new, timeout_s=limit_s, tell=tell)
        tell(f"agreed: replica {new} takes the place of {old} from instance {since} on")
        left_s = max(1.0, limit_s - (time.monotonic() - begun_s))
        return since, await await_member(spec, new, timeout_s=left_s, tell=tell)

    since, member = asyncio.run(run())
    if json:
        print_json({"old": old, "new": new, "since": since, "member": member})
    else:
        typer.echo(f"replica {new} takes the place of {old} from instance {since} on; it has the state, and votes")


@app.command()
def repair(
    replica: Annotated[int, typer.Argument(help="The replica whose state is damaged or lost.", show_default=False)],
    group: GroupFile = Path("surecast-group"),
    start: Annotated[
        bool, typer.Option(help="Start the new replica; with --no-start, wait until you start it.")
    ] = True,
    timeout: Annotated[str, typer.Option(help="Longest time it may take.", metavar="DURATION")] = "2min",
    json: AsJson = False,
) -> None:
    """Put a new replica in the place of one whose state is damaged, in one step, on its machine.

    The damaged state is set aside, never deleted. The new replica has a new number and the same addresses; the group's
    file is changed, and kept as it was beside it. The command ends when the new replica votes. It stays running.
    """
    from surecast.broker.cluster_repair import repair_replica
    from surecast.cli.output import errors, print_json
    from surecast.documents.units import seconds_of

    limit_s = seconds_of("--timeout", timeout, is_positive=True)
    begun_s = time.monotonic()

    def tell(line: str) -> None:
        errors.print(f"{time.monotonic() - begun_s:5.1f} s  {line}", markup=False, soft_wrap=True)

    repaired = repair_replica(_file(group), replica, starts=start, timeout_s=limit_s, tell=tell)
    if json:
        aside = None if repaired.aside is None else str(repaired.aside)
        process = None if repaired.process is None else repaired.process.pid
        print_json(
            {"old": repaired.old, "new": repaired.new, "since": repaired.since, "aside": aside, "process": process}
        )
        return
    typer.echo(f"repaired: replica {repaired.new} takes the place of {repaired.old}; it has the state, and votes")
    if repaired.aside is not None:
        typer.echo(f"the damaged state is kept: {repaired.aside}")
    typer.echo(f"if other machines have a copy of {_file(group)}, replace it there")


@app.command()
def down(
    group: GroupFile = Path("surecast-group"),
    timeout: Annotated[str, typer.Option(help="Longest time they may take.", metavar="DURATION")] = "1min",
) -> None:
    """Stop the replicas of a group that run on this machine."""
    from surecast.broker.cluster import stop_replicas
    from surecast.documents.units import seconds_of

    stopped = stop_replicas(_file(group), seconds_of("--timeout", timeout))
    typer.echo(f"stopped: {', '.join(map(str, stopped)) or 'none was running'}")


BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file of the backup.", show_default=False)]


@app.command()
def backup(group: GroupFile, file: BackupFile) -> None:
    """Write the state of a running group to a file: sessions, queues, retained messages, applications.

    The file has everything that was acknowledged before. The group keeps serving meanwhile.
    """
    import asyncio

    from surecast.broker.group_admin import ask_backup
    from surecast.broker.group_config import load_broker_group

    about = asyncio.run(ask_backup(load_broker_group(_file(group)), file))
    typer.echo(f"{file}: {file.stat().st_size:,} bytes, the group {about.group} at instance {about.applied}")


@app.command()
def restore(group: GroupFile, file: BackupFile) -> None:
    """Load a backup into a new group, which is running and has had no client yet."""
    import asyncio

    from surecast.broker.group_admin import ask_restore
    from surecast.broker.group_config import load_broker_group

    about = asyncio.run(ask_restore(load_broker_group(_file(group)), file))
    typer.echo(f"restored from {file}: the group {about.group} at instance {about.applied}")


def _described(statuses: list[dict[str, Any]], spec: BrokerGroupSpec) -> list[dict[str, Any]]:
    """Returns what the replicas say, with where each stands in the group and where it listens."""
    from surecast.broker.group_config import BrokerReplicaSpec
    from surecast.broker.replica.standing import standings

    described = []
    for entry, standing in zip(statuses, standings(statuses), strict=True):
        replica = spec.replica(standing.replica)
        assert isinstance(replica, BrokerReplicaSpec)
        listeners = [
            {"name": each.label, "kind": each.kind, "address": f"{each.host}:{each.wanted_port}"}
            for each in replica.mqtt
        ]
        http = None if replica.http is None else f"{replica.http.host}:{replica.http.port}"
        about = {"role": standing.role, "detail": standing.detail, "behind": standing.behind}
        described.append({**entry, **about, "listeners": listeners, "http": http})
    return described


def group_verdict(replicas: list[dict[str, Any]]) -> str:
    """Returns in one sentence whether a group works, and how many failures it tolerates now.

    >>> leads, votes, down = ({"role": role} for role in ("leads", "votes", "down"))
    >>> group_verdict([{**leads, "replica": 1, "leader": 1}, {**votes, "replica": 2}, {**down, "replica": 3}])
    'The group works: replica 1 leads, and 2 of 3 replicas vote. No more may fail.'
    """
    alarmed = [str(replica["replica"]) for replica in replicas if replica.get("alarm")]
    if alarmed:
        return f"The group is NOT in agreement: see the alarm of replica {', '.join(alarmed)} below."
    members = [replica for replica in replicas if replica["role"] not in ("joins", "replaced")]
    voters = [replica for replica in members if replica["role"] in ("leads", "votes") or replica.get("voting")]
    majority = len(members) // 2 + 1
    votes = f"{len(voters)} of {len(members)} replicas vote"
    leader = next((replica["leader"] for replica in replicas if replica.get("leader")), None)
    if leader is None:
        return f"The group does NOT work: no replica leads, and {votes}; {majority} are needed."
    spare = len(voters) - majority
    tolerated = {0: "No more may fail.", 1: "It works on if 1 more fails."}
    if spare < 0:
        return f"The group may NOT work: replica {leader} is said to lead, but {votes}; {majority} are needed."
    return (
        f"The group works: replica {leader} leads, and {votes}. "
        f"{tolerated.get(spare, f'It works on if {spare} more fail.')}"
    )


def _print_status(replicas: list[dict[str, Any]]) -> None:
    from surecast.cli.output import console, print_table

    console.print(group_verdict(replicas), markup=False, soft_wrap=True)
    rows = []
    for replica in replicas:
        state = f"{replica['role']}: {replica['detail']}" if replica["detail"] else replica["role"]
        figures = ["", "", "", "", ""]
        if "error" not in replica:
            figures = [
                str(replica["leader"] or "none"),
                f"{replica['applied']:,}",
                f"{replica['behind']:,}",
                str(replica["hash"])[:8],
            ]
            figures.append(_clock_text(replica))
        rows.append([str(replica["replica"]), state, *figures])
    print_table(("replica", "state"), ("leader", "applied", "behind", "hash", "clock"), rows)
    for replica in replicas:
        where = [f"{each['address']} ({each['kind']})" for each in replica["listeners"]]
        where += [f"{replica['http']} (http)"] if replica["http"] is not None else []
        console.print(f"replica {replica['replica']} listens at {', '.join(where)}", markup=False, soft_wrap=True)
    for replica in replicas:
        if replica.get("alarm"):
            console.print(f"ALARM at replica {replica['replica']}: {replica['alarm']}", markup=False, soft_wrap=True)
        if times := replica.get("counts", {}).get("states discarded"):
            console.print(
                f"replica {replica['replica']} differed from the majority and took its state, {times} time(s) since "
                "its start; its log says when",
                markup=False,
                soft_wrap=True,
            )


def _clock_text(replica: dict[str, Any]) -> str:
    """Returns how far the clock of a replica is from that of the majority."""
    ahead_s = replica.get("clock_ahead_s")
    if ahead_s is None:
        return "unknown"
    return f"{abs(ahead_s):.3g} s {'ahead' if ahead_s > 0 else 'behind'}" if abs(ahead_s) >= _CLOCK_S else "right"
