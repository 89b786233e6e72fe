"""From a configuration file and flags to a checked configuration: all that is wrong is found at once, with its line."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from surecast.broker.config_models import BrokerConfig, ListenerSpec, OverridesSpec
from surecast.broker.security import read_users
from surecast.broker.security_acl import Rule, parse_rule, read_rules
from surecast.broker.tls import certificate_context, tls_context
from surecast.documents.source import DocumentKind, FieldPath, Source, has_part, parse_field
from surecast.documents.validation import check_model
from surecast.errors import ConfigurationError, FileError, Problem, ScenarioError

__all__ = [
    "BrokerConfigError",
    "access_rules",
    "admin_socket_path",
    "default_admin_socket",
    "findings",
    "is_loopback",
    "load_config",
]

COMMAND_LINE = "command line"
_SOCKET_PATH_MAX = 100  # the operating system allows little more


class BrokerConfigError(ScenarioError, ConfigurationError):
    """A broker's configuration is wrong in one or more places; `problems` lists them all."""


CONFIGURATION = DocumentKind(
    "configuration",
    "listeners: and state:",
    "docs/guides/run-a-broker.md has one to start from",
    BrokerConfigError,
)


def load_config(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> BrokerConfig:
    """Reads and checks a configuration. `flags` are fields by name that go before those of the file.

    Raises BrokerConfigError with every problem found.

    >>> load_config(None, {"listeners[0].port": 1884}).listeners[0].port
    1884
    >>> load_config(None, {"listeners[0].host": "0.0.0.0"})
    Traceback (most recent call last):
        ...
    surecast.broker.config.BrokerConfigError: command line: listeners[0].host: 0.0.0.0 would let anybody in ...
    """
    source = Source(COMMAND_LINE, Path(), {}) if path is None else _read(path)
    _apply(source, flags or {})
    config = check_model(source, BrokerConfig, CONFIGURATION)
    problems = [source.problem(where, message, hint) for where, message, hint in findings(config)]
    if problems:
        raise BrokerConfigError(problems)
    return config


def access_rules(config: BrokerConfig) -> list[Rule]:
    """All access rules, those of the configuration first."""
    security = config.security
    return [*map(parse_rule, security.rules), *(read_rules(security.acl) if security.acl else [])]


def admin_socket_path(config: BrokerConfig, port: int | None = None) -> Path:
    """The local socket of a broker's administration; `port` is the first listener's, where it had none of its own."""
    if config.admin_socket is not None:
        return config.admin_socket
    return default_admin_socket(config.state.folder, config.listeners[0].wanted_port if port is None else port)


def default_admin_socket(folder: Path | None, port: int) -> Path:
    """Returns the path of the admin socket where the configuration names none.

    It is in the folder of the state. Without such a folder, or where that path is too long for a socket, it is in a
    folder of the user, and named by the first port or by a hash of the path.
    """
    if folder is not None:
        path = Path(os.path.realpath(folder)) / "admin.sock"
        if len(os.fsencode(path)) <= _SOCKET_PATH_MAX:
            return path
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    else:
        name = f"port-{port}"
    places = [os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), "/tmp"]
    paths = [Path(place) / f"surecast-{os.getuid()}" / f"{name}.sock" for place in places]
    return next((path for path in paths if len(os.fsencode(path)) <= _SOCKET_PATH_MAX), paths[-1])


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("*")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host != "*" else []
    except OSError:
        return False
    addresses = [str(entry[4][0]).partition("%")[0] for entry in entries]
    return bool(addresses) and all(ipaddress.ip_address(address).is_loopback for address in addresses)


def _read(path: Path) -> Source:
    from surecast.documents.reading import read_source  # a broker without a file starts without the YAML parser

    return read_source(path, CONFIGURATION)


def _apply(source: Source, flags: Mapping[str, Any]) -> None:
    """Sets fields from the command line."""
    for name, value in flags.items():
        path = parse_field(name)
        place: Any = source.data
        for at, step in enumerate(path[:-1]):
            if isinstance(place, list) and isinstance(step, int) and len(place) <= step <= len(place) + 1:
                place += [{} for _ in range(step + 1 - len(place))]
            elif isinstance(place, dict) and not isinstance(place.get(str(step)), (dict, list)):
                place[str(step)] = [] if isinstance(path[at + 1], int) else {}
            place = place[step] if has_part(place, step) else None
        if not isinstance(place, dict) and not has_part(place, path[-1]):
            raise BrokerConfigError([Problem(COMMAND_LINE, None, name, "there is no such field to set")])
        # A path on the command line starts where the command runs, not where the file is.
        place[path[-1]] = str(value.absolute()) if isinstance(value, Path) else value
        source.overridden[path] = COMMAND_LINE


