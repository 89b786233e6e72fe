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
from surecast.broker.overlay.held_publishers import HoldsPublishers
from surecast.broker.overlay.overlay_file import OverlayFile
from surecast.broker.overlay.overlay_links import TIMER_S, OverlayLinks
from surecast.broker.server import Server
from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import Marker
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay_broker import LinkConnection, OverlayBroker

__all__ = ["OverlayServer", "link_gauges", "node_settings"]


class OverlayServer(HoldsPublishers, Server):
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

    @property
    def overlay_node(self) -> OverlayNode:
        """The node of the overlay."""
        return self.overlay.node

    def connect(self, neighbour: str, *, calls: bool) -> LinkConnection:
        """Returns the connection to a neighbour that has proven who it is."""
        return LinkConnection(self.overlay, neighbour, calls=calls)

    def begin_cut(self) -> Marker:
        """Begins a cut through the accounts of the overlay; returns its name."""
        return self.overlay.node.cuts.begin()

    def _restore(self, now: float) -> None:
        """Takes back what is on disk, and takes the address for neighbours."""
        settings = node_settings(self._file)
        plan, items = self._file.plan, self.store.items()
        self.overlay = OverlayBroker(
            self._name, plan, self.broker, records=items, now=now, settings=settings, address=self._file.reference
        )
        (address,) = self._file.addresses(self._name)
        self.links = OverlayLinks(
            self._file, self._name, address, self, self._warn, self._note, self._observer
        )  # fmt: skip
        self.links.open()

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """Further figures for metrics: name, meaning, value."""
        yield from super().gauges()
        yield from link_gauges(self.links, self.overlay, self.publishers_waiting)
        if (homes := self.overlay.homes) is not None:
            yield "overlay_sessions", "Lasting sessions in the whole overlay.", len(homes)
            yield "overlay_sent_home", "Clients that were sent to the broker of their session.", homes.sent_home
        if (moves := self.overlay.moves) is not None:
            yield "overlay_sessions_moved_in", "Sessions that have come from other brokers.", moves.moved_in
            yield "overlay_sessions_moved_out", "Sessions that have gone to other brokers.", moves.moved_out
            yield "overlay_sessions_on_their_way", "Sessions that are leaving for another broker.", moves.on_their_way
            yield "overlay_sessions_begun_anew", "Clients whose session was out of reach.", moves.begun_anew
            yield "overlay_messages_moved_in", "Messages that have come with sessions.", moves.messages_in
            yield "overlay_messages_moved_twice", "Of these, messages that were there already.", moves.repeated

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
        self._hold_publishers(self.overlay.held)
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

    def stop(self) -> None:
        """Says goodbye to all clients and commits what is left; links are ended when that was written to them."""
        self._forget_waiting()
        super().stop()
        if self._overlay_timer is not None:
            self._overlay_timer.cancel()


def link_gauges(
    links: OverlayLinks, overlay: OverlayBroker, publishers_waiting: int
) -> Iterable[tuple[str, str, float]]:
    """Yields the figures of links for metrics: name, meaning, value."""
    all_links, node = links.links.values(), overlay.node
    yield "overlay_links", "Links to neighbours, up or down.", len(all_links)
    yield "overlay_links_up", "Links to neighbours that are up.", sum(link.is_up for link in all_links)
    yield "overlay_custody", "Events on disk that a neighbour has not acknowledged.", len(node.custody)
    yield "overlay_retained", "Topics with a retained message, in the whole overlay.", len(node.retained)
    yield "overlay_deletions", "Deletions of retained messages that some broker may not know.", node.retained.tombstones
    yield "overlay_publishers_waiting", "Publishers that wait for a link.", publishers_waiting
    yield "overlay_suspected", "Times a neighbour was suspected.", sum(link.ends["suspected"] for link in all_links)


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
        homes_max=overlay.limits.sessions * len(overlay.brokers) if overlay.sessions != "separate" else 0,
        moves=overlay.sessions == "move",
        move_wait_s=overlay.move_wait,
        move_linger_s=overlay.move_linger,
        hold_max_s=overlay.hold_max,
        overflow=overlay.overflow,
    )
