"""Runs one replica of a broker group until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from surecast import __version__
from surecast.broker.broker_service import BrokerService
from surecast.broker.event_log import Started
from surecast.broker.event_observer import EventObserver
from surecast.broker.group_admin import AdminPort
from surecast.broker.group_config import BrokerGroupSpec, config_of, limits_of, load_broker_group, pack_limits
from surecast.broker.group_server import GroupServer
from surecast.broker.measured_store import MeasuredStore
from surecast.broker.replica import make_node
from surecast.broker.security_acl import AccessRules, format_rule, parse_rule
from surecast.broker.service_log import BrokerLog
from surecast.protocol.broker import Authorise, BrokerCore, BrokerSettings
from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import Application, GroupMachine

if TYPE_CHECKING:
    from surecast.broker.metrics import BrokerCollector

__all__ = ["GroupService", "group_core", "make_rules", "run_group_broker"]

MakeApplications = Callable[[BrokerGroupSpec], Sequence[Application]]


def run_group_broker(path: Path, replica: int, applications: MakeApplications = lambda group: ()) -> int:
    """Runs a replica in this process until SIGTERM or SIGINT; returns the exit code.

    `applications` makes what the group is to run inside the broker. ConfigurationError and StoreError say why it could
    not start.
    """
    group = load_broker_group(path)
    log = BrokerLog(group.log.level, group.log.format)
    service = GroupService(group, replica, log, applications(group), lambda: load_broker_group(path))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(service.run(handle_signals=True))


class GroupService(BrokerService):
    """A replica with all that belongs to it."""

    server: GroupServer

    def __init__(
        self,
        group: BrokerGroupSpec,
        replica: int,
        log: BrokerLog,
        applications: Sequence[Application] = (),
        reread: Callable[[], BrokerGroupSpec] | None = None,
    ):
        read = reread or (lambda: group)
        super().__init__(config_of(group, replica), log, lambda: config_of(read(), replica))
        self.group = group
        self.replica = replica
        self._applications = tuple(applications)
        self._port: AdminPort | None = None

    def _collector_class(self) -> type[BrokerCollector]:
        from surecast.broker.group_metrics import GroupCollector

        return GroupCollector

    def _started(self) -> Started:
        group = self.group
        node = self.server.node
        # One that joins now does not know the members. They are an odd number; the one it replaces may be in the file.
        size = (len(group.replicas) - 1) | 1 if node.is_blank else len(node.members)
        return super()._started()._replace(group=group.name, replica=self.replica, replicas=size)

    async def _open_server(self, observer: EventObserver | None) -> MeasuredStore:
        group, settings = self.group, self.config.settings
        machine = self._make_machine(settings, observer)
        node = make_node(group, self.replica, machine, self.log)
        node.store = store = MeasuredStore(node.store)
        self._write_pid()
        if observer is not None:
            observer.set_quiet(True)
        await node.start()
        if observer is not None:
            observer.set_quiet(False)
        self.server = self._make_group_server(
            node=node,
            machine=machine,
            settings=settings,
            authenticate=self._authenticator,
            hooks=self._hooks(),
            elsewhere=" ".join(group.mqtt_addresses(but=self.replica)),
            patience_s=group.patience,
            order=[(each.topics, each.order == "publisher") for each in group.order],
        )
        self.server.authenticates = self._must_authenticate()
        self._open_listeners()
        self.server.start()
        self._limit()
        self._use_access()
        wanted = group.client_address(group.replica(self.replica))
        if wanted is not None:
            self._port = AdminPort(self.server)
            await self._port.start(wanted)
        return store

    def _make_machine(self, settings: BrokerSettings, observer: EventObserver | None) -> GroupMachine:
        return GroupMachine(
            self.replica,
            lambda authorise: group_core(settings, authorise, observer),
            make_rules=make_rules,
            make_limits=limits_of,
            applications=self._applications,
            version=f"surecast {__version__}",
        )

    def _make_group_server(self, **options: Any) -> GroupServer:
        return GroupServer(**options)

    def _limit(self) -> None:
        """Gives the group the limits of the configuration; they hold for all replicas."""
        if self.server.is_started:
            self.server.set_limits(pack_limits(self.config, [each.name for each in self.listeners]))

    def _use_access(self) -> int:
        """Gives the group the access rules. Without any, everybody may do everything; an empty list denies all."""
        rules = b""
        if self._access is not None:
            rules = "\n".join([self._access.wildcards, *map(format_rule, self._access.rules)]).encode()
        self.server.set_rules(rules)
        return 0

    async def _drain(self) -> None:
        await super()._drain()
        if self._port is not None:
            await self._port.stop()
        await self.server.node.stop()


def group_core(
    settings: BrokerSettings,
    authorise: Authorise,
    observer: EventObserver | None,
    traffic: LocalTraffic | None = None,
) -> BrokerCore:
    """Returns the core of a replica; with `traffic` for a group in an overlay."""
    return BrokerCore(
        settings, authorise=authorise, observer=observer, journal=NoJournal(), watches=False, traffic=traffic
    )


def make_rules(data: bytes) -> tuple[Authorise, bool]:
    """The rules of a RULES item. Its first line is what becomes of wildcards; it makes sure that no item is empty."""
    wildcards, *lines = data.decode().splitlines()
    access = AccessRules(map(parse_rule, lines), "filter" if wildcards == "filter" else "deny")
    return access.allows, access.checks_deliveries
