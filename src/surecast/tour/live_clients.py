"""The clients of the tour's live part: set-top boxes that publish, broadcasters that listen, and a leader that dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from surecast.broker.cluster import LocalGroup
from surecast.broker.event_observer import DEADLINE_PROPERTY, PUBLICATION_PROPERTY
from surecast.client import Client, ClientError
from surecast.client.group_client import GroupClient, split_address
from surecast.protocol.mqtt import Properties
from surecast.scenario.streams import Streams
from surecast.zap import Generator, Traffic

__all__ = ["EVENING_S", "GROUP", "TABLET", "ArrivedMessage", "Live", "LiveSettings", "SentMessage", "drive"]

EVENING_S: Final = 1_704_139_200
"""The start of the evening of the set-top boxes on their own clock: 2024-01-01, 20:00:00."""
GROUP: Final = "zap"
TABLET: Final = "tablet"
_OPEN_MAX: Final = 40
"""Messages of one publisher that wait for an acknowledgement; in a gap the next ones wait at the publisher."""
_SETTLE_S: Final = 15.0
_QUIET_S: Final = 1.5
_PATIENCE_S: Final = 30.0
_TICK_S: Final = 0.2
_READY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The length of the live part, and its participants."""

    duration_s: float
    """Real time during which events are published."""
    boxes: int = 1500
    """Set-top boxes of each publisher."""
    publishers: int = 3
    subscribers: int = 3
    interval_s: float = 0.05
    """Real time between two messages of a publisher; each has the events of `batch_s` seconds of the evening."""
    batch_s: int = 10
    channels: int = 60
    kill_after: float = 0.45
    """The time at which the leader is killed, as a share of the duration."""
    back_after_s: float = 3.0
    """The time after that until its process is started again."""
    deadline_s: float = 8.0
    on_s: float = 2.5
    off_s: float = 1.5
    """Mean times for which the tablet is connected and not connected."""
    join_probability: float = 0.5
    """Share of the events that join the tablet's queue while it is not connected."""
    seed: int = 1


@dataclass(slots=True)
class SentMessage:
    """A message of set-top-box events; `acknowledged_at` is None while no replica has taken it over."""

    publisher: int
    events: int
    payload: bytes
    due_at: float
    sent_at: float = 0.0
    acknowledged_at: float | None = None


@dataclass(frozen=True, slots=True)
class ArrivedMessage:
    """A message at a subscriber."""

    at: float
    topic: str
    payload: bytes
    again: bool = False
    """True if the message has the DUP flag: it may have been sent before, on a connection that ended."""


@dataclass(slots=True)
class Live:
    """All that the clients have seen; times are seconds since 1970."""

    began: float = 0.0
    ended: float = 0.0
    killed: int = 0
    killed_at: float = 0.0
    back_at: float | None = None
    leader_after: int = 0
    sent: list[SentMessage] = field(default_factory=list)
    arrived: dict[str, list[ArrivedMessage]] = field(default_factory=dict)
    fail_overs: dict[str, int] = field(default_factory=dict)
    tablet_on: list[tuple[float, float]] = field(default_factory=list)
    """The periods for which the tablet was connected."""


Progress = Callable[[int, int], None]


async def drive(group: LocalGroup, settings: LiveSettings, progress: Progress | None = None) -> Live:
    """Publishes, listens, kills the leader and starts it again; all clients are closed at the end."""
    live = Live()
    names = [f"broadcaster-{n}" for n in range(1, settings.subscribers + 1)]
    live.arrived = {name: [] for name in [*names, TABLET]}
    listeners = {name: GroupClient(group.addresses, client_id=name, patience_s=_PATIENCE_S) for name in names}
    publishers = [
        GroupClient(group.addresses, client_id=f"region-{n}", patience_s=_PATIENCE_S)
        for n in range(1, settings.publishers + 1)
    ]
    tasks: list[asyncio.Task[None]] = []
    try:
        await asyncio.gather(*(client.connect() for client in [*listeners.values(), *publishers]))
        for name, client in listeners.items():
            await client.subscribe("zap/#", qos=1)
            tasks.append(asyncio.create_task(_listen(client, live.arrived[name])))
        subscribed = asyncio.Event()
        tasks.append(asyncio.create_task(_come_and_go(group, settings, live, subscribed)))
        async with asyncio.timeout(_READY_S):
            await subscribed.wait()
        live.began = time.time()
        working = [
            asyncio.create_task(_publish(client, n, settings, live)) for n, client in enumerate(publishers, start=1)
        ]
        working.append(asyncio.create_task(_kill_leader(group, settings, live)))
        tasks += working
        await _wait(working, live.began, settings, progress)
        await _settle(live, names)
        live.ended = time.time()
        live.fail_overs = {name: client.fail_overs for name, client in listeners.items()}
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        everyone = [*listeners.values(), *publishers]
        await asyncio.gather(*(client.close() for client in everyone), return_exceptions=True)
    return live


