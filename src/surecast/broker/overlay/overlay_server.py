"""The broker of an overlay on real sockets: clients and neighbours in one turn of the loop.

A turn: what clients and neighbours sent goes into core and node; `settle` carries between the two; one commit has the
records of both; then each client and each neighbour is written to once. So no acknowledgement leaves, to a client or a
neighbour, before what it promises is durable, and a link costs no turn of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from surecast.broker.event_observer import EventObserver
from surecast.broker.overlay.overlay_file import OverlayFile
from surecast.broker.overlay.overlay_links import TIMER_S, OverlayLinks
from surecast.broker.server import Server
from surecast.broker.shell import Channel
from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay_broker import OverlayBroker

__all__ = ["OverlayServer", "node_settings"]


class OverlayServer(Server):
    """Runs a core and a node: gives them bytes and time, commits their journal and sends their answers."""

    overlay: OverlayBroker
    links: OverlayLinks

    def __init__(
        self,
        overlay_file: OverlayFile,
        name: str,
        warn: Callable[[str], None],
        note: Callable[[str], None],
        **options: Any,
    ):
        super().__init__(traffic=LocalTraffic(), **options)
        self._file = overlay_file
        self._observer: EventObserver | None = options.get("observer")
        self._name = name
        self._warn = warn
        self._note = note
        self._overlay_timer: asyncio.TimerHandle | None = None
        self._overlay_timer_at = 0.0
        self._waiting_for_links: set[Channel] = set()

    def _restore(self, now: float) -> None:
        """Takes back what is on disk, and takes the address for neighbours."""
        settings = node_settings(self._file)
        plan, items = self._file.plan, self.store.items()
        self.overlay = OverlayBroker(self._name, plan, self.broker, records=items, now=now, settings=settings)
        self.links = OverlayLinks(self._file, self.overlay, self.turn, self._warn, self._note, self._observer)
        self.links.open()

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """Further figures for metrics: name, meaning, value."""
        yield from super().gauges()
        links = self.links.links.values()
        yield "overlay_links", "Links to neighbours, up or down.", len(links)
        yield "overlay_links_up", "Links to neighbours that are up.", sum(link.is_up for link in links)
        yield "overlay_custody", "Events on disk that a neighbour has not acknowledged.", len(self.overlay.node.custody)
        retained = self.overlay.node.retained
        yield "overlay_retained", "Topics with a retained message, in the whole overlay.", len(retained)
        yield "overlay_deletions", "Deletions of retained messages that some broker may not know.", retained.tombstones
        yield "overlay_publishers_waiting", "Publishers that wait for a link.", len(self._waiting_for_links)
        yield "overlay_suspected", "Times a neighbour was suspected.", sum(link.ends["suspected"] for link in links)

    def _system_values(self) -> dict[str, str]:
        values = super()._system_values()
        accounts = self.overlay.node.accounts
        for name, link in self.links.links.items():
            hop = accounts.hops[name]
            values |= {
                f"overlay/links/{name}/up": str(int(link.is_up)),
                f"overlay/links/{name}/acknowledged": str(hop.acknowledged),
                f"overlay/links/{name}/lost": str(hop.lost),
                f"overlay/links/{name}/dropped": str(hop.dropped.total()),
            }
        return values

    # The turn.

    def end_turn(self) -> None:
        if not self._failed:
            self.overlay.settle(time.time())
        super().end_turn()
        if self._failed:
            return
        self.links.flush()
        if self.overlay.held or self._waiting_for_links:
            self._hold_publishers()
        if not self._stopped:
            self._plan_overlay_timer()

    def _plan_overlay_timer(self) -> None:
        at = self.overlay.next_timer()
        if self._overlay_timer is not None:
            if self._overlay_timer_at <= at:
                return
            self._overlay_timer.cancel()
        self._overlay_timer_at = at
        self._overlay_timer = self.loop.call_later(max(TIMER_S, at - time.time()), self._tick_overlay)

    def _tick_overlay(self) -> None:
        self._overlay_timer = None
        self.overlay.tick(time.time())
        self.turn()

    # Publishers that have to wait for a link.

    def _hold_publishers(self) -> None:
        """Reads nothing of publishers whose events need a link that is full, until it has room."""
        waiting: set[Channel] = set()
        for key in self.overlay.held:
            session = self.broker.sessions.by_key.get(key)
            connection = session.connection if session is not None else None
            channel = self._channels.get(connection) if connection is not None else None
            if channel is not None:
                waiting.add(channel)
        before, self._waiting_for_links = self._waiting_for_links, waiting
        for channel in waiting - before:
            channel.pause_reading()
        for channel in before - waiting:
            if channel in self._rest:
                self.loop.call_soon(self._next_piece, channel)
            else:
                self._read_on(channel)
        for channel in waiting:
            self._excuse(channel.connection)

    def _waits(self, channel: Channel) -> bool:
        """Returns whether a client waits for a link."""
        return channel in self._waiting_for_links

    def _read_on(self, channel: Channel) -> None:
        if channel not in self._waiting_for_links:
            super()._read_on(channel)

    def stop(self) -> None:
        """Says goodbye to all clients and commits what is left; links are ended when that was written to them."""
        self._waiting_for_links.clear()
        super().stop()
        if self._overlay_timer is not None:
            self._overlay_timer.cancel()


def node_settings(overlay: OverlayFile) -> NodeSettings:
    """Returns the limits and times of a node that a file says."""
    return NodeSettings(
        resume_s=overlay.resume,
        refresh_s=overlay.refresh,
        timeout_s=overlay.timeout,
        retransmission_interval_s=overlay.retransmission,
        reconnect_s=overlay.suspect,
        ack_wait_s=overlay.ack_wait,
        window_bytes=int(overlay.window),
        queue_bytes_max=int(overlay.queue_size),
        custody_events_max=overlay.custody,
        retained_max=overlay.limits.retained,
        retained_bytes_max=int(overlay.limits.retained_size),
        hold_max_s=overlay.hold_max,
        overflow=overlay.overflow,
    )
