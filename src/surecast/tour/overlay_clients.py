"""The clients of the tour's overlay: one publishes, two watch, and on the way a broker is killed and a link is cut."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.client import Client
from surecast.client.group_client import split_address
from surecast.scenario import System

__all__ = ["ArrivedEvent", "OverlayFaults", "OverlayWatch", "watch_overlay"]

_OPEN_MAX: Final = 200
_SETTLE_S: Final = 10.0
_TICK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class OverlayFaults:
    """The failures of the run, and their length: the broker until it is started again, the link until it is opened."""

    broker: str
    link: tuple[str, str]
    calm_s: float
    """The time before, between and after the failures."""
    down_s: float


@dataclass(frozen=True, slots=True)
class ArrivedEvent:
    """An event at a subscriber: its number, and when it arrived, in seconds of the run."""

    number: int
    at_s: float


@dataclass(slots=True)
class OverlayWatch:
    """All that the clients have seen; times are seconds of the run. Events are numbered from 0, in order."""

    faults: OverlayFaults
    killed_s: float = 0.0
    back_s: float = 0.0
    """When the broker that was killed took clients again."""
    cut_s: float = 0.0
    opened_s: float = 0.0
    ended_s: float = math.inf
    sent_s: list[float] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    arrived: dict[str, list[ArrivedEvent]] = field(default_factory=dict)


async def watch_overlay(
    overlay: LocalOverlay, system: System, faults: OverlayFaults, progress: Callable[[int, int], None]
) -> OverlayWatch:
    """Publishes and listens while the faults happen; returns what the clients saw, and closes all clients."""
    watch = OverlayWatch(faults)
    publisher = system.publishers[0]
    topic = system.topics[0].name
    names = [broker.name for broker in system.overlay.brokers]
    homes = {each.name: each.home for each in system.subscribers} | {publisher.name: publisher.home}
    clients = {name: _client(overlay, names[home], name) for name, home in homes.items()}
    tasks: list[asyncio.Task[None]] = []
    ticks = int((3 * faults.calm_s + 2 * faults.down_s) / _TICK_S)
    try:
        for client in clients.values():
            await client.connect()
        for each in system.subscribers:
            await clients[each.name].subscribe(topic, qos=2)
        await asyncio.to_thread(_wait_for_demand, overlay, names[publisher.home])
        began = time.monotonic()
        for each in system.subscribers:
            watch.arrived[each.name] = []
            tasks.append(asyncio.create_task(_listen(clients[each.name], watch.arrived[each.name], began)))
        working = [
            asyncio.create_task(_publish(clients[publisher.name], topic, publisher.rate_per_s, watch, began)),
            asyncio.create_task(_fail(overlay, watch, began)),
        ]
        tasks += working
        while any(not task.done() for task in working):
            await asyncio.wait(working, timeout=_TICK_S, return_when=asyncio.FIRST_EXCEPTION)
            for task in working:
                if task.done():
                    task.result()
            progress(min(int((time.monotonic() - began) / _TICK_S), ticks), ticks)
        await _settle(watch, began)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(client.disconnect() for client in clients.values()), return_exceptions=True)
    return watch


def _client(overlay: LocalOverlay, home: str, name: str) -> Client:
    host, port = split_address(overlay.file.mqtt_address(home))
    return Client(host, port, client_id=name)


def _wait_for_demand(overlay: LocalOverlay, home: str) -> None:
    """Waits until the broker of the publisher knows that somebody behind each of its links wants events."""
    until = time.monotonic() + _SETTLE_S
    while time.monotonic() < until:
        if all(route["count"] for route in overlay.ask(home, "/routes")["routes"]):
            return
        time.sleep(_TICK_S)


async def _publish(client: Client, topic: str, rate_per_s: float, watch: OverlayWatch, began: float) -> None:
    """Publishes events at a fixed rate to the end, each with its number; few of them await their acknowledgement."""
    open_: set[asyncio.Task[None]] = set()
    for number in itertools.count():
        await asyncio.sleep(max(0.0, began + number / rate_per_s - time.monotonic()))
        if number / rate_per_s >= watch.ended_s:
            break
        while len(open_) >= _OPEN_MAX:
            await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
        watch.sent_s.append(time.monotonic() - began)
        task = asyncio.create_task(_publish_one(client, topic, number, watch))
        open_.add(task)
        task.add_done_callback(open_.discard)
    if open_:
        await asyncio.gather(*open_)


async def _publish_one(client: Client, topic: str, number: int, watch: OverlayWatch) -> None:
    await client.publish(topic, str(number).encode(), qos=2)
    watch.acknowledged.add(number)


async def _listen(client: Client, arrived: list[ArrivedEvent], began: float) -> None:
    while True:
        message = await client.message()
        arrived.append(ArrivedEvent(int(message.payload), time.monotonic() - began))


async def _fail(overlay: LocalOverlay, watch: OverlayWatch, began: float) -> None:
    """Kills the broker and starts it again; then cuts the link and opens it again."""
    faults = watch.faults
    await asyncio.sleep(faults.calm_s)
    watch.killed_s = time.monotonic() - began
    await asyncio.to_thread(overlay.kill, faults.broker)
    await asyncio.sleep(faults.down_s)
    overlay.start(faults.broker)
    await asyncio.to_thread(overlay.wait_ready)
    watch.back_s = time.monotonic() - began
    await asyncio.sleep(faults.calm_s)
    watch.cut_s = time.monotonic() - began
    await asyncio.to_thread(_gate, overlay, faults.link, True)
    await asyncio.sleep(faults.down_s)
    watch.opened_s = time.monotonic() - began
    await asyncio.to_thread(_gate, overlay, faults.link, False)
    watch.ended_s = watch.opened_s + faults.calm_s


def _gate(overlay: LocalOverlay, link: tuple[str, str], is_cut: bool) -> None:
    for name, neighbour in (link, link[::-1]):
        overlay.ask(name, "/gate", {"neighbour": neighbour, "cut": str(is_cut).lower()}, "POST")


async def _settle(watch: OverlayWatch, began: float) -> None:
    """Waits until every subscriber has all acknowledged events, or for too long."""
    until = time.monotonic() + _SETTLE_S
    while time.monotonic() < until:
        if all(watch.acknowledged <= {event.number for event in arrived} for arrived in watch.arrived.values()):
            return
        await asyncio.sleep(_TICK_S)