async def _wait(
    working: list[asyncio.Task[None]], began: float, settings: LiveSettings, progress: Progress | None
) -> None:
    """Waits until all tasks are done; the first that fails ends the wait."""
    total = max(1, round(settings.duration_s / _TICK_S))
    pending = set(working)
    while pending:
        done, pending = await asyncio.wait(pending, timeout=_TICK_S, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        if progress is not None:
            progress(min(total, int((time.time() - began) / _TICK_S)), total)


async def _publish(client: GroupClient, number: int, settings: LiveSettings, live: Live) -> None:
    """Publishes the messages of one publisher, each when it is due, in order; few at a time await their
    acknowledgement."""
    traffic = Traffic(boxes=settings.boxes, batch_s=settings.batch_s, channels=settings.channels)
    generator = Generator(traffic, EVENING_S, settings.seed, number - 1, announce=True)
    open_: set[asyncio.Task[None]] = set()
    due = live.began
    try:
        for payload, events in _payloads(generator):
            if due > live.began + settings.duration_s:
                break
            await asyncio.sleep(max(0.0, due - time.time()))
            while len(open_) >= _OPEN_MAX:
                await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
            message = SentMessage(number, events, payload, due)
            live.sent.append(message)
            task = asyncio.create_task(_publish_one(client, message, settings.deadline_s))
            open_.add(task)
            task.add_done_callback(open_.discard)
            due += settings.interval_s
        if open_:
            await asyncio.gather(*open_)
    finally:
        for task in list(open_):
            task.cancel()


def _payloads(generator: Generator) -> Iterator[tuple[bytes, int]]:
    for batch in generator.batches():
        lines = batch.events.lines()
        if lines:
            yield "\n".join(lines).encode(), len(lines)


async def _publish_one(client: GroupClient, message: SentMessage, deadline_s: float) -> None:
    message.sent_at = time.time()
    properties = ((PUBLICATION_PROPERTY, f"{message.sent_at:.6f}"), (DEADLINE_PROPERTY, str(round(1000 * deadline_s))))
    await client.publish(f"zap/events/{message.publisher}", message.payload, 1, properties=Properties(user=properties))
    message.acknowledged_at = time.time()


async def _listen(client: GroupClient, arrived: list[ArrivedMessage]) -> None:
    while True:
        message = await client.message()
        arrived.append(ArrivedMessage(time.time(), message.topic, message.payload, message.dup))


async def _kill_leader(group: LocalGroup, settings: LiveSettings, live: Live) -> None:
    await asyncio.sleep(max(0.0, live.began + settings.kill_after * settings.duration_s - time.time()))
    leader = 0
    while not leader:
        leader = await asyncio.to_thread(group.leader)
    live.killed, live.killed_at = leader, time.time()
    await asyncio.to_thread(group.kill, leader)
    await asyncio.sleep(settings.back_after_s)
    live.leader_after = await asyncio.to_thread(group.leader)
    group.start(leader)
    await asyncio.to_thread(group.wait_ready)
    live.back_at = time.time()


async def _come_and_go(group: LocalGroup, settings: LiveSettings, live: Live, subscribed: asyncio.Event) -> None:
    """Keeps a session that outlives its connections: connected for a while, away for a while."""
    random = Streams(settings.seed).generator("tour", "comes and goes")
    while True:
        client = await _connect_tablet(group, random)
        if not subscribed.is_set():
            await client.subscribe("zap/events/1", qos=1)
            subscribed.set()
        since = time.time()
        try:
            with suppress(TimeoutError, ClientError):
                async with asyncio.timeout(float(random.exponential(settings.on_s))):
                    while True:
                        message = await client.message()
                        live.arrived[TABLET].append(ArrivedMessage(time.time(), message.topic, message.payload))
        finally:
            live.tablet_on.append((since, time.time()))
            await client.disconnect()
        await asyncio.sleep(float(random.exponential(settings.off_s)))


async def _connect_tablet(group: LocalGroup, random: np.random.Generator) -> Client:
    """Returns a connection to whichever replica accepts it."""
    while True:
        for index in random.permutation(len(group.addresses)).tolist():
            host, port = split_address(group.addresses[index])
            client = Client(
                host,
                port,
                client_id=TABLET,
                clean_start=False,
                properties=Properties(session_expiry_s=300),
                timeout_s=2.0,
            )
            try:
                await client.connect()
            except ClientError:
                await client.disconnect()
                continue
            return client
        await asyncio.sleep(_TICK_S)


async def _settle(live: Live, names: list[str]) -> None:
    """Waits until every subscriber has all acknowledged messages and the statistics no longer change, or for too
    long."""
    wanted = {message.payload for message in live.sent if message.acknowledged_at is not None}
    until = time.time() + _SETTLE_S
    while time.time() < until:
        await asyncio.sleep(_TICK_S)
        missing = any(wanted - {each.payload for each in live.arrived[name]} for name in names)
        last = max((live.arrived[name][-1].at for name in names if live.arrived[name]), default=0.0)
        if not missing and time.time() - last > _QUIET_S:
            return
