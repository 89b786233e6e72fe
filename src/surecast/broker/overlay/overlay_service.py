"""Runs one broker of an overlay until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvloop

from surecast.broker.admin import View
from surecast.broker.broker_service import BrokerService
from surecast.broker.event_observer import EventObserver
from surecast.broker.measured_store import MeasuredStore
from surecast.broker.overlay.link_gate import GateSettings
from surecast.broker.overlay.overlay_cut import cut_of
from surecast.broker.overlay.overlay_file import OverlayFile, config_of, load_overlay
from surecast.broker.overlay.overlay_links import OverlayLinks
from surecast.broker.overlay.overlay_server import OverlayServer
from surecast.broker.overlay.overlay_views import accounts_of, links_of, routes_of, sessions_of
from surecast.broker.server import Server
from surecast.broker.service_log import BrokerLog
from surecast.errors import ConfigurationError, SurecastError
from surecast.protocol.overlay.overlay_plan import scheme_parts

__all__ = ["OverlayService", "gate_of", "run_overlay_broker"]


def run_overlay_broker(path: Path, name: str, data: Path | None = None) -> int:
    """Runs a broker of an overlay in this process until SIGTERM or SIGINT; returns the exit code.

    `data` is another folder for its state than the file says. ConfigurationError and StoreError say why it could not
    start.
    """
    overlay = load_overlay(path)
    if overlay.broker(name).replicas:
        raise ConfigurationError(f"broker {name} is a group: say which replica this is with --id")
    log = BrokerLog(overlay.log.level, overlay.log.format)
    service = OverlayService(overlay, name, log, data, lambda: load_overlay(path))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(service.run(handle_signals=True))


class OverlayService(BrokerService):
    """A broker of an overlay with all that belongs to it."""

    server: OverlayServer

    def __init__(
        self,
        overlay: OverlayFile,
        name: str,
        log: BrokerLog,
        data: Path | None = None,
        reread: Callable[[], OverlayFile] | None = None,
    ):
        read = reread or (lambda: overlay)
        super().__init__(config_of(overlay, name, data), log, lambda: config_of(read(), name, data))
        self.overlay = overlay
        self.name = name

    def _make_server(self, store: MeasuredStore, observer: EventObserver | None) -> Server:
        return OverlayServer(
            self.overlay,
            self.name,
            lambda text: self.log.warning("overlay", text=text),
            lambda text: self.log.info("overlay", text=text),
            settings=self.config.settings,
            store=store,
            authorise=self._authorise,
            authenticate=self._authenticator,
            observer=observer,
            hooks=self._hooks(),
        )

    async def _start(self) -> None:
        await super()._start()
        for text in _warnings(self.overlay):
            self.log.warning("overlay", text=text)
        self.server.links.start()

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

    # What administrators see and do.

    def _views(self) -> Mapping[str, View]:
        server = self.server
        return {
            "/links": lambda query: links_of(server),
            "/accounts": lambda query: accounts_of(server),
            "/cut": lambda query: cut_of(server, query.get("begin") == "true", query.get("of", "")),
            "/routes": lambda query: routes_of(server, query.get("filters") == "true"),
            "/homes": lambda query: sessions_of(server),
            "/gate": lambda query: gate_of(self.overlay, server.links, query),
        }


def gate_of(overlay: OverlayFile, links: OverlayLinks, query: Mapping[str, str]) -> dict[str, Any]:
    """Changes the gate of a link; what the query leaves out is open. Returns the settings of the gate."""
    if not overlay.gates:
        raise ConfigurationError("this overlay has no gates: write gates: true in its file to experiment with it")
    numbers = {}
    for field, most in (("delay_s", 3600.0), ("loss", 0.99)):
        text = query.get(field, "0")
        try:
            numbers[field] = float(text)
        except ValueError:
            numbers[field] = -1.0
        if not 0.0 <= numbers[field] <= most:
            raise ConfigurationError(f"{field} is {text!r}; write a number from 0 to {most:g}")
    settings = GateSettings(query.get("cut") == "true", numbers["delay_s"], numbers["loss"])
    links.change_gate(query.get("neighbour", ""), settings)
    return {"neighbour": query.get("neighbour"), **numbers, "cut": settings.is_cut}


def _warnings(overlay: OverlayFile) -> list[str]:
    """Returns what operators should know at the start of a broker."""
    warnings = []
    if overlay.sessions == "separate":
        warnings.append("local to each broker: sessions; a client that moves to another broker begins anew there")
    if overlay.durability == "memory" and any(scheme_parts(tree.scheme).custody for tree in overlay.plan.trees):
        warnings.append("buffering without a disk: events that wait for a neighbour are lost when this broker ends")
    return warnings
