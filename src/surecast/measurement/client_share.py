"""The clients of a run that one process has: it publishes, subscribes, and knows how late it was itself."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from surecast.broker.event_observer import DEADLINE_PROPERTY, PUBLICATION_PROPERTY
from surecast.measurement.load_clients import BrokerLink, DirectLink, KeenLink, Received, Receiver, pack_event
from surecast.measurement.measurement_plan import LINKS_MAX, RunPlan, client_of, topic_of
from surecast.protocol.mqtt import Properties
from surecast.scenario.streams import Streams

__all__ = ["LATE_S", "ClientShare", "Lateness", "Share", "ShareResult", "stamps_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LATE_S: Final = 0.05
"""A process that comes so much later than it wanted to notices arrivals late, too."""
_SAMPLE_S: Final = 0.02
_SETTLE_S: Final = 0.5
_YIELD_EVENTS: Final = 50


@dataclass(frozen=True)
class Share:
    """The share of a process: of `count` processes it is the one with this number, from 0. `addresses` are those of
    the processes of each broker."""

    plan: RunPlan
    number: int
    count: int
    addresses: tuple[tuple[str, ...], ...]

    def addresses_for(self, home: int, rotate: int) -> list[str]:
        """Returns where the clients of a home broker connect, beginning with another process for each `rotate`."""
        own = self.addresses[home]
        first = rotate % len(own)
        return [*own[first:], *own[:first]]

    def has(self, place: int) -> bool:
        """Returns whether the connection or subscriber at this place is one of this share."""
        return place % self.count == self.number


@dataclass(frozen=True)
class Lateness:
    """By how much a process of clients was late: publications behind their time, and wake-ups that it had asked for."""

    published: int
    published_p99_s: float
    published_max_s: float
    samples: int
    late_samples: int
    sample_max_s: float


@dataclass(frozen=True)
class ShareResult:
    """The result of a share: its events by number, with the real times at which they were due, sent and taken over (0
    where not); its subscribers by place; the times at which its connections were made, with the home broker."""

    events: Ints
    published_at: Floats
    sent_at: Floats
    acknowledged_at: Floats
    receivers: dict[int, Received]
    ups: list[tuple[int, float]]
    lateness: Lateness


def stamps_of(plan: RunPlan, began: float) -> Ints:
    """Returns the time at which each event of a run is due, in whole microseconds, no two alike: its key in logs."""
    due = np.rint((began + plan.events.time_s / plan.scale) * 1e6).astype(np.int64)
    places = np.arange(len(due))
    return np.asarray(np.maximum.accumulate(due - places) + places, dtype=np.int64)


class ClientShare:
    """The clients of one share. All its methods are called in one event loop, in the order of a run."""

    def __init__(self, share: Share):
        self.share, self.plan = share, share.plan
        streams, plan = Streams(share.plan.seed), share.plan
        size = len(plan.events)
        self._due, self._published_at = np.zeros(size), np.zeros(size)
        self._sent_at, self._acknowledged_at = np.zeros(size), np.zeros(size)
        self.receivers = {
            place: Receiver(
                Received(client_of("subscriber", who.name)),
                tuple(topic_of(topic) for topic in who.topics),
                share.addresses_for(who.home, 0),
                who.service,
                streams.generator("run 0/service", who.name),
                plan.scale,
                self._due,
                plan.events.lifetime_s / plan.scale,
                asks=plan.asks_of(who),
            )
            for place, who in enumerate(plan.system.subscribers)
            if share.has(place)
        }
        self._links, self._link_of = self._make_links()
        own = np.array([share.has(self._link_of[i]) for i in range(len(plan.system.publishers))], dtype=np.bool_)
        self._events = np.flatnonzero(own[plan.events.publisher])
        self._late_s: list[float] = []
        self._publishing: asyncio.Task[None] | None = None
        self._publications: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _make_links(self) -> tuple[dict[int, tuple[BrokerLink, int]], list[int]]:
        """Returns the connections of publishers with their home brokers, and the place of each publisher's."""
        plan = self.plan
        publishers = plan.system.publishers
        if len(publishers) <= LINKS_MAX:
            names = [(p.name, p.home) for p in publishers]
            link_of = list(range(len(publishers)))
        elif plan.overlay is None:
            names = [(str(i), 0) for i in range(LINKS_MAX)]
            link_of = [i % LINKS_MAX for i in range(len(publishers))]
        else:
            names = [(str(i), i) for i in range(len(plan.overlay.brokers))]
            link_of = [p.home for p in publishers]
        links: dict[int, tuple[BrokerLink, int]] = {}
        for place, (name, home) in enumerate(names):
            if self.share.has(place):
                addresses, who = self.share.addresses_for(home, place), client_of("publisher", name)
                keen = plan.patience_s > 0
                links[place] = (KeenLink(addresses, who, plan.patience_s) if keen else DirectLink(addresses, who), home)
        return links, link_of

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts something that goes on until the end; if it fails, so does the share."""

        def done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None and not self._failure.done():
                self._failure.set_exception(error)

        task = asyncio.create_task(work)
        task.add_done_callback(done)
        self._tasks.append(task)
        return task

    async def failed(self) -> None:
        """Waits until something fails that should not, and raises it."""
        await asyncio.shield(self._failure)

    async def subscribe(self) -> None:
        """Opens the sessions of all subscribers."""
        for receiver in self.receivers.values():
            await receiver.switch(True)
            self._spawn(receiver.run())
        await self._unless_failed(asyncio.gather(*(each.is_subscribed.wait() for each in self.receivers.values())))

    async def connect(self) -> None:
        """Connects all publishers."""
        await self._unless_failed(asyncio.gather(*(link.connect() for link, _ in self._links.values())))

    async def _unless_failed(self, work: asyncio.Future[Any]) -> None:
        """Waits for something; raises what fails meanwhile."""
        await asyncio.wait([work, self._failure], return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            work.cancel()
            self._failure.result()
        await work

    async def begin(self, began: float) -> None:
        """Starts to publish, and lets subscribers come and go, by the plan of a run that began at a time."""
        self._due[:] = stamps_of(self.plan, began) / 1e6
        end = began + self.plan.real_s
        for place, receiver in self.receivers.items():
            is_on, times = self.plan.switches[place]
            await receiver.switch(is_on)
            self._spawn(_switch(receiver, is_on, [began + time_s / self.plan.scale for time_s in times.tolist()], end))
        self._spawn(self._sample())
        self._publishing = self._spawn(self._publish_all())

    async def _sample(self) -> None:
        """Notes again and again how late this process is."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _SAMPLE_S
            await asyncio.sleep(_SAMPLE_S)
            self._late_s.append(loop.time() - due)

    async def _publish_all(self) -> None:
        """Publishes each event at its time, whatever becomes of those before it."""
        events = self.plan.events
        topics = [topic_of(topic.name) for topic in self.plan.system.topics]
        for turn, number in enumerate(self._events.tolist()):
            due = float(self._due[number])
            wait_s = due - time.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            elif turn % _YIELD_EVENTS == 0:
                await asyncio.sleep(0)
            self._published_at[number] = due
            user = [(PUBLICATION_PROPERTY, f"{due:.6f}")]
            lifetime_s = float(events.lifetime_s[number]) / self.plan.scale
            if lifetime_s < math.inf:
                user.append((DEADLINE_PROPERTY, str(max(1, round(1000 * lifetime_s)))))  # in whole ones only
            link, _ = self._links[self._link_of[int(events.publisher[number])]]
            task = asyncio.create_task(
                self._publish(number, link, topics[int(events.topic[number])], Properties(user=tuple(user)))
            )
            self._publications.add(task)
            task.add_done_callback(self._publications.discard)

    async def _publish(self, number: int, link: BrokerLink, topic: str, properties: Properties) -> None:
        self._sent_at[number] = time.time()
        if await link.publish(topic, pack_event(number), properties):
            self._acknowledged_at[number] = time.time()

    async def move(self, home: int, address: str) -> None:
        """Sends the publishers of a home broker to another of its replicas."""
        await asyncio.gather(*(link.move(address) for link, own in self._links.values() if own == home))

    async def settle(self) -> None:
        """Publishes no more; waits until each event is acknowledged or given up, and has had the time to arrive."""
        if self._publishing is not None:
            self._publishing.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.plan.patience_s + _SETTLE_S):
                while self._publications:
                    await asyncio.wait(list(self._publications))
        await asyncio.sleep(_SETTLE_S)

    async def hurry(self) -> None:
        """Lets all subscribers stay connected from now on, and take what waits for them as fast as they can."""
        for task in self._tasks[len(self.receivers) :]:  # those that let them come and go
            task.cancel()
        await asyncio.gather(*(receiver.hurry() for receiver in self.receivers.values()))

    async def last_at(self) -> float:
        """Returns when the last message has come."""
        return max((receiver.last_at for receiver in self.receivers.values()), default=0.0)

    async def result(self) -> ShareResult:
        """Returns what has been seen until now."""
        own = self._events
        published = self._published_at[own]
        return ShareResult(
            own,
            published,
            self._sent_at[own],
            self._acknowledged_at[own],
            {place: receiver.received for place, receiver in self.receivers.items()},
            [(home, up) for link, home in self._links.values() for up in link.ups],
            self._lateness(),
        )

    def _lateness(self) -> Lateness:
        own = self._events[self._sent_at[self._events] > 0]
        behind = self._sent_at[own] - self._published_at[own]
        late = np.array(self._late_s) if self._late_s else np.zeros(1)
        return Lateness(
            len(own),
            float(np.quantile(behind, 0.99)) if len(own) else 0.0,
            float(behind.max(initial=0.0)),
            len(self._late_s),
            int((late > LATE_S).sum()),
            float(late.max()),
        )

    async def close(self) -> None:
        """Ends all clients."""
        tasks = [*self._tasks, *self._publications]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(link.close() for link, _ in self._links.values()), return_exceptions=True)
        self._failure.cancel()


async def _switch(receiver: Receiver, is_on: bool, changes: list[float], end: float) -> None:
    """Connects and disconnects a subscriber in turn at some times, until the end of the run."""
    for due in changes:
        if due >= end:
            return
        await asyncio.sleep(max(0.0, due - time.time()))
        is_on = not is_on
        await receiver.switch(is_on)
