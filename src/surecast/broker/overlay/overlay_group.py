"""A broker of an overlay that is a group: what its file says of one replica, and the replica as a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import uvloop
from pydantic import PrivateAttr

from surecast import __version__
from surecast.broker.admin import View
from surecast.broker.event_observer import EventObserver
from surecast.broker.group_config import BrokerGroupSpec, BrokerReplicaSpec, limits_of
from surecast.broker.group_run import GroupService, group_core, make_rules
from surecast.broker.group_server import GroupServer
from surecast.broker.overlay.held_publishers import HoldsPublishers
from surecast.broker.overlay.overlay_cut import cut_of
from surecast.broker.overlay.overlay_file import OverlayFile, load_overlay
from surecast.broker.overlay.overlay_links import OverlayLinks
from surecast.broker.overlay.overlay_server import link_gauges, node_settings
from surecast.broker.overlay.overlay_service import gate_of
from surecast.broker.overlay.overlay_views import accounts_of, links_of, routes_of
from surecast.broker.replica.addresses import parse_address
from surecast.broker.replica.founding import found_replica
from surecast.broker.replica.group_file import PaxosSpec
from surecast.broker.service_log import BrokerLog
from surecast.errors import ConfigurationError, SurecastError
from surecast.protocol.broker import BrokerCore, BrokerSettings
from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.group import GroupMachine, Item
from surecast.protocol.group.group_link import GroupLink
from surecast.protocol.overlay.overlay_frames import Marker
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay_broker import OverlayBroker

__all__ = ["OverlayGroupServer", "OverlayGroupService", "found_group", "group_of", "run_overlay_replica"]


class OverlayGroupSpec(BrokerGroupSpec):
    """A broker of an overlay that is a group, as a group's file would say it."""

    _plan_name: str = PrivateAttr(default="")

    @property
    def plan_name(self) -> str:
        """Returns the epoch and the hash of the plan."""
        return self._plan_name

    def remedy(self, number: int) -> str:
        """Returns what to do where the state of a replica is damaged."""
        return (
            f"the other replicas go on without replica {number}; a group of an overlay takes in no new one, so "
            "keep the others running, and have what is left of its folder looked at"
        )

    def founding_command(self, number: int) -> str:
        """Returns what makes the store of a founder."""
        return f"surecast overlay up {self._path}, which founds a group of which no replica has data"


def group_of(overlay: OverlayFile, name: str) -> OverlayGroupSpec:
    """Returns a broker that is a group; ConfigurationError where it is a process."""
    broker = overlay.broker(name)
    if not broker.replicas:
        raise ConfigurationError(f"broker {name} is no group: it has no replicas, so leave out --id")
    group = OverlayGroupSpec(
        name=f"{overlay.name}.{name}",
        founding=broker.founding,
        paxos=broker.paxos or PaxosSpec(),
        link_delay=broker.link_delay,
        sync="majority" if overlay.durability == "full" else "none",
        replicas=tuple(BrokerReplicaSpec(id=one.id, peer=one.peer, mqtt=one.mqtt) for one in broker.replicas),
    )
    events = overlay.event_log
    if events is not None:
        events = events.model_copy(update={"folder": events.folder / name})
    same = ("secret_file", "security", "limits", "clients", "log", "system_interval", "drain")
    group = group.model_copy(
        update={"data": overlay.data / name, "event_log": events} | {field: getattr(overlay, field) for field in same}
    )
    group._path = overlay.path
    group._plan_name = f"epoch {overlay.plan.epoch} of the plan with the hash {overlay.plan.hash}"
    return group


def found_group(overlay: OverlayFile, name: str) -> None:
    """Makes the stores of a group of which no replica has any data; where one has, nothing is done."""
    group = group_of(overlay, name)
    if not any(group.folder(replica.id).exists() for replica in group.replicas):
        for replica in group.replicas:
            found_replica(group, replica.id)


def run_overlay_replica(path: Path, name: str, number: int) -> int:
    """Runs a replica of a broker of an overlay until SIGTERM or SIGINT; returns the exit code.

    ConfigurationError and StoreError say why it could not start.
    """
    overlay = load_overlay(path)
    log = BrokerLog(overlay.log.level, overlay.log.format)
    service = OverlayGroupService(overlay, name, number, log, lambda: group_of(load_overlay(path), name))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(service.run(handle_signals=True))


