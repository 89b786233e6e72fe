"""`surecast broker`: run a broker, and ask a running one."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from surecast.cli.options import AsJson, parse_overrides, takes_groups

if TYPE_CHECKING:
    from surecast.broker.group_config import BrokerGroupSpec
    from surecast.protocol.group import Application

__all__ = ["app", "applications_of", "listener_count", "settings_of"]

app = typer.Typer(help="Run an MQTT broker, and ask a running one.", invoke_without_command=True)


class _Durability(StrEnum):
    full = "full"
    os = "os"
    memory = "memory"


class _Level(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class _Format(StrEnum):
    text = "text"
    json = "json"


@app.callback()
def broker(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Configuration file, YAML.")] = None,
    check_config: Annotated[Path | None, typer.Option(help="Check a configuration file, and exit.")] = None,
    group: Annotated[Path | None, typer.Option(help="File of the group of which this broker is a replica.")] = None,
    id: Annotated[int | None, typer.Option(help="The number of the replica, with --group.")] = None,
    overlay: Annotated[
        Path | None, typer.Option(help="File of the overlay of which this broker, called --name, is one.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="With --overlay: another folder of the state than the file says.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", help="Port of the first listener; 1883 by default.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address of the first listener; 127.0.0.1 by default.")] = None,
    websocket_port: Annotated[int | None, typer.Option(help="Listen for WebSocket at this port too.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of the state; by default the state is in memory only.")
    ] = None,
    durability: Annotated[
        _Durability | None,
        typer.Option(
            help="Acknowledged messages survive: full, a loss of power; os, the end of the broker; memory, neither."
        ),
    ] = None,
    users: Annotated[Path | None, typer.Option(help="Users file, made by surecast passwd.")] = None,
    acl: Annotated[Path | None, typer.Option(help="File of access rules.")] = None,
    allow_anonymous_remote: Annotated[
        bool,
        typer.Option("--allow-anonymous-remote", help="Let every client in the network connect without a password."),
    ] = False,
    http_port: Annotated[int | None, typer.Option(help="Port for metrics and health over HTTP.")] = None,
    event_log: Annotated[Path | None, typer.Option(help="Folder of an event log.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the broker.")] = None,
    log_level: Annotated[_Level | None, typer.Option(help="Least level of messages in the log.")] = None,
    log_format: Annotated[_Format | None, typer.Option(help="Format of log lines.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Set a field of the configuration. May be repeated."),
    ] = None,
) -> None:
    """Run an MQTT broker until it is stopped.

    Without options it listens on 127.0.0.1, port 1883, and keeps its state in memory."""
    if context.invoked_subcommand is not None:
        return
    from surecast.broker.config import load_config

    flags: dict[str, Any] = {
        "listeners[0].port": port,
        "listeners[0].host": host,
        "state.folder": folder,
        "state.durability": durability and durability.value,
        "security.users": users,
        "security.acl": acl,
        "security.allow_anonymous_remote": True if allow_anonymous_remote else None,
        "http.port": http_port,
        "event_log.folder": event_log,
        "name": name,
        "log.level": log_level and log_level.value,
        "log.format": log_format and log_format.value,
    }
    flags = {field: value for field, value in flags.items() if value is not None} | settings_of(settings)
    if overlay is not None or data is not None:
        own = flags.pop("name", None)
        _run_overlay_broker(overlay, own, id, data, [*flags, *_others(config, check_config, group)])
    if group is not None or id is not None:
        _run_replica(group, id, [*flags, *(["config"] if config or check_config else [])])
    file = check_config or config
    if websocket_port is not None:
        count = listener_count(file)
        flags |= {f"listeners[{count}].kind": "websocket", f"listeners[{count}].port": websocket_port}
        if host is not None:
            flags[f"listeners[{count}].host"] = host
    loaded = load_config(file, flags)
    if check_config is not None:
        typer.echo(f"{check_config}: ok")
        return
    from surecast.broker.broker_service import run_broker

    _leave(run_broker(loaded, reread=lambda: load_config(file, flags)))


def _run_replica(group: Path | None, number: int | None, others: list[str]) -> None:
    from surecast.errors import ConfigurationError

    if group is None or number is None:
        raise ConfigurationError("--group and --id go together: the file of a group, and which replica this is")
    if others:
        raise ConfigurationError(f"--group: the group's file says everything; {', '.join(others)} cannot be given too")
    from surecast.broker.broker_service import EXIT_STORE_FAILED
    from surecast.broker.group_run import run_group_broker
    from surecast.broker.replica.founding import LostStateError
    from surecast.broker.store_base import DamagedError
    from surecast.cli.broker import applications_of
    from surecast.cli.output import print_error

    try:
        code = run_group_broker(group, number, applications_of)
    except (LostStateError, DamagedError) as error:
        print_error(error)
        code = EXIT_STORE_FAILED
    _leave(code)


def _others(config: Path | None, check_config: Path | None, group: Path | None) -> list[str]:
    options = {"config": config, "check_config": check_config, "group": group}
    return [name for name, value in options.items() if value is not None]


def _run_overlay_broker(
    overlay: Path | None, name: str | None, replica: int | None, data: Path | None, others: list[str]
) -> None:
    from surecast.errors import ConfigurationError

    if overlay is None or name is None:
        raise ConfigurationError("--overlay and --name go together: the file of an overlay, and which broker this is")
    if replica is not None and data is not None:
        raise ConfigurationError("--data: the replicas of a group have their folders from the overlay's file")
    if others:
        raise ConfigurationError(
            f"--overlay: the overlay's file says everything; {', '.join(others)} cannot be given too"
        )
    from surecast.broker.broker_service import EXIT_STORE_FAILED
    from surecast.broker.replica.founding import LostStateError
    from surecast.broker.store_base import DamagedError
    from surecast.cli.output import print_error

    try:
        if replica is None:
            from surecast.broker.overlay.overlay_service import run_overlay_broker

            code = run_overlay_broker(overlay, name, data)
        else:
            from surecast.broker.overlay.overlay_group import run_overlay_replica

            code = run_overlay_replica(overlay, name, replica)
    except (LostStateError, DamagedError) as error:
        print_error(error)
        code = EXIT_STORE_FAILED
    _leave(code)


def _leave(code: int) -> NoReturn:
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        # The broker has stopped in good order; a second signal must not make it look otherwise.
        signal.signal(signal_number, signal.SIG_IGN)
    raise typer.Exit(code)


def settings_of(texts: list[str] | None) -> dict[str, Any]:
    overrides = parse_overrides(texts)
    if not overrides:
        return {}
    from surecast.documents.reading import parse_source

    return {name: parse_source(value, f"--set {name}", Path()).data for name, value in overrides.items()}


def listener_count(file: Path | None) -> int:
    """Returns the number of listeners in a file, so that another can be added behind them."""
    from surecast.broker.config import load_config

    return 1 if file is None else len(load_config(file).listeners)


@app.command()
def salvage(
    folder: Annotated[Path, typer.Argument(help="Folder of a broker's state.", show_default=False)],
    last_resort: Annotated[
        bool,
        typer.Option(
            "--last-resort",
            help="Salvage the state of a replica, too, although votes that it gave in its group may be lost.",
        ),
    ] = False,
) -> None:
    """Repair a damaged state: keep the records before the damage, and list what is lost.

    Damaged files are moved to a folder beside the others, never deleted. An undamaged state is not changed.
    """
    from surecast.broker.store_salvage import salvage as salvaged

    result = salvaged(folder, last_resort)
    if result.aside is None:
        verdict = result.reason or "not damaged, nothing was done"
        typer.echo(f"{folder}: {verdict}: {result.pairs:,} records, {result.last_commit:,} commits")
        return
    typer.echo(f"damage: {result.reason}")
    typer.echo(f"kept: {result.pairs:,} records, the state after commit {result.kept_commit:,}")
    if result.moved:
        typer.echo(f"  {result.moved:,} of them were found after the damage, as unchanged copies")
    if result.last_commit > result.kept_commit:
        typer.echo(f"lost: commits {result.kept_commit + 1:,} to {result.last_commit:,} at least")
    else:
        typer.echo("lost: no known commit; the unreadable part may have held more")
    typer.echo(f"set aside: {result.aside}")


@dataclass(frozen=True, kw_only=True)
class RunningBroker:
    """A broker that runs already, and how to reach it."""

    port: Annotated[int, typer.Option("--port", "-p", help="Port of the broker's first listener.")] = 1883
    folder: Annotated[Path | None, typer.Option(help="Folder of the broker's state.")] = None
    socket: Annotated[Path | None, typer.Option(help="Unix-domain socket of the broker, for administration.")] = None
    url: Annotated[str | None, typer.Option(help="Address of the broker's HTTP listener.")] = None
    token_file: Annotated[Path | None, typer.Option(help="With --url: file that has the token.")] = None

    def ask(self, path: str, query: dict[str, Any] | None = None, method: str = "GET") -> dict[str, Any]:
        """Returns the answer of the broker to a request for administrators."""
        from surecast.broker.admin_client import ask
        from surecast.broker.config import default_admin_socket
        from surecast.errors import ConfigurationError

        if self.url is None:
            return ask(self.socket or default_admin_socket(self.folder, self.port), path, query, method)
        try:
            token = self.token_file.read_text(encoding="utf-8").strip() if self.token_file is not None else None
        except OSError as error:
            raise ConfigurationError(f"{self.token_file}: the token cannot be read: {error.strerror}") from None
        return ask(self.url, path, query, method, token)


_IDENTIFIERS = 2
"""Columns that name a session: the client and its user."""
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many to show.")]


@app.command()
@takes_groups
def status(
    running: RunningBroker,
    json: AsJson = False,
) -> None:
    """Show the state of a broker: listeners, sessions, and what became of its messages."""
    from surecast.cli.output import console, print_json

    data = running.ask("/status")
    if json:
        print_json(data)
        return
    accounts = data["accounts"]
    dropped = ", ".join(f"{reason} {count:,}" for reason, count in accounts["dropped"].items()) or "none"
    lines = [
        ("broker", f"{data['name']}, version {data['version']}, up {data['uptime_s']:,.0f} s"),
        ("state", f"{data['durability']}{', ' + data['folder'] if data['folder'] else ''}"),
        *[("listening", f"{', '.join(e['addresses'])} ({e['kind']}): {e['connections']:,}") for e in data["listeners"]],
        ("sessions", f"{data['sessions']:,}, {data['connected']:,} of them connected"),
        ("topics", f"{data['subscriptions']:,} subscriptions, {data['retained']:,} retained messages"),
        ("published", f"{data['published']:,} messages"),
        ("matched", f"{accounts['matched']:,} = {accounts['delivered']:,} delivered + "
                    f"{sum(accounts['dropped'].values()):,} dropped + {accounts['expired']:,} expired + "
                    f"{accounts['queued']:,} queued"),
        ("dropped", dropped),
        ("refused", f"{data['refused']:,} connections, {data['unauthorised']:,} by access rules, "
                    f"{data['protocol_errors']:,} protocol errors"),
    ]  # fmt: skip
    for name, text in lines:
        console.print(f"{name:<10} {text}", markup=False, soft_wrap=True)


@app.command()
@takes_groups
def clients(
    running: RunningBroker,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List the connected clients."""
    data = running.ask("/clients", {"limit": limit})
    columns = ("client", "user", "address", "version", "connected_s", "queued")
    _show(data, "clients", [[str(each[column] or "") for column in columns] for each in data["clients"]], columns, json)


