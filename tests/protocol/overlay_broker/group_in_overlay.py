"""An overlay one of whose brokers is a group: replicas that die, lag and are cut off, and links that follow the leader.

The log is an order of the commands of all replicas; commands of one replica may overtake one another, come twice, or
get lost with their replica.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.protocol.overlay_broker.broker_world import SMALL, BrokerWorld, Client, Machine, Wire

from surecast.errors import PeerError
from surecast.protocol.broker import BrokerCore, BrokerSettings, Connection, Origin
from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import FrontEnd, GroupMachine, Item, Port
from surecast.protocol.group.commands import HEAD
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree
from surecast.protocol.overlay_broker import LinkConnection, OverlayBroker
from surecast.protocol.paxos import Context

SCHEMES = ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")


class Site:
    """One replica: its copy of the state, and the connections that it has."""

    def __init__(self, group: SimulatedGroup, number: int):
        self.group = group
        self.number = number
        self.incarnation = 0
        self.is_up = self.is_reached = True
        self.begin_anew()
        self.start()

    def begin_anew(self) -> None:
        """An empty copy: it goes through the whole log."""
        self.machine = self.group.make_machine(self.number)
        self.position = 0
        self.effects: dict[int, bytes] = {}

    def start(self) -> None:
        self.incarnation += 1
        self.front_end = FrontEnd(self.machine, self.incarnation << 20, self.group.settings, window=4)
        self.is_up = self.is_reached = True

    def advance(self, count: int) -> None:
        for time_us, command in self.group.log[self.position : self.position + count]:
            self.position += 1
            self.machine.execute(command, Context(self.position, time_us))
            self.effects[self.position] = self.machine.effects(self.position)


class SimulatedGroup(Machine):
    """What the world takes for a machine: its core and its broker are those of the replica that has applied most."""

    def __init__(self, random: Random, make_machine: Any, now: float):
        super().__init__()
        self.random = random
        self.settings = BrokerSettings()
        self.make_machine = make_machine
        self.log: list[tuple[int, bytes]] = []
        self.waiting: list[bytes] = []
        self.sites_of: dict[Connection, Site] = {}
        self.sites = [Site(self, number) for number in (1, 2, 3)]
        self.leader = self.sites[0]
        self.leader.front_end.take_links()
        self.run(now)

    @property
    def serving(self) -> list[Site]:
        """The replicas that run and reach each other."""
        return [site for site in self.sites if site.is_up and site.is_reached]

    @property
    def has_majority(self) -> bool:
        return len(self.serving) > 1 and self.leader in self.serving

    @property
    def latest(self) -> Site:
        return max(self.sites, key=lambda site: site.position)

    def run(self, now: float, *, is_whole: bool = False) -> None:
        """Commands come into the log, and replicas apply some of it."""
        if not self.has_majority:
            return
        for site in self.serving:
            self.waiting += [b"".join(pieces) for _, pieces in site.front_end.take(now)]
        self.random.shuffle(self.waiting)
        while self.waiting and (is_whole or self.random.random() < 0.9):
            command = self.waiting.pop()
            self.log.append((int(now * 1e6), command))
            if self.random.random() < 0.03 and not is_whole:
                self.waiting.append(command)
        for site in self.serving:
            is_behind = not is_whole and self.random.random() < 0.2
            site.advance(self.random.randrange(4) if is_behind else len(self.log))

    # The face of a core

    def open(self, origin: Origin, now: float) -> Connection:
        site = self.random.choice([site for site in self.sites if site.is_up])
        connection = site.front_end.open(origin, now)
        self.sites_of[connection] = site
        return connection

    def receive(self, connection: Connection, data: bytes, now: float) -> None:
        site = self.sites_of[connection]
        if site.is_up:
            site.front_end.receive(connection, data, now)

    @property
    def retained(self) -> Any:
        return self.latest.machine.broker.retained


class GroupWorld(BrokerWorld):
    """`b0` is a group; the others are brokers of their own. `machine` is the class of its replicas."""

    GROUP = "b0"

    def __init__(
        self,
        random: Random,
        scheme: str,
        *,
        size: int = 0,
        machine: type[GroupMachine] = GroupMachine,
    ):
        self.machine_class = machine
        self.wires_at: dict[tuple[str, str], Site] = {}
        self.kills = 0
        super().__init__(random, scheme, size=size or random.randrange(2, 5))

    def make_machine(self, number: int) -> GroupMachine:
        def make_overlay(core: BrokerCore, now: float) -> OverlayBroker:
            return OverlayBroker(self.GROUP, self.plan, core, now=now, settings=SMALL)

        return self.machine_class(
            number,
            lambda authorise: BrokerCore(
                BrokerSettings(), authorise=authorise, journal=NoJournal(), watches=False, traffic=LocalTraffic()
            ),
            make_overlay=make_overlay,
        )

    @property
    def group(self) -> SimulatedGroup:
        group = self.machines[self.GROUP]
        assert isinstance(group, SimulatedGroup)
        return group

    # The group in place of a broker

    def start(self, name: str) -> None:
        if name != self.GROUP:
            super().start(name)
            return
        self.machines[name] = SimulatedGroup(self.random, self.make_machine, self.now)
        self.show()

    def show(self) -> None:
        overlay = self.group.latest.machine.overlay
        if overlay is not None:  # else all of them begin anew, and go through the log
            self.group.broker = overlay.broker
        is_up = any(site.is_up for site in self.group.sites)
        self.group.core = self.group if is_up else None  # type: ignore[assignment]

    def turn(self, name: str, *, is_cut_short: bool = False) -> None:
        if name != self.GROUP:
            super().turn(name, is_cut_short=is_cut_short)
            return
        if is_cut_short:
            return
        group, is_whole = self.group, self.is_healing
        while True:
            group.run(self.now, is_whole=is_whole)
            self.show()
            self._write_links()
            answers: list[tuple[Client, bytes]] = []
            for client in self.clients:
                if client.home == name and client.connection is not None and client.connection.out:
                    data = b"".join(client.connection.out)
                    client.connection.out.clear()
                    answers += [(client, answer) for answer in client.read(data)]
            for site in group.sites:
                site.machine.broker.dirty.clear()
                site.front_end.gate.dirty.clear()
                for client in self.clients:
                    if client.connection in site.front_end.closing:
                        client.connection, client.is_ready = None, False
                site.front_end.closing.clear()
            is_quiet = not any(site.front_end.is_ready for site in group.serving) and not group.waiting
            if not answers and (is_quiet or not is_whole or not group.has_majority):
                return
            for client, answer in answers:
                if client.connection is not None:
                    client.send(group, answer, self.now)

    is_healing = False

    def _write_links(self) -> None:
        for pair in [pair for pair in self.wires if self.GROUP in pair]:
            wire = self.wires.get(pair)
            if wire is None:
                continue
            other = pair[1] if pair[0] == self.GROUP else pair[0]
            try:
                wire.to[other] += wire.ends[self.GROUP].output()
            except PeerError:
                self.cut(*pair)

    def crash(self, name: str) -> None:
        if name != self.GROUP:
            super().crash(name)

    def join(self, a: str, b: str) -> None:
        if self.GROUP not in (a, b):
            super().join(a, b)
            return
        other = b if a == self.GROUP else a
        broker, group = self.machines[other].broker, self.group
        if broker is None or (a, b) in self.wires or not group.leader.is_up:
            return
        link: Any = group.leader.front_end.open_link(other, calls=a == self.GROUP)
        ends = {other: LinkConnection(broker, b) if a == other else LinkConnection(broker), self.GROUP: link}
        self.wires[a, b] = Wire(ends, {a: bytearray(), b: bytearray()})
        self.wires_at[a, b] = group.leader
        self.turn(a)

    def may_end(self, name: str) -> bool:
        return name == self.GROUP or super().may_end(name)

    def step(self, *, crashes: bool = True, cuts: bool = True) -> None:
        super().step(crashes=crashes, cuts=cuts)
        if crashes and self.random.random() < 0.1:
            self.strike_group()

    def strike(self, name: str) -> None:
        if name == self.GROUP:
            self.strike_group()
        else:
            super().strike(name)

    def strike_group(self) -> None:
        """A replica dies, is cut off, comes back, or another one leads."""
        group, random = self.group, self.random
        site = random.choice([*group.sites, group.leader, group.leader])
        draw = random.random()
        if not site.is_up:
            self.revive(site)
        elif not site.is_reached:
            site.is_reached = True
        elif draw < 0.6:
            self.kill(site)
        elif draw < 0.8:
            site.is_reached = False
        self.show()
        if group.leader not in group.serving or draw > 0.9:
            self.elect()
        self.turn(self.GROUP)

    def kill(self, site: Site) -> None:
        """A replica dies; what it had sent may still come into the log, or not."""
        self.kills += 1
        group = self.group
        site.is_up = False
        group.waiting = [
            command
            for command in group.waiting
            if HEAD.unpack_from(command)[0] != site.number or self.random.random() < 0.5
        ]
        for client in self.clients:
            if (
                client.home == self.GROUP
                and client.connection is not None
                and group.sites_of[client.connection] is site
            ):
                client.connection, client.is_ready = None, False
        for pair in [pair for pair, at in self.wires_at.items() if at is site and pair in self.wires]:
            self.cut(*pair, only=pair[1] if pair[0] == self.GROUP else pair[0])
        site.machine.port = Port()  # nobody listens while it is down

    def revive(self, site: Site) -> None:
        """A replica comes back: from its own state, from the whole log, or with a snapshot of another."""
        draw = self.random.random()
        if draw < 0.3:
            site.begin_anew()
        elif draw < 0.7:
            other = self.group.latest
            site.begin_anew()
            site.machine.restore(other.machine.snapshot())
            site.position = other.position
        site.start()
        self.show()

    def elect(self) -> None:
        """Another replica leads; the former one ends its links, if it can."""
        group, before = self.group, self.group.leader
        if len(group.serving) < 2:
            return
        group.leader = self.random.choice([site for site in group.serving if site is not before] or group.serving)
        group.leader.front_end.take_links()
        for pair in [pair for pair, at in self.wires_at.items() if at is before and pair in self.wires]:
            self.cut(*pair)

    def tick(self) -> None:
        group = self.machines[self.GROUP]
        del self.machines[self.GROUP]
        super().tick()
        self.machines[self.GROUP] = group
        for site in self.group.serving:
            site.front_end.tick(self.now)
        if self.group.has_majority and self.group.leader.machine.next_timer() <= self.now:
            self.group.leader.front_end.control(Item.TICK)
        self.turn(self.GROUP)

    def heal(self) -> None:
        if isinstance(self.machines[self.GROUP], SimulatedGroup):
            self.is_healing = True
            for site in self.group.sites:
                if not site.is_up:
                    self.revive(site)
                site.is_reached = True
            if self.group.leader not in self.group.serving:
                self.elect()
        super().heal()
        self.is_healing = False

    # What must hold

    def diverged(self) -> list[str]:
        """Replicas that made something else of the log than others."""
        problems = []
        effects: dict[int, tuple[int, bytes]] = {}
        for site in self.group.sites:
            for position, seen in site.effects.items():
                number, other = effects.setdefault(position, (site.number, seen))
                if other != seen:
                    problems.append(f"replica {site.number} differs from {number} at {position}")
                    break
        return problems

    def unequal(self) -> list[str]:
        """Replicas whose whole state is another one; to be asked when all have applied the whole log."""
        group = self.group
        replayed = Site(group, 9)
        replayed.advance(len(group.log))
        states = {site.number: site.machine.snapshot() for site in [*group.sites, replayed]}
        return [
            f"the state of replica {number} is another one" for number, state in states.items() if state != states[1]
        ]


class MiddleGroupWorld(GroupWorld):
    """The group is in the middle: all that goes from one broker to another passes it."""

    def _plan(self, size: int, scheme: str) -> OverlayPlan:
        names = tuple(f"b{n}" for n in range(max(3, size)))
        links = tuple((self.GROUP, name) for name in names[1:])
        return OverlayPlan(names, links, (Tree(links, scheme, refresh=self.REFRESH),), (("", (0,)),))


class EndToEndGroupWorld(GroupWorld):
    """Demand is refreshed from end to end."""

    REFRESH = "end-to-end"


def seed_problems(
    seed: str, scheme: str, kind: type[GroupWorld] = GroupWorld, *, machine: type[GroupMachine] = GroupMachine
) -> list[str]:
    """Returns what goes wrong in the world of a seed."""
    return problems_of(kind(Random(seed), scheme, machine=machine), scheme)


def run_group_seed(number: int, steps: int, kind: type[GroupWorld]) -> tuple[str, list[str], GroupWorld]:
    """Returns what a numbered seed is, what goes wrong in its world, and the world."""
    scheme = SCHEMES[number % len(SCHEMES)]
    world = kind(Random(f"{kind.__name__} {number}"), scheme)
    what = f"seed {number}: {scheme}, {len(world.plan.brokers)} brokers, group {world.GROUP}, {steps} steps"
    return what, problems_of(world, scheme, steps), world


def problems_of(world: GroupWorld, scheme: str, steps: int = 250) -> list[str]:
    """Returns what goes wrong in a world: first under faults (safety), then when all is repaired (liveness)."""
    for _ in range(steps):
        world.step()
        if problems := world.problems(scheme) + world.diverged():
            return problems
    world.heal()
    problems = world.problems(scheme) + world.differing() + world.diverged() + world.unequal()
    if not any(publisher.acknowledged for publisher in world.publishers):
        problems.append("nothing was acknowledged, so nothing was tried")
    return problems + (world.missing() if "buffering" in scheme else [])
