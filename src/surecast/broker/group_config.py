"""The file of a group that is a broker: what all replicas share, and what each has of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from surecast.broker.config_models import (
    BrokerConfig,
    ClientLimitsSpec,
    Count,
    EventLogSpec,
    HttpSpec,
    LimitsSpec,
    ListenerSpec,
    LogSpec,
    SecuritySpec,
    StateSpec,
)
from surecast.broker.replica import GroupSpec, ReplicaSpec, load_group
from surecast.broker.replica.group_file import AddressText
from surecast.documents.units import Duration, PositiveDuration
from surecast.documents.validation import Name, Spec
from surecast.errors import ConfigurationError
from surecast.protocol.broker import BrokerSettings, LimitTable

__all__ = ["BrokerGroupSpec", "OrderSpec", "ZapSpec", "config_of", "limits_of", "load_broker_group", "pack_limits"]


_LIMITING = ("limits", "clients", "system_interval")


class BrokerReplicaSpec(ReplicaSpec):
    """One replica of a group that is a broker."""

    client: AddressText | None = None
    """The address for `surecast cluster`, which needs the group's secret; without one it cannot be administered."""
    mqtt: Annotated[tuple[ListenerSpec, ...], Field(min_length=1)]
    """The addresses at which it takes MQTT clients."""
    http: HttpSpec | None = None
    """Metrics, health and administration over HTTP; there is no such listener if it is left out."""


class OrderSpec(Spec):
    """The order of messages of some topics."""

    topics: Name
    """Topic filter of the messages that are meant."""
    order: Literal["total", "publisher"]
    """*total*: all subscribers get the messages of all publishers in one order. *publisher*: each publisher's \
messages stay in their order; those of QoS 0 then go straight from replica to replica, and wait for no majority."""


class ZapSpec(Spec):
    """The ZapViewers application inside the broker."""

    every: PositiveDuration = 1.0
    """The least time between two publications of the statistics, in the time of the log."""
    top: Count = 10
    """The number of channels in the top list that is always published; others are published while somebody subscribes \
to them."""


class BrokerGroupSpec(GroupSpec):
    """A broker that runs as a group of replicas."""

    replicas: Annotated[tuple[BrokerReplicaSpec, ...], Field(min_length=1)]
    """All replicas, those that join later among them."""
    security: SecuritySpec = SecuritySpec()
    """The users who may connect, and the topics that they may use. Every replica reads the users file at its own \
place; the access rules of the replica that started or was reloaded last hold for all."""
    limits: LimitsSpec = LimitsSpec()
    """The bounds of every queue, table and waiting time; those of the replica that started or was reloaded last hold \
for all."""
    clients: tuple[ClientLimitsSpec, ...] = ()
    """Limits that differ for some clients."""
    order: tuple[OrderSpec, ...] = ()
    """The order of messages by topic; the first filter that matches counts, and total order where none does."""
    event_log: EventLogSpec | None = None
    """The log of everything that happens; each replica writes one of its own, in a folder of its number."""
    log: LogSpec = LogSpec()
    """The log lines of a replica."""
    system_interval: Duration = 10.0
    """Time between two publications of the `$SYS` topics; 0 switches them off."""
    drain: Duration = 5.0
    """Time that clients have to take what is unsent when a replica stops."""
    patience: PositiveDuration = 3.0
    """The time for which clients wait in a group without a majority before they are sent to another replica."""
    zap: ZapSpec | None = None
    """The ZapViewers application; it does not run if this is left out."""

    def remedy(self, number: int) -> str:
        """Returns what to do where the state of a replica is damaged."""
        return f"put a new replica in its place, while the others run: surecast cluster repair {number} {self._path}"

    def founding_command(self, number: int) -> str:
        """Returns what makes the store of a founder."""
        return f"surecast cluster found {self._path} --id {number}"

    def mqtt_addresses(self, but: int = 0) -> list[str]:
        """Returns the addresses at which clients find the replicas, except one."""
        return [
            f"{listener.host}:{listener.wanted_port}"
            for one in self.replicas
            if one.id != but
            for listener in one.mqtt
            if listener.kind in ("tcp", "tls")
        ]


def load_broker_group(path: Path) -> BrokerGroupSpec:
    """Reads and checks the file of a group; GroupFileError has every problem found, each with its line."""
    return load_group(path, BrokerGroupSpec)


def config_of(group: BrokerGroupSpec, number: int) -> BrokerConfig:
    """Returns the broker configuration of one replica. ConfigurationError where the group has no such replica."""
    replica = group.replica(number)
    if not isinstance(replica, BrokerReplicaSpec):
        raise ConfigurationError(f"replica {number} of the group {group.name} has no MQTT listener; add mqtt: to it")
    events = group.event_log
    if events is not None:
        events = events.model_copy(update={"folder": events.folder / str(number)})
    return BrokerConfig().model_copy(
        update={
            "name": f"{group.name}-{number}",
            "listeners": replica.mqtt,
            "state": StateSpec(folder=group.folder(number), durability=group.durability),
            "security": group.security,
            "limits": group.limits,
            "clients": group.clients,
            "event_log": events,
            "http": replica.http,
            "log": group.log,
            "system_interval": group.system_interval,
            "drain": group.drain,
        }
    )


def pack_limits(config: BrokerConfig, names: list[str]) -> bytes:
    """The limits of a configuration for the log of the group; `names` are those of its listeners.

    >>> settings, table = limits_of(pack_limits(BrokerConfig(limits={"queue_messages": 7}), ["mqtt"]))
    >>> settings.queue_messages_max, table.resolve("mqtt", "", "c1").queue_messages_max
    (7, 7)
    """
    listeners = [
        ListenerSpec(name=name, limits=each.limits) for name, each in zip(names, config.listeners, strict=True)
    ]
    parts = BrokerConfig().model_copy(
        update={"listeners": tuple(listeners), **{name: getattr(config, name) for name in _LIMITING}}
    )
    return parts.model_dump_json(include={"listeners", *_LIMITING}, exclude_defaults=True).encode()


def limits_of(data: bytes) -> tuple[BrokerSettings, LimitTable]:
    """Returns the limits that `pack_limits` packed, for the core."""
    config = BrokerConfig.model_validate_json(data)
    return config.settings, config.limit_table()
