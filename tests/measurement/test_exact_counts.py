"""Brokers that run, and those of the simulation: after each operation the same messages and the same tables."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from surecast.client import Client
from surecast.client.group_client import split_address
from surecast.measurement import make_plan
from surecast.measurement.load_clients import pack_event
from surecast.measurement.measurement_plan import topic_of
from surecast.measurement.overlay_processes import OverlayProcesses
from surecast.measurement.processes import start_processes
from surecast.protocol.filters import Event, Filter
from surecast.protocol.mqtt import Properties
from surecast.scenario import System, build, load_system, parse_text
from surecast.simulation.capacity import ALGORITHMS
from surecast.simulation.capacity.client_behaviour import draw_event, draw_filter
from surecast.simulation.capacity.delivery_oracle import SimulatedSubscription
from surecast.simulation.capacity.routed_brokers import RoutedBroker, routed_brokers
from surecast.simulation.capacity.routing_plan import make_plan as make_routing_plan

OPERATIONS = 40
QUIET_S = 20.0

SMALL = """
surecast: 1
name: small
seed: 5
overlay:
  brokers: [{name: b, count: 4, capacity: 5000/s}]
  links: [[b-1, b-2], [b-2, b-3], [b-2, b-4]]
  root: b-1
workload:
  classes: [{name: class, count: 2}]
  clients: [{name: client, count: 4, home: random}]
  subscriptions: {active: 10, lifetime: 8s}
  publications: 30/s