@app.command()
@takes_groups
def sessions(
    running: RunningBroker,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List sessions with their accounts, the longest queue first."""
    data = running.ask("/sessions", {"limit": limit})
    columns = (
        "client",
        "user",
        "connected",
        "persistent",
        "subscriptions",
        "matched",
        "delivered",
        "dropped",
        "expired",
        "queued",
    )
    rows = []
    for each in data["sessions"]:
        accounts = {**each["accounts"], "dropped": sum(each["accounts"]["dropped"].values())}
        figures = [str(accounts.get(column, each.get(column))).lower() for column in columns[2:]]
        rows.append([each["client"], each["user"] or "", *figures])
    _show(data, "sessions", rows, columns, json)


@app.command()
@takes_groups
def targets(
    running: RunningBroker,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List response targets: the policy of each, what is expected, and what was measured."""
    from surecast.cli.output import console

    data = running.ask("/targets", {"limit": limit})
    if not json:
        count = data["total"]
        verdict = ", ".join(f"{data[name]} {name}" for name in ("met", "missed", "undecided") if data[name]) or "none"
        console.print(f"{count} response target{'' if count == 1 else 's'}: {verdict}; {data['unmeetable']} unmeetable")
    columns = ("client", "user", "target", "policy", "expected", "success", "measured", "verdict")
    _show(data, "targets", [_target_row(each) for each in data["targets"]], columns, json)


def _target_row(each: dict[str, Any]) -> list[str]:
    """Returns the cells of a target in the table."""
    policy = f"{each['policy']}, {each['parameter']}" if each["parameter"] else str(each["policy"] or "")
    if each["can_be_met"] is False:
        policy += f" (cannot be met: {each['reason']})"
    expected = "" if each["expected_s"] is None else f"{each['expected_s']:.3g} s"
    success = "" if each["expected_success"] is None else f"{100 * each['expected_success']:.3g} %"
    measured, low, high = each["measured"], each["measured_low"], each["measured_high"]
    unit, factor = (" %", 100.0) if each["measured_is"] == "share in time" else (" s", 1.0)
    interval = "" if low is None else f" [{factor * low:.3g}, {factor * high:.3g}]"
    text = "" if measured is None else f"{factor * measured:.3g}{unit}{interval}"
    return [each["client"], each["user"] or "", each["target"], policy, expected, success, text, each["verdict"]]


@app.command()
@takes_groups
def kick(
    client: Annotated[str, typer.Argument(help="Client identifier.")],
    running: RunningBroker,
    user: Annotated[
        str | None,
        typer.Option(help="User of the client; needed if several users have a client of that name; '' for no user."),
    ] = None,
    end_session: Annotated[
        bool, typer.Option("--end-session", help="End the session, too, and remove its queued messages.")
    ] = False,
) -> None:
    """Close the connection of a client."""
    query = {"client": client, "end_session": str(end_session).lower()}
    if user is not None:
        query["user"] = user
    running.ask("/kick", query, "POST")
    typer.echo(f"{client}: kicked")


def _show(data: dict[str, Any], noun: str, rows: list[list[str]], columns: tuple[str, ...], as_json: bool) -> None:
    from surecast.cli.output import console, print_json, print_table

    if as_json:
        print_json(data)
        return
    print_table(columns[:_IDENTIFIERS], columns[_IDENTIFIERS:], rows)
    if data["total"] > len(rows):
        console.print(f"{len(rows):,} of {data['total']:,} {noun}; see more with --limit", markup=False)


def applications_of(group: BrokerGroupSpec) -> list[Application]:
    """Returns the applications of a group, and imports only those."""
    if group.zap is None:
        return []
    from surecast.zap.viewers_application import ZapViewers

    return [ZapViewers((group.zap.top,), group.zap.every)]
