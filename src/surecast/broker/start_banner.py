"""The lines that a broker prints when it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surecast import __version__
from surecast.broker.config import is_loopback
from surecast.broker.config_models import BrokerConfig
from surecast.broker.listeners import Listener
from surecast.documents.units import format_duration

__all__ = ["banner", "started_fields"]

_SCHEMES = {"tcp": "mqtt", "tls": "mqtts", "websocket": "ws", "secure-websocket": "wss"}
_SURVIVES = {
    "full": "an acknowledged message survives a loss of power",
    "os": "an acknowledged message survives the end of the broker, but not a loss of power",
    "memory": "in memory only: nothing survives the end of this process",
}


def banner(config: BrokerConfig, listeners: list[Listener], socket: Path, http: list[str], restored: int) -> str:
    """Lines for people: where clients connect, what survives, who may come in, and the limits."""
    limits = config.limits
    lines = [("listening", url) for listener in listeners for url in _urls(listener)]
    folder = "" if config.state.folder is None else f"{config.state.folder}, "
    sessions = f"; {restored:,} sessions found" if restored else ""
    lines += [
        ("state", f"{folder}durability {config.state.chosen}: {_SURVIVES[config.state.chosen]}{sessions}"),
        ("access", _access(config)),
        (
            "limits",
            f"{limits.connections:,} connections; for each session {limits.queue_messages:,} messages and "
            f"{_size(limits.queue_size)} waiting, then {limits.overflow}; packets to {_size(limits.packet_size)}",
        ),
    ]
    if config.event_log is not None:
        lines.append(("event log", str(config.event_log.folder)))
    scheme = "https" if config.http is not None and config.http.certificate is not None else "http"
    lines += [("http", f"{scheme}://{address}/metrics") for address in http]
    where = f"--folder {config.state.folder}" if config.state.folder is not None else f"--port {listeners[0].port}"
    lines.append(("admin", f"surecast broker status {where if config.admin_socket is None else f'--socket {socket}'}"))
    lines.append(("stop", f"SIGTERM or Ctrl-C; clients have {format_duration(config.drain)} to take what is unsent"))
    shown = "\n".join(f"  {name:<10} {text}" for name, text in lines)
    return f"surecast {__version__} broker {config.name}\n{shown}\n"


def started_fields(config: BrokerConfig, listeners: list[Listener], http: list[str], restored: int) -> dict[str, Any]:
    """The same for programs."""
    return {
        "name": config.name,
        "version": __version__,
        "listeners": [
            {
                "name": listener.name,
                "kind": listener.spec.kind,
                "port": listener.port,
                "addresses": listener.addresses,
            }
            for listener in listeners
        ],
        "durability": config.state.chosen,
        "folder": None if config.state.folder is None else str(config.state.folder),
        "http": http,
        "sessions": restored,
    }


def _urls(listener: Listener) -> list[str]:
    path = listener.spec.path if listener.spec.websocket else ""
    return [f"{_SCHEMES[listener.spec.kind]}://{address}{path}" for address in listener.addresses]


def _access(config: BrokerConfig) -> str:
    anonymous = [listener for listener in config.listeners if config.anonymous_at(listener)]
    if len(anonymous) == len(config.listeners):
        where = "on this machine" if all(is_loopback(each.host) for each in anonymous) else "IN THE NETWORK"
        who = f"anybody {where}, without a password"
    elif anonymous:
        who = f"users with passwords or certificates; anybody at {', '.join(each.label for each in anonymous)}"
    else:
        who = "users with passwords or certificates"
    has_rules = config.security.rules or config.security.acl is not None
    return f"{who}; {'by access rules' if has_rules else 'no access rules: all topics'}"


def _size(size_bytes: float) -> str:
    """A size in round figures."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:.0f} B"