delivery: {routing: {scheme: SCHEME, algorithm: ALGORITHM}}
"""


class Simulated:
    """The brokers of the simulation, with the messages that they have sent on each directed link."""

    def __init__(self, system: System, algorithm: str):
        self.plan = make_routing_plan(system)
        self.brokers: list[RoutedBroker] = routed_brokers(self.plan, algorithm)
        names = self.plan.names
        ends = zip(self.plan.tail, self.plan.head, strict=True)
        self.sent: dict[tuple[str, str], Counter[str]] = {(names[a], names[b]): Counter() for a, b in ends}

    def do(self, kind: str, sent: list[tuple[int, object]]) -> None:
        """Carries the messages of an operation to their ends."""
        waiting = deque(sent)
        while waiting:
            link, message = waiting.popleft()
            tail, head = self.plan.names[self.plan.tail[link]], self.plan.names[self.plan.head[link]]
            self.sent[tail, head][kind] += 1
            waiting += self.brokers[self.plan.head[link]].handle(0.0, message, tail)[0]  # type: ignore[arg-type]

    def messages(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {ends: (count["notification"], count["control"]) for ends, count in self.sent.items()}

    def tables(self) -> dict[str, int]:
        return {name: each.remote_entries for name, each in zip(self.plan.names, self.brokers, strict=True)}


class Running:
    """The brokers that run, with a session for each subscription."""

    def __init__(self, system: System, processes: OverlayProcesses):
        self.system, self.processes = system, processes
        self.subscribers: dict[str, Client] = {}
        self.publishers: dict[int, Client] = {}

    async def client(self, home: int, name: str) -> Client:
        client = Client(*split_address(self.processes.addresses[home]), client_id=name)
        await client.connect()
        return client

    async def subscribe(self, home: int, name: str, topic: str, wanted: Filter) -> None:
        self.subscribers[name] = client = await self.client(home, name)
        content = str(Filter(None, wanted.constraints))
        await client.subscribe(topic_of(topic), qos=1, properties=Properties(user=(("filter", content),)))

    async def unsubscribe(self, name: str, topic: str) -> None:
        client = self.subscribers.pop(name)
        await client.unsubscribe(topic_of(topic))
        await client.disconnect()

    async def publish(self, home: int, number: int, topic: str, event: Event) -> None:
        if home not in self.publishers:
            self.publishers[home] = await self.client(home, f"publisher {home}")
        user = tuple((name, repr(value)) for name, value in event.attributes)
        await self.publishers[home].publish(topic_of(topic), pack_event(number), 1, properties=Properties(user=user))

    async def close(self) -> None:
        for client in [*self.subscribers.values(), *self.publishers.values()]:
            await client.disconnect()


async def compare(system: System, algorithm: str, folder: Path) -> None:
    """Does the same operations one at a time to both, and compares them whenever all is quiet."""
    simulated = Simulated(system, algorithm)
    started, _ = await start_processes(make_plan(system, duration_s=5.0), folder)
    processes = cast(OverlayProcesses, started)
    running = Running(system, processes)
    workload, rng = simulated.plan.workload, np.random.default_rng(11)
    subscriptions: list[tuple[str, int, SimulatedSubscription]] = []
    try:
        for number in range(OPERATIONS):
            home = int(rng.integers(len(processes.addresses)))
            each = workload.classes[int(rng.integers(len(workload.classes)))]
            choice = rng.random()
            if choice < 0.5 or not subscriptions:
                wanted, name = draw_filter(each, rng), f"subscriber {number}"
                subscription = SimulatedSubscription(0, workload.classes.index(each), wanted, name)
                subscriptions.append((name, home, subscription))
                await running.subscribe(home, name, each.name, wanted)
                simulated.do("control", simulated.brokers[home].subscribe(name, subscription.joint))
            elif choice < 0.75:
                name, home, subscription = subscriptions.pop(int(rng.integers(len(subscriptions))))
                await running.unsubscribe(name, subscription.joint.topic)
                simulated.do("control", simulated.brokers[home].unsubscribe(name, subscription.joint))
            else:
                event = draw_event(each, rng)
                await running.publish(home, number, each.name, event)
                simulated.do("notification", simulated.brokers[home].publish(0.0, event)[0])
            await until_equal(processes, simulated, f"{algorithm}, operation {number}")
        assert sum(sum(count.values()) for count in simulated.sent.values()) > OPERATIONS // 2
    finally:
        await running.close()
        processes.close()


async def until_equal(processes: OverlayProcesses, simulated: Simulated, what: str) -> None:
    """Waits until what runs has sent all that the simulation has, and finds the same tables then."""
    end = time.monotonic() + QUIET_S
    while (messages := processes.messages()) != simulated.messages() and time.monotonic() < end:
        await asyncio.sleep(0.002)
    assert messages == simulated.messages(), what
    while (tables := processes.table_entries()) != simulated.tables() and time.monotonic() < end:
        await asyncio.sleep(0.002)
    assert tables == simulated.tables(), what


# Each kind of table and each scheme every time, the other pairs with `make test-long`.
QUICK = ("flooding", "peer-to-peer identity", "peer-to-peer covering", "hierarchical merging")


@pytest.mark.parametrize(
    "algorithm", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in ALGORITHMS if name not in QUICK)]
)
def test_messages_and_tables_of_brokers_that_run_are_those_of_the_simulation(algorithm: str, tmp_path: Path) -> None:
    scheme, _, name = algorithm.rpartition(" ")
    text = SMALL.replace("SCHEME", scheme or "peer-to-peer").replace("ALGORITHM", name)
    asyncio.run(compare(build(parse_text(text)), algorithm, tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_brokers_of_the_company_send_what_its_simulation_sends(
    algorithm: str, repository: Path, tmp_path: Path
) -> None:
    """Ten brokers; fewer classes than the example, so that filters of a class meet."""
    scheme, _, name = algorithm.rpartition(" ")
    changes = {
        "workload.classes[0].count": 4,
        "workload.clients[0].count": 20,
        "workload.subscriptions.active": 20,
        "workload.publications": "10/s",
        "delivery.routing.scheme": scheme or "peer-to-peer",
        "delivery.routing.algorithm": name,
    }
    asyncio.run(compare(load_system(repository / "examples/company.yaml", changes)[1], algorithm, tmp_path))
