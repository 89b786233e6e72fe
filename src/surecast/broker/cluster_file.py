"""The file of a group on this machine: written once, and afterwards compared with what is asked for.

What a broker's configuration says of listeners, security and limits holds for every replica; each gets ports of its
own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from surecast.broker.config_models import BrokerConfig, ListenerSpec
from surecast.broker.free_ports import free_ports
from surecast.broker.group_config import BrokerGroupSpec, BrokerReplicaSpec, load_broker_group
from surecast.broker.private import make_private, write_private
from surecast.broker.replica.founding import found_replica, new_founding, write_founding
from surecast.documents.reading import yaml_text
from surecast.errors import ConfigurationError

__all__ = ["write_group"]

_REPLICAS: Final = 3
_PORT_MAX: Final = 65_535
_SHARED: Final = ("security", "limits", "clients", "event_log", "log", "system_interval", "drain")
"""The settings that a group's file has for all replicas, and a broker's configuration for one."""
_OWN: Final = {
    "state": "a group keeps its state in its own folder, and --sync says what an acknowledged message survives",
    "admin_socket": "each replica has a socket of its own, in its folder",
}


def write_group(
    folder: Path,
    replicas: int | None = _REPLICAS,
    *,
    port: int | None = 0,
    options: Mapping[str, Any] | None = None,
    config: BrokerConfig | None = None,
) -> Path:
    """Founds a group on loopback, with a secret of its own, where there is none yet; returns its file.

    MQTT is at `port` and those after it; 0 takes any that are free. `options` are further fields of the file. Of
    `config`, what was set holds for every replica. None leaves the choice to the file that is there, or to the
    defaults. ConfigurationError names what a file that is there says otherwise.
    """
    fields = {**_fields_of(config), **(options or {})}
    path = folder / "group.yaml"
    if path.exists():
        there = load_broker_group(path)
        found = [*_differences(there, replicas, port, config), *_other_fields(there, fields, folder)]
        if found:
            lines = "".join(f"\n  {line}" for line in found)
            raise ConfigurationError(
                f"{path}: this folder has a group whose file differs from these options:{lines}\n"
                "leave these options out to start that group, change its file while it is stopped, or choose "
                "another folder"
            )
        return _founded(path)
    replicas = _REPLICAS if replicas is None else replicas
    if replicas < 1 or replicas % 2 == 0:
        hint = f"{max(1, replicas - 1)} tolerate as many failures" if replicas > 0 else "it needs one at least"
        raise ConfigurationError(f"replicas is {replicas}: write an odd number; {hint}")
    members = _members(replicas, port, config)
    make_private(folder)
    secret = folder / "secret"
    if not secret.exists():
        write_private(secret, secrets.token_hex(32) + "\n")
    data = {"name": "local", "secret_file": "secret", "data": "data", **fields, "replicas": members}
    write_private(path, yaml_text(data))
    return _founded(path)


def _founded(path: Path) -> Path:
    """Founds a group of this machine unless it is founded: first the stores, then its file says so.

    Where that was interrupted no replica has run yet, and it is done anew.
    """
    group = load_broker_group(path)
    if group.founding is None:
        founding = new_founding()
        for one in group.replicas:
            if not one.joins:
                found_replica(group, one.id, founding)
        write_founding(path, founding, load_broker_group)
    return path


def _fields_of(config: BrokerConfig | None) -> dict[str, Any]:
    """Returns what a configuration sets for the whole group, as the group's file says it."""
    if config is None:
        return {}
    for name, why in _OWN.items():
        if name in config.model_fields_set:
            raise ConfigurationError(f"{name} cannot be set for a group: {why}")
    given = config.model_dump(mode="json", exclude_unset=True)
    return {name: given[name] for name in ("name", *_SHARED) if given.get(name) is not None}


def _members(replicas: int, port: int | None, config: BrokerConfig | None) -> list[dict[str, Any]]:
    """The replicas as the file has them, each with ports of its own."""
    listeners = _listeners(config)
    bases = [each.wanted_port for each in listeners]
    if port is not None:
        bases[0] = port
    http = config.http if config is not None else None
    if http is not None:
        bases.append(http.port)
    ports = _ports(bases, replicas)
    free = iter(free_ports(2 * replicas, {each for row in ports for each in row}))
    names = _names(listeners)
    members = []
    for number, row in enumerate(ports, 1):
        member: dict[str, Any] = {"id": number, "peer": f"127.0.0.1:{next(free)}", "client": f"127.0.0.1:{next(free)}"}
        member["mqtt"] = [
            {"name": name, **each.model_dump(mode="json", exclude_unset=True, exclude={"name"}), "port": own}
            for name, each, own in zip(names, listeners, row, strict=False)
        ]
        if http is not None:
            member["http"] = {**http.model_dump(mode="json", exclude_unset=True), "port": row[-1]}
        members.append(member)
    return members


