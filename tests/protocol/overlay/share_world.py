"""Overlay nodes with shared subscriptions under every kind of fault; each event has one fate for each subscription."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Literal

from tests.protocol.overlay.fault_world import SCHEMES, FaultWorld
from tests.protocol.overlay.overlay_world import ALGORITHMS, SMALL, TOPICS

from surecast.protocol.demand import JointFilter, Members
from surecast.protocol.filters import Event, Filter, above
from surecast.protocol.mqtt.topics import match
from surecast.protocol.overlay.overlay_frames import EventBatch
from surecast.protocol.overlay.overlay_node import OverlayNode

GROUPS = (("w", "a/#", Filter()), ("w", "b/1", Filter()), ("v", "#", Filter(None, {"p": above(4)})))
"""Name, topic filter and content of the shared subscriptions."""


class ShareWorld(FaultWorld):
    """As `FaultWorld`. Each shared subscription has a member that stays, at one broker, and others that come and go,
    are connected or away. Events are numbered in an attribute, so that they are known whatever identity they have."""

    retains = 0.1

    def __init__(self, random: Random, scheme: str, algorithm: str, **named: Any):
        self.members: dict[str, dict[int, list[int]]] = {}
        """At each broker, by shared subscription: how many members are connected, and how many away."""
        self.served: dict[tuple[str, int], list[str]] = {}
        """The brokers whose members have got an event of a shared subscription, by that and the event's number."""
        self.events: dict[int, Event] = {}
        self.unclaimed = 0
        self.handed_on = 0
        super().__init__(random, scheme, algorithm, **named)
        self.stays = [random.choice(self.plan.brokers) for _ in GROUPS]
        for number, name in enumerate(self.stays):
            self.join_share(name, number, 0, 1)
        super().heal()

    # Members

    def join_share(self, name: str, number: int, ready: int, away: int) -> None:
        """Members come (or, with negative numbers, leave)."""
        node = self.machines[name].node
        assert node is not None
        counts = self.members.setdefault(name, {}).setdefault(number, [0, 0])
        before = self._joint(name, number, *counts)
        counts[0], counts[1] = counts[0] + ready, counts[1] + away
        after = self._joint(name, number, *counts)
        node.demand_members(after, before)
        self._flush(name)

    def change_members(self) -> None:
        name, number = self.random.choice(self.plan.brokers), self.random.randrange(len(GROUPS))
        if self.machines[name].node is None or name in self.frozen:
            return
        ready, away = self.members.get(name, {}).get(number, [0, 0])
        stays = int(name == self.stays[number])
        kind = self.random.choice(("come", "leave", "all leave", "connect", "disconnect"))
        changes = {
            "come": (self.random.choice((1, 3)), 0),
            "leave": (-min(ready, 1), -min(max(away + ready - stays, 0), 1) if not ready else 0),
            "all leave": (-ready, -away + stays),
            "connect": (min(away, 1), -min(away, 1)),
            "disconnect": (-min(ready, 1), min(ready, 1)),
        }
        change = changes[kind]
        if ready + change[0] + away + change[1] >= stays:
            self.join_share(name, number, *change)

    def _joint(self, name: str, number: int, ready: int, away: int) -> list[JointFilter]:
        share, topic, content = GROUPS[number]
        return [JointFilter(topic, content, 1, Members(share, name, ready, away))] if ready + away else []

    def _start(self, name: str) -> None:
        super()._start(name)
        node = self.machines[name].node
        assert node is not None
        if name in self.members:  # clients have to connect again
            for number, (ready, away) in self.members[name].items():
                self.members[name][number] = [0, ready + away]
                node.demand_members(self._joint(name, number, 0, ready + away))
            self._flush(name)

    def _deliveries(self, name: str) -> list[EventBatch]:
        """Members get what is for them before the commit; what nobody takes is handed on."""
        node = self.machines[name].node
        assert node is not None
        plain: list[EventBatch] = []
        while batches := node.take_deliveries():
            for batch in batches:
                if not batch.share:
                    plain.append(batch)
                    continue
                number = next(n for n, each in enumerate(GROUPS) if batch.share == f"$share/{each[0]}/{each[1]}")
                if not sum(self.members.get(name, {}).get(number, (0, 0))):
                    node.hand_on(batch, self.now)
                    continue
                for values in batch.attributes:
                    served = self.served.setdefault((batch.share, int(values["n"])), [])
                    served.append(f"{name} {self.machines[name].incarnation}")
        return plain

    def crash(self, name: str) -> None:
        node = self.machines[name].node
        if node is not None:
            self._count(node)
        super().crash(name)

    def _count(self, node: OverlayNode) -> None:
        self.unclaimed += node.accounts.unclaimed
        self.handed_on += node.accounts.handed_on

    # Events

    def publish(self, name: str, *, lifetime_s: float = float("inf")) -> None:
        node = self.machines[name].node
        if node is None or name in self.frozen:
            return
        topic = self.random.choice(TOPICS)
        if self.random.random() < self.retains:
            self.retain(name, topic, lifetime_s)
            return
        values = [{"p": self.random.randrange(10)} for _ in range(self.random.choice((1, 1, 2, 5)))]
        first = len(self.events) + 1_000
        batch = node.publish(
            topic, len(values), self.now, qos=1, expires_s=self.now + lifetime_s,
            attributes=tuple({**each, "n": first + place} for place, each in enumerate(values)),
        )  # fmt: skip
        if batch is not None:
            for place, each in enumerate(values):
                self.published[batch.first.plus(place)] = (Event(topic, each), batch.expires_s)
                self.events[first + place] = Event(topic, each)
        else:
            for place in range(len(values)):
                self.events[first + place] = Event("$refused")
        self._flush(name)

    def retain(self, name: str, topic: str, lifetime_s: float = float("inf")) -> None:
        """Retained events have no number: they are checked without shared subscriptions."""

    def step(self, **named: Any) -> None:
        super().step(**named)
        if self.random.random() < 0.1:
            self.change_members()

    # What must hold

    def problems(self) -> list[str]:
        problems = super().problems()
        for (share, number), served in self.served.items():
            wanted = [f"$share/{name}/{topic}" for name, topic, _ in self._wanting(self.events[number])]
            if share not in wanted:
                problems.append(f"a member of {share} at {served} got event {number}, which they do not want")
            # Without custody nothing is remembered over a restart: one by a detour can come before it and after.
            if len(served) > 1 and not ("buffering" not in self.scheme and len(set(served)) == len(served)):
                problems.append(f"event {number} went to {len(served)} members of {share}: {served}")
            if len({each.split()[0] for each in served}) > 1:
                problems.append(f"event {number} went to members of {share} at {served}")
        return problems

    def unserved(self) -> list[str]:
        """Events that no member of a shared subscription has got."""
        return [
            f"event {number} reached no member of $share/{name}/{topic}"
            for number, event in self.events.items()
            for name, topic, _ in self._wanting(event)
            if (f"$share/{name}/{topic}", number) not in self.served
        ]

    def _wanting(self, event: Event) -> list[tuple[str, str, Filter]]:
        return [each for each in GROUPS if match(each[1], event.class_name) and each[2].matches(event)]