class OverlayGroupServer(HoldsPublishers, GroupServer):
    """Runs the connections of one replica: those of its clients and, while it leads, those of the group's links."""

    def __init__(
        self,
        overlay_file: OverlayFile,
        name: str,
        warn: Callable[[str], None],
        note: Callable[[str], None],
        observer: EventObserver | None,
        **options: Any,
    ):
        super().__init__(**options)
        broker = overlay_file.broker(name)
        address = next(parse_address(one.link) for one in broker.replicas if one.id == self.node_id)
        self.links = OverlayLinks(overlay_file, name, address, self, warn, note, observer)
        self._name = name

    @property
    def node_id(self) -> int:
        """The number of this replica."""
        return self.machine.replica

    @property
    def overlay(self) -> OverlayBroker:
        """The broker of the overlay, as this replica has it; ConfigurationError while it has carried out nothing."""
        if self.machine.overlay is None:
            raise ConfigurationError(f"replica {self.node_id} of {self._name} has nothing of its group yet")
        return self.machine.overlay.broker

    @property
    def overlay_node(self) -> OverlayNode | None:
        """The node of the overlay; None while this replica has carried out nothing."""
        return None if self.machine.overlay is None else self.machine.overlay.broker.node

    def connect(self, neighbour: str, *, calls: bool) -> GroupLink:
        """Returns the connection to a neighbour that has proven who it is."""
        return self.front_end.open_link(neighbour, calls=calls)

    def begin_cut(self) -> Marker:
        """Begins a cut through the accounts of the overlay; returns its name, if no other begins at the same time."""
        self.front_end.control(Item.CUT)
        return self.overlay.node.cuts.next_marker

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """Further figures for metrics: name, meaning, value."""
        yield from super().gauges()
        if self.machine.overlay is not None:
            yield from link_gauges(self.links, self.machine.overlay.broker, self.publishers_waiting)

    def start(self) -> None:
        """Begins to take clients; the node must be running."""
        self.links.open()
        super().start()

    def end_turn(self) -> None:
        """Sends what commands have to say to clients and neighbours, and sees to who leads."""
        super().end_turn()
        if self._failed or self._stopped:
            return
        if self.node.leads is not self.links.is_serving:
            self._change_role()
        if self.links.is_serving:
            self.links.flush()
        if self.machine.overlay is not None:
            self._hold_publishers(self.machine.overlay.broker.held)

    def _change_role(self) -> None:
        """This replica leads from now on, or no longer."""
        if self.node.leads:
            self.front_end.take_links()
            self.links.start()
            self.turn()
        else:
            self.links.rest("another replica leads")

    def stop(self) -> None:
        """Sends all clients to another replica, and ends the links."""
        self._forget_waiting()
        self.links.rest("this replica stops")
        super().stop()


class OverlayGroupService(GroupService):
    """A replica of a broker of an overlay, with all that belongs to it."""

    server: OverlayGroupServer

    def __init__(
        self,
        overlay: OverlayFile,
        name: str,
        number: int,
        log: BrokerLog,
        reread: Callable[[], BrokerGroupSpec] | None = None,
    ):
        super().__init__(group_of(overlay, name), number, log, reread=reread)
        self.overlay = overlay
        self.name = name
        self._observer: EventObserver | None = None

    def _make_machine(self, settings: BrokerSettings, observer: EventObserver | None) -> GroupMachine:
        self._observer = observer
        plan, limits = self.overlay.plan, node_settings(self.overlay)

        def make_overlay(core: BrokerCore, now: float) -> OverlayBroker:
            return OverlayBroker(self.name, plan, core, now=now, settings=limits)

        return GroupMachine(
            self.replica,
            lambda authorise: group_core(settings, authorise, observer, LocalTraffic()),
            make_rules=make_rules,
            make_limits=limits_of,
            version=f"surecast {__version__}",
            make_overlay=make_overlay,
        )

    def _make_group_server(self, **options: Any) -> GroupServer:
        return OverlayGroupServer(
            self.overlay,
            self.name,
            lambda text: self.log.warning("overlay", text=text),
            lambda text: self.log.info("overlay", text=text),
            self._observer,
            **options,
        )

    def reload(self) -> None:
        """Reads the configuration again, and the certificates of links; if anything is wrong, all stays as it was."""
        if not self.ready.is_set():
            return
        try:
            self.server.links.reload()
        except SurecastError as error:
            self.log.error("reload failed, all stays as it was", reason=str(error))
            return
        super().reload()

    async def _drain(self) -> None:
        await super()._drain()
        await self.server.links.stop()

    def _views(self) -> Mapping[str, View]:
        server = self.server
        return {
            "/links": lambda query: {**links_of(server), "replica": self.replica, "leads": server.links.is_serving},
            "/accounts": lambda query: accounts_of(server),
            "/cut": lambda query: cut_of(server, query.get("begin") == "true", query.get("of", "")),
            "/routes": lambda query: routes_of(server, query.get("filters") == "true"),
            "/gate": lambda query: gate_of(self.overlay, server.links, query),
        }
