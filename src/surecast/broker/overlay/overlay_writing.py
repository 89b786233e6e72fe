"""Writes the file of an overlay from its plan: where each broker is, and how brokers trust each other."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from surecast.broker.config import is_loopback
from surecast.broker.free_ports import free_ports
from surecast.broker.overlay.overlay_file import OVERLAY_FILE, OverlayFile, check_overlay, load_overlay
from surecast.broker.private import make_private, write_private
from surecast.broker.replica.addresses import Address
from surecast.broker.replica.founding import new_founding
from surecast.documents.reading import parse_source, yaml_text
from surecast.documents.units import format_duration
from surecast.errors import ConfigurationError
from surecast.protocol.overlay.overlay_plan import OverlayPlan

__all__ = ["LINK_PORT", "detector_times", "write_overlay"]

LINK_PORT: Final = 7001
"""The port for links of a broker on a machine of its own."""
_MQTT_PORT: Final = 1883
_PING_MAX_S: Final = 0.1
_PINGS: Final = 4
"""A neighbour is suspected when it has missed so many pings."""
_LOCALHOST: Final = "127.0.0.1"


def detector_times(suspect_s: float) -> dict[str, str]:
    """Returns the fields of an overlay's file with which a silent neighbour is suspected after a time.

    >>> detector_times(0.2)
    {'ping': '50ms', 'suspect': '0.2s'}
    """
    return {"ping": format_duration(min(_PING_MAX_S, suspect_s / _PINGS)), "suspect": format_duration(suspect_s)}


def write_overlay(
    path: Path,
    name: str,
    plan: OverlayPlan,
    *,
    hosts: Mapping[str, str] | None = None,
    certificates: Path | None = None,
    options: Mapping[str, Any] | None = None,
    groups: Mapping[str, int] | None = None,
    told: Mapping[str, Any] | None = None,
) -> OverlayFile:
    """Writes the file of an overlay, and a secret beside it unless certificates are enough; returns what is in it.

    A broker is at the address that `hosts` has for it, at the usual ports, or else on this machine, at ports that are
    free now. `groups` has the brokers that are groups, with the number of their replicas, `told` what these are
    told besides. `options` are further fields of the file. ConfigurationError where the file is there already, or
    where brokers of several machines have no certificates.
    """
    hosts, groups = hosts or {}, groups or {}
    _check_groups(plan, hosts, groups)
    if path.exists():
        raise ConfigurationError(f"{path}: is there already; choose another name, or remove it")
    for broker in hosts:
        if broker not in plan.brokers:
            raise ConfigurationError(
                f"host of {broker!r}: there is no such broker; there are {', '.join(plan.brokers)}"
            )
    remote = next((broker for broker, host in hosts.items() if not is_loopback(host)), None)
    if remote is not None and certificates is None:
        raise ConfigurationError(
            f"host of {remote!r}: {hosts[remote]} is another machine, and links between machines need certificates; "
            "name their folder"
        )
    make_private(path.parent)
    data: dict[str, Any] = {"name": name, "epoch": plan.epoch, "hash": plan.hash}
    if certificates is not None:
        data["certificates"] = str(certificates.absolute())
    if certificates is None or groups:  # replicas trust each other by a secret
        secret = path.with_suffix(".secret")
        if not secret.exists():
            write_private(secret, secrets.token_hex(32) + "\n")
        data["secret_file"] = secret.name
    data |= {"data": "data", **(options or {}), "brokers": _brokers(plan, hosts, groups, told or {})}
    data |= _fields_of(plan)
    text = yaml_text(data, default_flow_style=None, width=120, allow_unicode=True)
    # Digits alone, or with one e among them, would be a number.
    text = text.replace(f"hash: {plan.hash}\n", f"hash: '{plan.hash}'\n", 1)
    check_overlay(parse_source(text, str(path), path.resolve().parent, OVERLAY_FILE))
    write_private(path, text)
    return load_overlay(path)


def _brokers(
    plan: OverlayPlan, hosts: Mapping[str, str], groups: Mapping[str, int], told: Mapping[str, Any]
) -> list[dict[str, Any]]:
    local = [broker for broker in plan.brokers if broker not in hosts]
    ports = iter(free_ports(sum(3 * groups.get(broker, 1) for broker in local)))
    brokers: list[dict[str, Any]] = []
    for broker in plan.brokers:
        host = hosts.get(broker)
        if host is not None:
            mqtt: dict[str, Any] = {"name": "mqtt", "host": host, "port": _MQTT_PORT}
            brokers.append({"name": broker, "link": str(Address(host, LINK_PORT)), "mqtt": [mqtt]})
        elif broker in groups:
            replicas = [_replica(number, ports) for number in range(1, groups[broker] + 1)]
            brokers.append({"name": broker, "founding": new_founding(), **told, "replicas": replicas})
        else:
            link, mqtt = str(Address(_LOCALHOST, next(ports))), {"name": "mqtt", "port": next(ports)}
            brokers.append({"name": broker, "link": link, "mqtt": [mqtt]})
    return brokers


def _replica(number: int, ports: Iterator[int]) -> dict[str, Any]:
    peer, link = (str(Address(_LOCALHOST, next(ports))) for _ in range(2))
    return {"id": number, "peer": peer, "link": link, "mqtt": [{"name": "mqtt", "port": next(ports)}]}


def _check_groups(plan: OverlayPlan, hosts: Mapping[str, str], groups: Mapping[str, int]) -> None:
    """Raises ConfigurationError where a broker cannot be such a group."""
    for broker, replicas in groups.items():
        if broker not in plan.brokers:
            raise ConfigurationError(
                f"replicas of {broker!r}: there is no such broker; there are {', '.join(plan.brokers)}"
            )
        if replicas < 3 or replicas % 2 == 0:
            raise ConfigurationError(f"replicas of {broker}: {replicas}; write 3, or another odd number above it")
        if broker in hosts:
            raise ConfigurationError(
                f"replicas of {broker}: each has an address of its own; leave out the host, and write replicas: into "
                "the file"
            )


def _fields_of(plan: OverlayPlan) -> dict[str, Any]:
    """Returns the plan as the file says it, without what is so by default."""
    trees = []
    for tree in plan.trees:
        entry: dict[str, Any] = {"scheme": tree.scheme, "algorithm": tree.algorithm}
        if tree.root is not None:
            entry["root"] = tree.root
        if tree.refresh != "link":
            entry["refresh"] = tree.refresh
        if tree.advertisements:
            entry["advertisements"] = True
        if tree.algorithms:
            entry["algorithms"] = [{"link": list(link), "algorithm": name} for link, name in tree.algorithms]
        trees.append(entry | {"links": [list(link) for link in tree.links]})
    return {
        "links": [list(link) for link in plan.links],
        "trees": trees,
        "prefixes": [{"prefix": prefix, "trees": list(numbers)} for prefix, numbers in plan.prefixes],
    }