_Finding = tuple[FieldPath, str, str]


def findings(config: BrokerConfig) -> Iterator[_Finding]:
    """Yields the mistakes of fields that are right one by one: path, what is wrong, what would be right."""
    for index, listener in enumerate(config.listeners):
        for path, message, hint in _listener_findings(config, listener):
            yield ("listeners", index, *path), message, hint
    first: dict[str, int] = {}
    for index, listener in enumerate(config.listeners):
        if listener.label in first and (listener.name or listener.wanted_port):
            message = f"has the name {listener.label}, as listeners[{first[listener.label]}]"
            yield ("listeners", index), message, "rename it"
        first.setdefault(listener.label, index)
    if config.state.chosen != "memory" and config.state.folder is None:
        yield ("state", "durability"), f"{config.state.chosen} needs a folder", "name one as state.folder"
    yield from _security_findings(config)
    try:
        _ = config.settings
    except ConfigurationError as error:
        yield ("limits",), str(error), ""
    for index, rule in enumerate(config.clients):
        if rule.client is None and rule.user is None:
            yield ("clients", index), "names no client", "write client: or user: with a pattern such as sensor-*"
        yield from _overrides_findings(rule.limits, ("clients", index, "limits"))


def _overrides_findings(limits: OverridesSpec, path: FieldPath) -> Iterator[_Finding]:
    try:
        limits.overrides()
    except ConfigurationError as error:
        message, _, hint = str(error).partition("; ")
        yield path, message, hint


def _listener_findings(config: BrokerConfig, listener: ListenerSpec) -> Iterator[_Finding]:
    if listener.secure:
        try:
            tls_context(listener)
        except ConfigurationError as error:
            yield ("certificate",), str(error), "name PEM files as certificate: and key:"
    else:
        for name in ("certificate", "key", "ca"):
            if getattr(listener, name) is not None:
                yield (name,), f"means nothing for the kind {listener.kind}", "write kind: tls or secure-websocket"
    yield from _overrides_findings(listener.limits, ("limits",))
    for name in ("require_client_certificate", "use_certificate_name"):
        if getattr(listener, name) and (listener.ca is None or not listener.secure):
            yield (name,), "needs TLS and the authorities to trust", "name their file as ca:"
    if (
        config.anonymous_at(listener)
        and not listener.require_client_certificate
        and not config.security.allow_anonymous_remote
        and not is_loopback(listener.host)
    ):
        hint = (
            "name a users file (security.users, --users), set anonymous: false, or say that this is wanted with "
            "security.allow_anonymous_remote: true (--allow-anonymous-remote)"
        )
        yield ("host",), f"{listener.host} would let anybody in the network connect without a user name", hint
    elif (
        not config.anonymous_at(listener)
        and config.security.users is None
        and not (listener.use_certificate_name or listener.require_client_certificate)
    ):
        hint = "name a users file as security.users, or use certificates"
        yield ("anonymous",), "nobody could connect here: there are no users", hint


def _security_findings(config: BrokerConfig) -> Iterator[_Finding]:
    security = config.security
    for name, read in (("users", read_users), ("acl", read_rules)):
        file = getattr(security, name)
        if file is not None:
            try:
                read(file)
            except FileError as error:
                yield ("security", name), str(error), ""
    for at, text in enumerate(security.rules):
        try:
            parse_rule(text)
        except ConfigurationError as error:
            message, _, hint = str(error).partition("; ")
            yield ("security", "rules", at), message, hint
    http = config.http
    if http is not None and (http.certificate is not None or http.key is not None):
        try:
            certificate_context(http.certificate, http.key)
        except ConfigurationError as error:
            yield ("http", "certificate"), str(error), "name PEM files as certificate: and key:"
    if config.http is not None and config.http.log_readers and security.users is None:
        yield ("http", "log_readers"), "there are no users", "name their file as security.users"
