"""A changed configuration: the part that a running broker takes at once, and the part that waits for its next start."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from surecast.broker.config import BrokerConfigError, access_rules, findings
from surecast.broker.config_models import BrokerConfig, HttpSpec, ListenerSpec
from surecast.broker.security import read_users
from surecast.broker.security_acl import AccessRules
from surecast.broker.tls import certificate_context, tls_context
from surecast.documents.source import field_name
from surecast.documents.validation import Spec
from surecast.errors import Problem

__all__ = ["Prepared", "merge", "prepare"]

# What is bound, opened or built once; everything else can change.
_BROKER: Final = ("name", "state", "event_log", "admin_socket", "system_interval")
_LISTENER: Final = ("name", "kind", "host", "port", "path")
_FORM: Final = ("topic_levels", "user_properties", "packet_filters")
_HTTP: Final = ("host", "port", "token_file", "log_readers")

S = TypeVar("S", bound=Spec)


def merge(running: BrokerConfig, wanted: BrokerConfig) -> tuple[BrokerConfig, list[str]]:
    """The configuration that a running broker can have of a new one, and the fields that need a new start.

    >>> old, new = BrokerConfig(drain="1s"), BrokerConfig(name="other", drain="2s")
    >>> merged, waiting = merge(old, new)
    >>> merged.name, merged.drain, waiting
    ('surecast', 2.0, ['name'])
    """
    waiting: list[str] = []
    merged = _keep(running, wanted, _BROKER, "", waiting)
    return merged.model_copy(
        update={
            "listeners": _listeners(running.listeners, wanted.listeners, waiting),
            "limits": _keep(running.limits, wanted.limits, _FORM, "limits.", waiting),
            "log": _keep(running.log, wanted.log, ("format",), "log.", waiting),
            "http": _http(running.http, wanted.http, waiting),
        }
    ), waiting


def _keep(running: S, wanted: S, names: Sequence[str], prefix: str, waiting: list[str]) -> S:
    """The new one with some fields of the old one; those that differ are noted."""
    kept = {name: getattr(running, name) for name in names if getattr(running, name) != getattr(wanted, name)}
    waiting += [f"{prefix}{name}" for name in kept]
    return wanted.model_copy(update=kept)


def _listeners(
    running: Sequence[ListenerSpec], wanted: Sequence[ListenerSpec], waiting: list[str]
) -> tuple[ListenerSpec, ...]:
    """The listeners there are, with what can change of them. They are found again by name."""
    left = list(enumerate(wanted))
    merged = []
    for listener in running:
        found = next((pair for pair in left if pair[1].label == listener.label), None)
        if found is None:
            waiting.append(f"listeners ({listener.label} stays open)")
            merged.append(listener)
        else:
            left.remove(found)
            merged.append(_keep(listener, found[1], _LISTENER, f"listeners[{found[0]}].", waiting))
    waiting += [f"listeners[{at}]" for at, _ in left]
    return tuple(merged)


def _http(running: HttpSpec | None, wanted: HttpSpec | None, waiting: list[str]) -> HttpSpec | None:
    if running is None or wanted is None:
        if running is not wanted:
            waiting.append("http")
        return running
    merged = _keep(running, wanted, _HTTP, "http.", waiting)
    if (running.certificate is None) != (wanted.certificate is None):
        waiting.append("http.certificate")
        merged = merged.model_copy(update={"certificate": running.certificate, "key": running.key})
    return merged


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a configuration names and that had to be read: users, access rules, and TLS for each listener."""

    config: BrokerConfig
    users: dict[str, str] | None
    access: AccessRules | None
    contexts: tuple[ssl.SSLContext | None, ...]


def prepare(config: BrokerConfig) -> Prepared:
    """Reads everything; SurecastError says what is wrong, and nothing has changed then.

    The whole is checked once more: a listener that keeps its address may not be safe with the new users, though the one
    in the file would be.
    """
    problems = [
        Problem("the running broker", None, field_name(path), message, hint) for path, message, hint in findings(config)
    ]
    if problems:
        raise BrokerConfigError(problems)
    if config.http is not None and config.http.certificate is not None:
        certificate_context(config.http.certificate, config.http.key)
    security = config.security
    has_rules = security.rules or security.acl is not None
    return Prepared(
        config,
        read_users(security.users) if security.users is not None else None,
        AccessRules(access_rules(config), security.wildcards) if has_rules else None,
        tuple(tls_context(listener) if listener.secure else None for listener in config.listeners),
    )