def _listeners(config: BrokerConfig | None) -> Sequence[ListenerSpec]:
    return config.listeners if config is not None else (ListenerSpec(),)


def _names(listeners: Iterable[ListenerSpec]) -> list[str]:
    """Names that are the same at every replica: limits of a listener hold by its name, whatever its port is."""
    names: list[str] = []
    for at, each in enumerate(listeners):
        name = each.name or ("mqtt" if at == 0 else each.kind)
        names.append(f"{name}-{at + 1}" if name in names else name)
    return names


def _ports(bases: Sequence[int], replicas: int) -> list[list[int]]:
    """The ports of each replica: those asked for at the first, and at the others the same plus a step that keeps all
    of them apart; free ones where the port is 0.

    >>> _ports([1883, 8083], 2), _ports([8083, 8084], 2)
    ([[1883, 8083], [1884, 8084]], [[8083, 8084], [8085, 8086]])
    """
    fixed = [base for base in bases if base]
    if len(set(fixed)) != len(fixed):
        raise ConfigurationError(f"ports {', '.join(map(str, sorted(fixed)))}: two listeners cannot have the same one")
    for step in range(1, len(fixed) + 2):
        taken = [base + number * step for number in range(replicas) for base in fixed]
        if len(set(taken)) == len(taken):
            break
    if taken and max(taken) > _PORT_MAX:
        highest = max(fixed) - (max(taken) - _PORT_MAX)
        raise ConfigurationError(
            f"port {max(fixed)}: {replicas} replicas need ports after it, and {_PORT_MAX} is the highest one there is; "
            f"choose one up to {highest}"
        )
    free = iter(free_ports(replicas * (len(bases) - len(fixed)), set(taken)))
    return [[base + number * step if base else next(free) for base in bases] for number in range(replicas)]


def _differences(
    there: BrokerGroupSpec, replicas: int | None, port: int | None, config: BrokerConfig | None
) -> Iterator[str]:
    """Returns what the replicas of a file that is there have otherwise than asked for."""
    founders = sum(not one.joins for one in there.replicas)
    if replicas is not None and replicas not in (founders, len(there.replicas)):
        yield f"--replicas {replicas}: this group has {len(there.replicas)}"
    first = there.replicas[0]
    own = first.mqtt[0].wanted_port
    if port and port != own:
        yield f"--port {port}: replica {first.id} is at port {own} (replicas[0].mqtt[0].port)"
    if config is not None:
        if "listeners" in config.model_fields_set:
            yield from _other_listeners(first, config.listeners, port)
        yield from _other_http(first, config)


def _other_listeners(first: BrokerReplicaSpec, asked: Sequence[ListenerSpec], port: int | None) -> Iterator[str]:
    has = first.mqtt
    if [each.kind for each in asked] != [each.kind for each in has]:
        words = [", ".join(each.kind for each in some) for some in (asked, has)]
        yield f"listeners {words[0]}: replica {first.id} has {words[1]} (replicas[0].mqtt)"
        return
    for at, (wanted, present) in enumerate(zip(asked, has, strict=True)):
        for name in sorted(wanted.model_fields_set - {"name"}):
            value = getattr(wanted, name)
            is_free = name == "port" and (not value or (at == 0 and port is not None))
            if value != getattr(present, name) and not is_free:
                place = f"replicas[0].mqtt[{at}].{name}"
                yield f"listeners[{at}].{name} {_text(value)}: {place} is {_text(getattr(present, name))}"


def _other_http(first: BrokerReplicaSpec, config: BrokerConfig) -> Iterator[str]:
    if config.http is None:
        return
    for name in sorted(config.http.model_fields_set):
        value = getattr(config.http, name)
        present = getattr(first.http, name, None)
        if value != present and not (name == "port" and not value and first.http is not None):
            yield f"http.{name} {_text(value)}: replicas[0].http.{name} is {_text(present)}"


def _other_fields(there: BrokerGroupSpec, fields: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yields the requested fields of the whole group that an existing file has otherwise; its other fields are free."""
    wanted = BrokerGroupSpec.model_validate(
        {"name": there.name, "replicas": [{"id": 1, "peer": "127.0.0.1:1", "mqtt": [{}]}], **fields},
        context={"folder": folder},
    )
    for path in _leaves(fields):
        asked, present = (_at(spec, path) for spec in (wanted, there))
        if asked != present:
            yield f"{'.'.join(path)} {_text(asked)}: in the file it is {_text(present)}"


def _leaves(fields: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name)


def _at(spec: Any, path: Iterable[str]) -> Any:
    for name in path:
        spec = getattr(spec, name, None)
    return spec


def _text(value: Any) -> str:
    return "not set" if value is None else str(value) if isinstance(value, (str, int, float, Path)) else repr(value)