def run_share_seed(
    seed: int, steps: int = 250, node: type[OverlayNode] = OverlayNode
) -> tuple[str, list[str], ShareWorld]:
    """Returns what was run by one seed, what was wrong with it, and the world afterwards."""
    random = Random(f"shares {seed}")
    scheme, algorithm = SCHEMES[seed % len(SCHEMES)], random.choice(ALGORITHMS)
    refresh: Literal["link", "end-to-end"] = random.choice(("link", "end-to-end"))
    settings = replace(
        SMALL,
        refresh_s=5.0 if refresh == "end-to-end" else SMALL.refresh_s,
        timeout_s=15.0,
        resume_s=random.choice((0.0, 5.0, 20.0)),
        retransmission_interval_s=random.choice((0.0, 0.0, 2.0)),
        reconnect_s=random.choice((0.0, 0.5)),
        ack_wait_s=random.choice((0.0, 0.5)),
    )
    roots = (None if algorithm == "flooding" else random.choice((None, random.randrange(6))), None)
    what = f"seed {seed}: {scheme}, {algorithm}, refresh {refresh}, roots {roots}, {settings}"
    world = ShareWorld(random, scheme, algorithm, settings=settings, refresh=refresh, roots=roots, node=node)
    for step in range(steps):
        world.step()
        if problems := world.problems():
            return what, [f"step {step}: {problem}" for problem in problems], world
    world.heal()
    problems = world.problems()
    if "buffering" in scheme:
        problems += world.unserved()
    world.heal()
    world.events.clear()
    world.served.clear()
    for name in world.plan.brokers:  # liveness: all is as if nothing had been
        for _ in range(3):
            world.publish(name)
    world.heal()
    problems += world.unserved() + world.problems()
    for machine in world.machines.values():
        assert machine.node is not None
        world._count(machine.node)
    if "buffering" in scheme and world.unclaimed:
        problems.append(f"{world.unclaimed} events were given up")
    return what, problems, world
