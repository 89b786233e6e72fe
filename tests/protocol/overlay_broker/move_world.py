"""Overlays in which clients with sessions hop between brokers while links and brokers fail, and what must hold then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.protocol.overlay_broker.broker_world import SMALL, BrokerWorld, Machine, Subscriber

from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.message import text_field
from surecast.protocol.mqtt import Connack, Publish, Pubrel, Subscribe, SubscriptionRequest
from surecast.protocol.overlay_broker import OverlayBroker

MOVING = replace(SMALL, homes_max=100, moves=True, move_wait_s=3.0, move_linger_s=20.0)


class Hopper(Subscriber):
    """A subscriber that goes to any broker. `began` are the times at which it was told that it has no session;
    `doubtful` what it had had without the end of the exchange by then.

    Its session is *split* when it was served by two brokers, one after the other, while a broker that could not be
    reached had another part of it: from then on nobody promises that it has a message once. `twice` is what it had
    twice all the same."""

    def __init__(self, name: str, home: str, version: int, filter: str, qos: int):
        super().__init__(name, home, version, filter, qos)
        self.began: list[float] = []
        self.is_split = False
        self.apart_at = ""
        self.twice: list[bytes] = []
        self.parts_of: Callable[[Hopper], list[str]] = lambda _: []
        self.doubtful: set[bytes] = set()
        self.hops = 0
        self.found = 0
        self.now = 0.0
        self._payloads: dict[int, bytes] = {}

    def take(self, packet: object) -> list[object]:
        if isinstance(packet, Connack):
            self.found += packet.session_present
            if not packet.session_present:
                self.doubtful |= set(self._payloads.values())
                self._payloads.clear()
                self.began.append(self.now)
                self.is_subscribed = False
            self._look_for_parts()
            if packet.session_present and not self.is_subscribed:
                super().take(packet)
                return [Subscribe(1, (SubscriptionRequest(self.filter, self.qos),))]
        elif isinstance(packet, Publish):
            if packet.retain:  # a copy for a new subscription, besides the message itself
                self.doubtful.add(packet.payload)
            is_again = packet.qos == 2 and packet.packet_id not in self._open and packet.payload in self.received
            if is_again and packet.payload not in self.doubtful and not self.is_split:
                self.twice.append(packet.payload)
            if packet.qos == 2:
                self._payloads[packet.packet_id] = packet.payload
        elif isinstance(packet, Pubrel):
            self._payloads.pop(packet.packet_id, None)
        return super().take(packet)

    def _look_for_parts(self) -> None:
        has_others = bool(self.parts_of(self))
        if has_others and self.apart_at not in ("", self.home):
            self.is_split = True
        self.apart_at = self.home if has_others else ""


class MoveWorld(BrokerWorld):
    """Its subscribers hop, each with a chance in every step; those at QoS 0 stay where they are."""

    hop_share = 0.05

    def __init__(self, random: Random, scheme: str, broker: type[OverlayBroker] = OverlayBroker, *, size: int = 0):
        super().__init__(random, scheme, settings=MOVING, broker=broker, size=size)

    def populate(self) -> None:
        super().populate()
        self.clients = [
            Hopper(each.name, each.home, each.version, each.filter, each.qos or 2)
            if isinstance(each, Subscriber)
            else each
            for each in self.clients
        ]
        for hopper in self.hoppers:
            hopper.parts_of = self._parts

    def _parts(self, hopper: Hopper) -> list[str]:
        """Returns the brokers that have other parts of a session, besides those that only pass on what is late."""
        key = b"s" + text_field(hopper.name)
        return [
            name
            for name, machine in self.machines.items()
            if name != hopper.home and key in machine.disk
            if machine.broker is None or machine.broker.moves is None or not machine.broker.moves.has_left(hopper.name)
        ]

    @property
    def hoppers(self) -> list[Hopper]:
        return [client for client in self.clients if isinstance(client, Hopper)]

    def turn(self, name: str, *, is_cut_short: bool = False) -> None:
        for hopper in self.hoppers:
            hopper.now = self.now
        super().turn(name, is_cut_short=is_cut_short)

    def step(self, *, crashes: bool = True, cuts: bool = True) -> None:
        super().step(crashes=crashes, cuts=cuts)
        if self.random.random() < self.hop_share:
            self.hop(self.random.choice(self.hoppers), self.random.choice(self.plan.brokers))

    def hop(self, hopper: Hopper, to: str) -> None:
        """A client goes to another broker; the one before may not notice it."""
        machine: Machine = self.machines[hopper.home]
        if hopper.connection is not None and machine.core is not None and self.random.random() < 0.6:
            machine.core.lost(hopper.connection, self.now)
            self.turn(hopper.home)
        hopper.connection, hopper.is_ready, hopper.home = None, False, to
        hopper.hops += 1
        if self.machines[to].core is not None:
            hopper.connect(self.machines[to], self.now)
            self.turn(to)

    def reconnect(self) -> None:
        for hopper in self.hoppers:  # whose connection its broker has ended
            if hopper.connection is not None and hopper.connection.is_closed() and not hopper.connection.out:
                hopper.connection, hopper.is_ready = None, False
        super().reconnect()

    def heal(self) -> None:
        super().heal()
        for _ in range(2):
            self.reconnect()
            super().heal()

    # What must hold

    def move_problems(self, scheme: str) -> list[str]:
        """To be asked when all is repaired."""
        problems = [each for each in self.problems(scheme) if "twice" not in each and " after " not in each]
        topics = {payload: topic for publisher in self.publishers for payload, topic in publisher.topics.items()}
        qos = {publisher.name.encode(): publisher.qos for publisher in self.publishers}
        for hopper in self.hoppers:
            problems += self._twice(hopper, qos)
            problems += self._missing(hopper, topics) if "buffering" in scheme else []
            problems += self._places(hopper)
        return problems

    def _twice(self, hopper: Hopper, qos: dict[bytes, int]) -> list[str]:
        twice = [payload for payload in hopper.twice if qos[payload.split(b" ")[0]] == 2]
        return [f"{hopper.name} got {payload[:12]!r} twice" for payload in twice]

    def _missing(self, hopper: Hopper, topics: dict[bytes, str]) -> list[str]:
        received = set(hopper.received)
        return [
            f"{payload[:12]!r} did not reach {hopper.name} at {hopper.home}"
            for publisher in self.publishers
            for payload in publisher.acknowledged
            if publisher.qos and payload not in received and self.wants(hopper.filter, topics[payload])
        ]

    def _places(self, hopper: Hopper) -> list[str]:
        """In the end there is one session, where the client is, and its books balance."""
        problems = []
        cores: dict[str, BrokerCore] = {
            name: machine.core for name, machine in self.machines.items() if machine.core is not None
        }
        places = [name for name, core in cores.items() if hopper.name in core.sessions.by_key]
        if places != [hopper.home]:
            problems.append(f"{hopper.name} is at {hopper.home}, and has sessions at {places}")
            return problems
        session = cores[hopper.home].sessions.by_key[hopper.name]
        if not hopper.is_ready or session.connection is None:
            problems.append(f"{hopper.name} is not served at {hopper.home}")
        if session.queued:
            problems.append(f"{hopper.name} has not taken {session.queued} messages")
        if {each.filter for each in session.subscriptions.values()} != {hopper.filter}:
            problems.append(f"{hopper.name} has subscribed to {[*session.subscriptions]}, and not to {hopper.filter}")
        if session.accounts.queued != session.queued:
            problems.append(f"{hopper.name}: {session.accounts} and {session.queued} in the queue")
        return problems


def run_moves(
    seed: int, scheme: str, broker: type[OverlayBroker] = OverlayBroker, *, steps: int = 250
) -> tuple[list[str], MoveWorld]:
    """Runs a world; returns what was wrong."""
    world = MoveWorld(Random(f"moves {scheme} {seed}"), scheme, broker)
    for _ in range(steps):
        world.step()
    world.heal()
    return world.move_problems(scheme), world
