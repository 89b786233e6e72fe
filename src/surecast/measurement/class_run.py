"""Filter classes on a real broker: subscriptions with content filters and lifetimes, and events with attributes.

A session has one subscription for each topic filter. At one broker every client is one MQTT session; so that it may
have several of the same class, each is a shared subscription with a name of its own, of which the client is the only
member. Shared subscriptions are local to a broker, so that over several brokers a client has as many sessions as it has
subscriptions of one class at a time.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from surecast.client import Client
from surecast.client.group_client import split_address
from surecast.measurement.load_clients import number_of, pack_event
from surecast.measurement.measurement_plan import RunPlan, client_of, topic_of
from surecast.measurement.overlay_processes import BrokerCounts, OverlayProcesses
from surecast.measurement.processes import Processes, start_processes
from surecast.measurement.workload_drive import interruptible
from surecast.protocol.filters import Event, Filter
from surecast.protocol.mqtt import Properties
from surecast.scenario.streams import Streams
from surecast.simulation.capacity.client_behaviour import SimulatedClient as Draws
from surecast.simulation.capacity.routing_plan import make_plan as make_routing_plan

__all__ = ["ClassRun", "MeasuredSubscription", "SentPublication", "measure_classes"]

Progress = Callable[[int, int], None]
_SETTLE_S: Final = 0.5
_FILTER: Final = "filter"
_NEVER: Final = float("inf")
_SLACK_S: Final = 1.0
"""Time that subscriptions and events may take between brokers, in which an event may be delivered or not."""
_SAMPLE_S: Final = 0.5


@dataclass(slots=True)
class MeasuredSubscription:
    """A subscription: who asked for what, and the real times at which it was sent, in force, taken back and gone."""

    client: int
    class_index: int
    wanted: Filter
    sent: float
    active: float = _NEVER
    ending: float = _NEVER
    gone: float = _NEVER


@dataclass(slots=True)
class SentPublication:
    """A publication: of whom, in which class, and the real times at which it was due, sent and acknowledged."""

    client: int
    class_index: int
    event: Event
    due: float
    sent: float
    acknowledged: float = _NEVER


@dataclass
class ClassRun:
    """All that a run with filter classes has seen. `first` has the arrivals of each client, by event. Of an overlay,
    `counts` has what brokers have counted, and `entries` samples of how many filters of neighbours each of them holds;
    `messages` are the events and changes of demand that each broker sent to each neighbour from `counted_from` to the
    end.
    """

    plan: RunPlan
    logs: Path
    is_interrupted: bool = False
    began: float = 0.0
    ended: float = 0.0
    subscriptions: list[MeasuredSubscription] = field(default_factory=list)
    sent: list[SentPublication] = field(default_factory=list)
    first: list[dict[int, float]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    counts: dict[str, BrokerCounts] = field(default_factory=dict)
    entries: list[dict[str, int]] = field(default_factory=list)
    messages: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    counted_from: float = 0.0

    def violations(self) -> tuple[int, int]:
        """Returns the number of events that a client should have got and did not, and of those that it got without a
        matching subscription.

        An event in flight at the beginning or the end of a subscription may or may not be delivered; over several
        brokers, that takes a while.
        """
        slack_s = 0.0 if self.plan.overlay is None else _SLACK_S
        by_class: dict[tuple[int, int], list[MeasuredSubscription]] = {}
        for subscription in self.subscriptions:
            by_class.setdefault((subscription.client, subscription.class_index), []).append(subscription)
        missing = unasked = 0
        for number, sent in enumerate(self.sent):
            for client, arrived in enumerate(self.first):
                fits = [a for a in by_class.get((client, sent.class_index), []) if a.wanted.matches(sent.event)]
                if number in arrived:
                    unasked += not any(
                        a.sent <= sent.acknowledged + slack_s and sent.sent <= a.gone + slack_s for a in fits
                    )
                elif sent.acknowledged < _NEVER:
                    missing += any(
                        a.active + slack_s < sent.sent and sent.acknowledged + slack_s < a.ending for a in fits
                    )
        return missing, unasked


async def measure_classes(plan: RunPlan, folder: Path, progress: Progress | None = None) -> ClassRun:
    """Runs a plan with filter classes; all that it starts is stopped again, whatever happens."""
    drive: _Drive | None = None
    processes: Processes | None = None
    with interruptible(lambda: None if drive is None else drive.stopping.set):
        try:
            processes, _ = await start_processes(plan, folder)
            drive = _Drive(plan, processes)
            return await drive.run(progress)
        finally:
            if drive is not None:
                await drive.close()
            if processes is not None:
                await asyncio.to_thread(processes.close)


@dataclass(eq=False)
class _Session:
    """A session of a client, and the classes of which it has a subscription."""

    client: Client
    classes: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Active:
    """A subscription in force, with the session that has it and its topic filter."""

    subscription: MeasuredSubscription
    session: _Session
    topic: str


class _Drive:
    def __init__(self, plan: RunPlan, processes: Processes):
        self.plan, self.result = plan, ClassRun(plan, processes.logs)
        self.processes = processes
        self.overlay = processes if isinstance(processes, OverlayProcesses) else None
        self.stopping = asyncio.Event()
        self._ending = asyncio.Event()
        routing = make_routing_plan(plan.system)
        self.workload = routing.workload
        names = self.workload.clients
        self.draws = [Draws(routing, i, Streams(plan.seed), 0) for i in range(len(names))]
        self.clients = [self._client(i, name) for i, name in enumerate(names)]
        self._sessions = [[_Session(client)] for client in self.clients]
        self._opening = [asyncio.Lock() for _ in names]
        self.result.first = [{} for _ in names]
        self._names = itertools.count(1)
        self._is_receiving = False
        self._tasks: set[asyncio.Task[None]] = set()

    def _client(self, i: int, name: str) -> Client:
        """Returns a session of a client: at its home broker, or at one of the replicas."""
        addresses = self.processes.addresses_of[self.workload.client_home[i]]
        return Client(*split_address(addresses[i % len(addresses)]), client_id=client_of("client", name))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.result.failed.append(str(error))

    async def run(self, progress: Progress | None) -> ClassRun:
        """Runs everything, from the first subscription to the last message."""
        await asyncio.gather(*(client.connect() for client in self.clients))
        first = [draw for draws in self.draws for draw in draws.first_subscriptions()]
        ready = await asyncio.gather(*(self._subscribe(s.client, s.class_index, s.filter) for s, _ in first))
        if self.overlay is not None:
            await self.overlay.wait_for_demand()
        self.result.began = began = time.time()
        end = began + self.plan.real_s
        for (_, left_s), active in zip(first, ready, strict=True):
            self._spawn(self._end_later(active, began + left_s / self.plan.scale))
        for i in range(len(self.clients)):
            for work in (self._ask(i, began), self._publish_all(i, began)):
                self._spawn(work)
            for session in self._sessions[i]:
                self._spawn(self._receive(i, session.client))
        self._is_receiving = True
        if self.overlay is not None:
            self._spawn(self._sample(self.overlay))
            self._spawn(self._count_from(self.overlay, began + self.plan.warm_up_s / self.plan.scale))
        total = max(1, round(end - began))
        while not self.stopping.is_set() and (now := time.time()) < end:
            if progress is not None:
                progress(min(total, int(now - began)), total)
            await asyncio.sleep(min(0.2, end - now))
        self.result.ended = min(end, time.time())
        self.result.is_interrupted = self.result.ended < end
        if self.overlay is not None:
            before = self.result.messages
            sent = await asyncio.to_thread(self.overlay.messages)
            self.result.messages = {
                ends: (events - before[ends][0], changes - before[ends][1]) if ends in before else (0, 0)
                for ends, (events, changes) in sent.items()
            }
        self._ending.set()
        await asyncio.sleep(_SETTLE_S)
        if self.overlay is not None:
            await asyncio.to_thread(self.overlay.finish_counts)
            self.result.counts = self.overlay.counts
        return self.result

    async def _sample(self, overlay: OverlayProcesses) -> None:
        """Notes again and again how many filters of its neighbours each broker holds."""
        while not self._ending.is_set():
            self.result.entries.append(await asyncio.to_thread(overlay.table_entries))
            await asyncio.sleep(_SAMPLE_S)

    async def _count_from(self, overlay: OverlayProcesses, begin: float) -> None:
        """Notes what brokers have sent each other until the measurement begins."""
        await _until(begin)
        self.result.messages = await asyncio.to_thread(overlay.messages)
        self.result.counted_from = time.time()

    async def _session(self, i: int, class_index: int) -> _Session:
        """Returns a session of a client that has no subscription of a class: its first one with one broker, where
        subscriptions are shared under names of their own."""
        if self.overlay is None:
            return self._sessions[i][0]
        async with self._opening[i]:  # one that is not connected yet takes no subscriptions
            for session in self._sessions[i]:
                if class_index not in session.classes:
                    session.classes.add(class_index)
                    return session
            name = f"{self.workload.clients[i]}/{len(self._sessions[i])}"
            session = _Session(self._client(i, name), {class_index})
            self._sessions[i].append(session)
            await session.client.connect()
        if self._is_receiving:
            self._spawn(self._receive(i, session.client))
        return session

    async def _subscribe(self, client: int, class_index: int, wanted: Filter) -> _Active:
        session = await self._session(client, class_index)
        topic = topic_of(self.workload.classes[class_index].name)
        if self.overlay is None:
            topic = f"$share/{next(self._names)}/{topic}"
        subscription = MeasuredSubscription(client, class_index, wanted, time.time())
        self.result.subscriptions.append(subscription)
        content = str(Filter(None, wanted.constraints))
        await session.client.subscribe(topic, qos=1, properties=Properties(user=((_FILTER, content),)))
        subscription.active = time.time()
        return _Active(subscription, session, topic)

    async def _end_later(self, active: _Active, end: float) -> None:
        await _until(end)
        active.subscription.ending = time.time()
        await active.session.client.unsubscribe(active.topic)
        active.subscription.gone = time.time()
        active.session.classes.discard(active.subscription.class_index)

    async def _ask(self, i: int, began: float) -> None:
        due, draws = began, self.draws[i]
        while (drawn := draws.next_subscription()) is not None:
            due += drawn[0] / self.plan.scale
            await _until(due)
            wanted, lifetime_s = draws.subscription(drawn[1])
            self._spawn(self._live(i, wanted.class_index, wanted.filter, due + lifetime_s / self.plan.scale))

    async def _live(self, i: int, class_index: int, wanted: Filter, until: float) -> None:
        await self._end_later(await self._subscribe(i, class_index, wanted), until)

    async def _publish_all(self, i: int, began: float) -> None:
        due, draws = began, self.draws[i]
        while (drawn := draws.next_publication()) is not None:
            due += drawn[0] / self.plan.scale
            await _until(due)
            if self._ending.is_set():
                return
            sent = SentPublication(i, drawn[1], draws.event(drawn[1]), due, time.time())
            self.result.sent.append(sent)
            self._spawn(self._publish(i, sent, len(self.result.sent) - 1))

    async def _publish(self, i: int, sent: SentPublication, number: int) -> None:
        topic = topic_of(self.workload.classes[sent.class_index].name)
        user = tuple((name, repr(value)) for name, value in sent.event.attributes)
        await self.clients[i].publish(topic, pack_event(number), 1, properties=Properties(user=user))
        sent.acknowledged = time.time()

    async def _receive(self, i: int, client: Client) -> None:
        arrived = self.result.first[i]
        while True:
            message = await client.message()
            arrived.setdefault(number_of(message.payload), time.time())

    async def close(self) -> None:
        """Ends all clients."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for session in itertools.chain(*self._sessions):
            await session.client.disconnect()


async def _until(due: float) -> None:
    await asyncio.sleep(max(0.0, due - time.time()))
