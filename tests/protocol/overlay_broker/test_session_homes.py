"""Which broker has the session of a client is known at all brokers, and MQTT 5 clients are sent there."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.protocol.overlay_broker.broker_line import BrokerLine, LineClient
from tests.protocol.overlay_broker.broker_world import SMALL, BrokerWorld, Client, Machine

from surecast.protocol.mqtt import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    encode,
)
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay_broker import OverlayBroker

WITH_HOMES = NodeSettings(homes_max=1_000)


class Roamer(LineClient):
    """A client that asks for its session, and keeps the answer."""

    def __init__(self, line: BrokerLine, home: str, name: str = "ann", *, lasts_s: int = 1_000, clean: bool = False):
        self.answers: list[Packet] = []
        super().__init__(line, home, name, Connect(name, clean, properties=Properties(session_expiry_s=lasts_s)))

    def read(self) -> list[Packet]:
        packets = super().read()
        self.answers += packets
        return packets

    @property
    def connack(self) -> Connack:
        return next(packet for packet in self.answers if isinstance(packet, Connack))

    @property
    def sent_to(self) -> str | None:
        if self.connack.reason != ReasonCode.USE_ANOTHER_SERVER:
            return None
        return self.connack.properties.server_reference


def homes(line: BrokerLine, key: str = "ann") -> list[str]:
    return [broker.homes.home_of(key) for broker in line.brokers.values() if broker.homes is not None]


@pytest.mark.parametrize("scheme", ["none", "buffering", "bypass"])
def test_a_client_that_asks_elsewhere_is_sent_to_its_session_and_finds_it(scheme: str) -> None:
    line = BrokerLine(3, scheme, WITH_HOMES)
    first = Roamer(line, "b1")
    first.subscribe("news", 1)
    first.close()
    assert homes(line) == ["b1"] * 3
    LineClient(line, "b2", "p").publish("news", b"1", 1)
    away = Roamer(line, "b3")
    assert away.sent_to == "at b1"
    assert away.connection.is_closed()
    back = Roamer(line, "b1")
    assert back.connack.session_present
    assert [packet.payload for packet in back.answers if hasattr(packet, "payload")] == [b"1"]


def test_who_comes_again_within_a_minute_is_served_and_is_at_home_there_from_then_on() -> None:
    line = BrokerLine(2, "none", WITH_HOMES)
    Roamer(line, "b1").close()
    assert Roamer(line, "b2").sent_to == "at b1"
    again = Roamer(line, "b2")
    assert (again.sent_to, again.connack.session_present) == (None, False)
    assert homes(line) == ["b2"] * 2
    assert line.brokers["b2"].homes is not None
    assert line.brokers["b2"].homes.came_again == 1
    again.close()
    assert Roamer(line, "b1").sent_to is None, "the older session is still there"
    assert homes(line) == ["b1"] * 2


def test_whoever_does_not_ask_for_a_session_is_served_where_it_is() -> None:
    line = BrokerLine(2, "none", WITH_HOMES)
    Roamer(line, "b1").close()
    old = LineClient(line, "b2", "ann", Connect("ann", clean_start=True))
    assert not old.connection.is_closed(), "a clean start"
    old.close()
    assert homes(line) == ["b1"] * 2, "a session that ends with its connection is at home nowhere"
    assert Roamer(line, "b2", "bob").sent_to is None, "a session that is nowhere yet"


def test_a_session_that_ends_is_at_home_nowhere_and_in_the_end_nobody_remembers_it() -> None:
    line = BrokerLine(3, "none", WITH_HOMES)
    client = Roamer(line, "b1")
    client.send(Disconnect(0, Properties(session_expiry_s=0)))
    client.close()
    assert homes(line) == [""] * 3
    assert Roamer(line, "b2", lasts_s=50).sent_to is None
    line.wait(200.0)
    Roamer(line, "b1", "bob", lasts_s=50).close()
    assert homes(line, "bob") == ["b1"] * 3
    line.wait(60.0)
    assert homes(line, "bob") == [""] * 3, "it has expired"
    line.wait(130.0)
    assert [broker.node.homes.tombstones for broker in line.brokers.values() if broker.node.homes] == [0, 0, 0]


def test_a_client_is_not_sent_to_a_broker_that_cannot_be_reached() -> None:
    line = BrokerLine(2, "none", WITH_HOMES)
    Roamer(line, "b1").close()
    line.cut("b1", "b2")
    assert Roamer(line, "b2").sent_to is None
    other = Roamer(line, "b1", "bob")
    assert other.sent_to is None
    line.join("b1", "b2")
    line.wait(61.0)
    assert homes(line) == ["b2"] * 2
    assert homes(line, "bob") == ["b1"] * 2


def test_an_older_session_is_the_client_s_again_when_the_later_one_has_ended() -> None:
    line = BrokerLine(3, "none", WITH_HOMES)
    Roamer(line, "b1").close()
    Roamer(line, "b2")
    later = Roamer(line, "b2")
    assert homes(line) == ["b2"] * 3
    later.send(Disconnect(0, Properties(session_expiry_s=0)))
    later.close()
    assert homes(line) == ["b1"] * 3
    assert Roamer(line, "b3").sent_to == "at b1"


def test_a_broker_that_has_lost_its_disk_is_no_home_any_more() -> None:
    line = BrokerLine(2, "none", WITH_HOMES)
    Roamer(line, "b1").close()
    line.crash("b1")
    line.disks["b1"].clear()
    line.start("b1")
    line.join("b1", "b2")
    line.wait(61.0)
    assert homes(line) == [""] * 2
    assert Roamer(line, "b2").sent_to is None


def test_of_two_sessions_that_a_partition_has_kept_apart_the_later_one_is_at_home() -> None:
    line = BrokerLine(2, "none", WITH_HOMES)
    line.cut("b1", "b2")
    Roamer(line, "b2").close()
    line.now += 1.0
    Roamer(line, "b1").close()
    line.join("b1", "b2")
    line.wait(61.0)
    assert homes(line) == ["b1"] * 2


def test_homes_outlive_a_restart_and_a_session_that_was_there_before_the_map_is_entered() -> None:
    line = BrokerLine(2, "none")
    Roamer(line, "b1", "old").close()
    line.node_settings = WITH_HOMES
    for name in ("b1", "b2"):
        line.crash(name)
        line.start(name)
    line.join("b1", "b2")
    line.wait(61.0)
    assert homes(line, "old") == ["b1"] * 2
    line.crash("b2")
    line.start("b2")
    assert line.brokers["b2"].homes is not None
    assert line.brokers["b2"].homes.home_of("old") == "b1"


def test_users_have_sessions_of_their_own() -> None:
    line = BrokerLine(2, "none", WITH_HOMES)
    for name in ("ann", "a/+/#", "x" * 60_000):
        Roamer(line, "b1", name).close()
        assert homes(line, name) == ["b1"] * 2
        assert homes(line, f"user\0{name}") == [""] * 2


class Wanderer(Client):
    """A client of MQTT 5 that connects anywhere, and goes where it is sent. `made` counts sessions that were new."""

    def __init__(self, name: str):
        super().__init__(name, "b0", V5)
        self.sent_to = ""
        self.visits: list[tuple[str, bool]] = []
        """The brokers that have served it, and whether they had its session."""

    def take(self, packet: object) -> list[object]:
        if not isinstance(packet, Connack):
            return []
        if packet.reason == ReasonCode.USE_ANOTHER_SERVER:
            assert packet.properties.server_reference is not None
            self.sent_to = packet.properties.server_reference.removeprefix("at ")
            return []
        self.is_ready, self.sent_to = True, ""
        self.visits.append((self.home, packet.session_present))
        return [Subscribe(1, (SubscriptionRequest("a/1", 1),))]


class HomeWorld(BrokerWorld):
    """With clients that wander while links and brokers fail."""

    def __init__(self, random: Random, scheme: str, broker: type[OverlayBroker] = OverlayBroker):
        super().__init__(random, scheme, settings=replace(SMALL, homes_max=100), broker=broker)
        self.wanderers = [Wanderer(f"w{number}") for number in range(4)]
        self.clients += self.wanderers

    def step(self, *, crashes: bool = True, cuts: bool = True) -> None:
        super().step(crashes=crashes, cuts=cuts)
        if self.random.random() < 0.3:
            self.wander(self.random.choice(self.wanderers), self.random.choice(self.plan.brokers))

    def wander(self, client: Wanderer, to: str) -> None:
        """The client leaves, maybe for ever, and connects to a broker, and then where that one sends it."""
        self.leave(client, is_over=self.random.random() < 0.1)
        for _ in range(2):
            machine: Machine = self.machines[to]
            if machine.core is None:
                return
            client.home = to
            client.connect(machine, self.now)
            self.turn(to)
            if not client.sent_to:
                return
            to = client.sent_to
            client.sent_to, client.connection = "", None

    def leave(self, client: Wanderer, *, is_over: bool = False) -> None:
        machine = self.machines[client.home]
        if client.connection is None or machine.core is None:
            return
        if is_over:
            client.send(machine, encode(Disconnect(0, Properties(session_expiry_s=0)), V5), self.now)
        machine.core.lost(client.connection, self.now)
        client.connection, client.is_ready = None, False
        self.turn(client.home)

    def reconnect(self) -> None:
        """Wanderers choose themselves where they connect."""
        clients = self.clients
        self.clients = [client for client in clients if not isinstance(client, Wanderer)]
        try:
            super().reconnect()
        finally:
            self.clients = clients

    def home_problems(self) -> list[str]:
        """To be asked when all is repaired: homes that brokers do not agree on, and homes without a session."""
        problems: list[str] = []
        brokers = {name: machine.broker for name, machine in self.machines.items() if machine.broker is not None}
        keys = {key: None for broker in brokers.values() for key in broker.core.sessions.by_key}
        for key in keys:
            known = {name: broker.homes.home_of(key) for name, broker in brokers.items() if broker.homes is not None}
            home = known["b0"]
            if len(set(known.values())) > 1:
                problems.append(f"{key} is at home at {known}")
            elif not home:
                problems.append(f"nobody knows where {key} is")
        for broker in brokers.values():
            assert broker.homes is not None
            for key, home in broker.homes.known().items():
                if key not in brokers[home].core.sessions.by_key:
                    problems.append(f"{broker.name} says that {key} is at home at {home}, which has no session of it")
        for wanderer in self.wanderers:
            serving = wanderer.visits[-1][0] if wanderer.visits and wanderer.connection is not None else ""
            if serving and brokers[serving].homes.home_of(wanderer.name) != serving:  # type: ignore[union-attr]
                problems.append(f"{wanderer.name} is connected to {serving}, and not at home there")
        return problems


def run_homes(seed: int, scheme: str, broker: type[OverlayBroker] = OverlayBroker) -> list[str]:
    world = HomeWorld(Random(f"homes {scheme} {seed}"), scheme, broker)
    for _ in range(200):
        world.step()
    world.heal()
    problems = world.problems(scheme) + world.home_problems()
    for wanderer in world.wanderers:  # wherever they ask, they find their session
        world.leave(wanderer)
        if any(wanderer.name in machine.core.sessions.by_key for machine in world.machines.values() if machine.core):
            world.now += 100.0
            world.wander(wanderer, world.random.choice(world.plan.brokers))
            if wanderer.visits[-1][1] is not True:
                problems.append(f"{wanderer.name} found no session at {wanderer.visits[-1][0]}")
        world.leave(wanderer, is_over=True)
    world.heal()
    return problems + world.home_problems()


@pytest.mark.parametrize("scheme", ["none", "buffering", "bypass-buffering"])
@pytest.mark.parametrize("seed", range(4))
def test_under_faults_all_brokers_agree_in_the_end_and_clients_find_their_sessions(scheme: str, seed: int) -> None:
    assert run_homes(seed, scheme) == []


class _EntersNothing(OverlayBroker):
    """Does not say that a client has connected."""

    def settle(self, now: float) -> None:
        if self._traffic.sessions:
            self._traffic.sessions.clear()
        super().settle(now)


class _ForgetsEnds(OverlayBroker):
    """Does not say that a session has ended."""

    def settle(self, now: float) -> None:
        known = self.core.sessions.by_key
        if self._traffic.sessions:
            self._traffic.sessions = {key: None for key in self._traffic.sessions if key in known}
        super().settle(now)


class _ComparesNothing(OverlayBroker):
    """Leaves the homes of others as they are after an outage."""

    def settle(self, now: float) -> None:
        self.node._maps = {plane: each for plane, each in self.node._maps.items() if not plane}
        super().settle(now)


@pytest.mark.parametrize("broken", [_EntersNothing, _ForgetsEnds, _ComparesNothing])
def test_a_broken_broker_is_found_out(broken: type[OverlayBroker]) -> None:
    assert any(run_homes(seed, "none", broken) for seed in range(8))
