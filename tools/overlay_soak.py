"""Lets faults loose on an overlay with a group in the middle: real processes, and real partitions where it may.

    python tools/overlay_soak.py --seconds 60 --seed 1 [--namespaces] [--scheme bypass-buffering]

Three brokers in a row, of which the middle one is a group of three replicas, with buffering. Publishers (QoS 1, each
event again until it is acknowledged) and subscribers with lasting sessions are at all three. Processes are killed or
frozen, one or two replicas of the group among them, and started again or let go on. With `--namespaces` (root only)
each process is in a network namespace of its own with an address of its own, and links have certificates. Then there
are partitions besides: the leader is cut off from all, from its replicas only, or from a neighbour only. Packets to
somebody who is cut off go nowhere; nobody is told. What must hold when all is repaired:

- all links are up and the group has a leader, within a minute;
- every event that was acknowledged is with each subscriber;
- the accounts of all brokers balance, and no event was dropped on a link.

With `--scheme none` events are lost, and it says so. All choices come from the seed, but not the timing of real
processes. The exit code is 1 if a promise was broken, and 3
where namespaces cannot be made.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml

from surecast.broker.admin_client import AdminError
from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.measurement.load_clients import KeenLink, Received, Receiver, pack_event
from surecast.protocol.mqtt import NO_PROPERTIES
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

BROKERS = ("b1", "b2", "b3")
GROUP = "b2"
LINKS = (("b1", "b2"), ("b2", "b3"))
EVENTS_PER_S = 25.0
PATIENCE_S = 20.0
HEAL_S = 60.0
NAMESPACES_MISSING = 3
NOWHERE = "02:00:00:00:00:ff"
"""A hardware address that nobody has: what is sent there is lost, and the sender is not told."""


def ip(*arguments: str, within: str = "") -> None:
    """Runs `ip`, in a namespace if one is named."""
    prefix = ["ip", "-n", within] if within else ["ip"]
    subprocess.run([*prefix, *arguments], check=True, capture_output=True, text=True, timeout=10)


class Namespaces:
    """A network namespace for each process, joined by a bridge in one more, from which clients connect."""

    def __init__(self, processes: list[str]):
        mark = os.getpid()
        self.hub = f"sc{mark}hub"
        self._of = {process: f"sc{mark}n{number}" for number, process in enumerate(processes)}
        self.address = {process: f"10.77.0.{number + 1}" for number, process in enumerate(processes)}
        self._cut: set[tuple[str, str]] = set()

    def make(self) -> None:
        """Makes them; CalledProcessError or OSError where that may not be."""
        ip("netns", "add", self.hub)
        ip("link", "add", "bridge", "type", "bridge", within=self.hub)
        ip("addr", "add", "10.77.0.254/24", "dev", "bridge", within=self.hub)
        for number, (process, name) in enumerate(self._of.items()):
            ip("netns", "add", name)
            ip("link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", name, within=self.hub)
            ip("link", "set", f"port{number}", "master", "bridge", "up", within=self.hub)
            ip("addr", "add", f"{self.address[process]}/24", "dev", "eth0", within=name)
            for device in ("lo", "eth0"):
                ip("link", "set", device, "up", within=name)
        for device in ("lo", "bridge"):
            ip("link", "set", device, "up", within=self.hub)

    def remove(self) -> None:
        """Removes them, and all that is in them."""
        for name in (*self._of.values(), self.hub):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=10)

    def command(self, process: str) -> list[str]:
        """Returns what begins a command in the namespace of a process."""
        return ["ip", "netns", "exec", self._of[process]]

    def cut(self, a: str, b: str) -> None:
        """Has nothing that two processes send each other arrive."""
        for one, other in ((a, b), (b, a)):
            where = ("neigh", "replace", self.address[other], "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")
            ip(*where, within=self._of[one])
            self._cut.add((one, other))

    def join(self) -> None:
        """Ends all partitions."""
        for one, other in self._cut:
            ip("neigh", "delete", self.address[other], "dev", "eth0", within=self._of[one])
        self._cut.clear()


class Overlay(LocalOverlay):
    """The overlay of the soak, each process in its namespace if there are any."""

    namespaces: Namespaces | None = None

    def arguments(self, name: str) -> list[str]:
        """Returns the arguments of a process; in a namespace its command is one of them."""
        own = super().arguments(name)
        return (
            own if self.namespaces is None else [*self.namespaces.command(name), sys.executable, "-m", "surecast", *own]
        )


def certificates(folder: Path) -> Path:
    """Makes an authority and a certificate for each broker."""
    folder.mkdir()
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder, timeout=30)

    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
    for name in BROKERS:
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-days", "2", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-out", f"{name}.pem")  # fmt: skip
    return folder


def place(path: Path, addresses: dict[str, str]) -> None:
    """Gives the processes of an overlay's file the addresses of their namespaces."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    for broker in data["brokers"]:
        for entry in broker.get("replicas", [broker]):
            host = addresses[f"{broker['name']}-{entry['id']}" if "id" in entry else broker["name"]]
            for field in ("peer", "link"):
                if field in entry:
                    entry[field] = f"{host}:{entry[field].rpartition(':')[2]}"
            for listener in entry["mqtt"]:
                listener["host"] = host
    path.write_text(yaml.safe_dump(data), encoding="utf-8")


def begin(folder: Path, namespaces: Namespaces | None, scheme: str) -> Overlay:
    """Starts the overlay and waits until it is whole."""
    path = folder / "overlay.yaml"
    plan = OverlayPlan(BROKERS, LINKS, (Tree(LINKS, scheme),))
    options = {"durability": "os", "gates": True, "security": {"allow_anonymous_remote": True}}
    trust = certificates(folder / "certificates") if namespaces is not None else None
    write_overlay(path, "soak", plan, options=options, groups={GROUP: 3}, certificates=trust)
    if namespaces is not None:
        place(path, namespaces.address)
    overlay = Overlay(path)
    if namespaces is not None:
        overlay.namespaces, overlay.command = namespaces, []
    try:
        overlay.start()
        overlay.wait_ready(HEAL_S)
    except BaseException:
        overlay.close()
        raise
    return overlay


class Troubles:
    """The faults, one after the other, each with its repair."""

    def __init__(self, overlay: Overlay, draw: random.Random):
        self.overlay, self.draw = overlay, draw
        self.counts: Counter[str] = Counter()
        kinds: list[Callable[[], str]] = [self._kill, self._kill, self._kill_group, self._freeze]
        self._kinds = kinds if overlay.namespaces is None else [*kinds, self._cut_off, self._cut_off, self._cut_off]
        self._frozen: list[str] = []

    def strike(self) -> None:
        """Something goes wrong."""
        self.counts[self.draw.choice(self._kinds)()] += 1

    def repair(self) -> None:
        """All is right again, as far as this machine can do it."""
        if self.overlay.namespaces is not None:
            self.overlay.namespaces.join()
        for process in self._frozen:
            self.overlay.processes[process].send_signal(signal.SIGCONT)
        self._frozen.clear()
        self.overlay.start()

    def _leader(self) -> str:
        return self.overlay.leader(GROUP) or f"{GROUP}-1"

    def _victim(self) -> str:
        return self._leader() if self.draw.random() < 0.6 else self.draw.choice(self.overlay.names)

    def _kill(self) -> str:
        victim = self._victim()
        self.overlay.kill(victim)
        return "replica killed" if victim.startswith(GROUP) else "broker killed"

    def _kill_group(self) -> str:
        for victim in self.draw.sample(self.overlay.processes_of(GROUP), 2):
            self.overlay.kill(victim)
        return "majority killed"

    def _freeze(self) -> str:
        victim = self._victim()
        self.overlay.processes[victim].send_signal(signal.SIGSTOP)
        self._frozen.append(victim)
        return "frozen"

    def _cut_off(self) -> str:
        assert self.overlay.namespaces is not None
        leader = self._leader()
        replicas = [name for name in self.overlay.processes_of(GROUP) if name != leader]
        neighbours = [name for name in BROKERS if name != GROUP]
        whom, what = self.draw.choice([
            ([*replicas, *neighbours], "leader cut off from all"),
            (replicas, "leader cut off from its replicas"),
            ([self.draw.choice(neighbours)], "leader cut off from a neighbour"),
        ])  # fmt: skip
        for other in whom:
            self.overlay.namespaces.cut(leader, other)
        return what


class Clients:
    """Publishers and subscribers at all brokers. `acknowledged` are the events that a broker has taken over."""

    def __init__(self, overlay: Overlay):
        addresses = {name: overlay.file.mqtt_addresses(name) for name in BROKERS}
        self.publishers = {name: KeenLink(addresses[name], f"publisher {name}", PATIENCE_S) for name in BROKERS}
        nothing = np.zeros(0)
        self.receivers = [
            Receiver(Received(f"subscriber {name}"), ("t/#",), addresses[name], None, np.random.default_rng(1), 1.0,
                     nothing, nothing)
            for name in BROKERS
        ]  # fmt: skip
        self.sent = 0
        self.acknowledged: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def _spawn(self, work: object) -> None:
        task = asyncio.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)

    async def connect(self) -> None:
        """Opens all sessions."""
        for receiver in self.receivers:
            await receiver.switch(True)
            self._spawn(receiver.run())
        await asyncio.gather(*(receiver.is_subscribed.wait() for receiver in self.receivers))
        await asyncio.gather(*(publisher.connect() for publisher in self.publishers.values()))

    def publish(self) -> None:
        """Publishes one event at each broker."""
        for name in BROKERS:
            self._spawn(self._publish(name, self.sent))
            self.sent += 1

    async def _publish(self, name: str, number: int) -> None:
        if await self.publishers[name].publish(f"t/{name}", pack_event(number), NO_PROPERTIES):
            self.acknowledged.add(number)

    def missing(self) -> dict[str, set[int]]:
        """Returns what was acknowledged and is not with a subscriber."""
        return {each.received.client_id: self.acknowledged - each.received.first.keys() for each in self.receivers}

    async def close(self) -> None:
        """Ends all of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(publisher.close() for publisher in self.publishers.values()), return_exceptions=True)


def knows_all(overlay: Overlay) -> bool:
    """Returns whether each end of the overlay knows what is wanted at the others."""
    try:
        counts = [sum(route["count"] for route in overlay.ask(name, "/routes")["routes"]) for name in BROKERS]
    except AdminError:
        return False
    return counts == [1, 2, 1]


async def soak(overlay: Overlay, seconds: float, draw: random.Random) -> tuple[list[str], str]:
    """Runs clients and faults; returns what was broken, and what happened in words."""
    clients, troubles = Clients(overlay), Troubles(overlay, draw)
    try:
        await clients.connect()
        while not await asyncio.to_thread(knows_all, overlay):
            await asyncio.sleep(0.05)
        end, next_s = time.monotonic() + seconds, time.monotonic() + 1.0
        is_broken = False
        while (now := time.monotonic()) < end:
            if now >= next_s:
                await asyncio.to_thread(troubles.repair if is_broken else troubles.strike)
                is_broken = not is_broken
                next_s = now + draw.uniform(1.0, 3.0)
            clients.publish()
            await asyncio.sleep(len(BROKERS) / EVENTS_PER_S)
        await asyncio.to_thread(troubles.repair)
        problems = await _judge(overlay, clients)
    finally:
        await clients.close()
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(troubles.counts.items()))
    doubled = sum(receiver.received.duplicates for receiver in clients.receivers)
    return problems, (
        f"{clients.sent} events, {len(clients.acknowledged)} acknowledged, {doubled} came again at QoS 1; {faults}"
    )


async def _judge(overlay: Overlay, clients: Clients) -> list[str]:
    """Waits for what must become true after the repair; returns what did not."""
    until = time.monotonic() + HEAL_S
    await asyncio.to_thread(overlay.wait_ready, HEAL_S)
    await asyncio.sleep(PATIENCE_S / 10)
    problems = []
    while any(clients.missing().values()) and time.monotonic() < until:
        await asyncio.sleep(0.1)
    for who, numbers in clients.missing().items():
        if numbers:
            problems.append(f"{who}: {len(numbers)} acknowledged events are missing, such as {sorted(numbers)[:5]}")
    for name in BROKERS:
        answer = await asyncio.to_thread(overlay.ask, name, "/accounts")
        problems += [f"accounts of {name}: {each}" for each in answer["problems"]]
        problems += [f"{name} has dropped events for {hop['neighbour']}: {hop['dropped']}" for hop in answer["hops"]
                     if hop["dropped"]]  # fmt: skip
    if not clients.acknowledged:
        problems.append("nothing was acknowledged, so nothing was tried")
    return problems


def main() -> int:
    """Runs the soak; 0 if all promises were kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="time of faults (60)")
    parser.add_argument("--seed", type=int, default=1, help="what goes wrong when (1)")
    parser.add_argument("--namespaces", action="store_true", help="each process in a network namespace; needs root")
    parser.add_argument("--scheme", default="buffering", help="the scheme of fault tolerance (buffering)")
    options = parser.parse_args()
    processes = ["b1", *(f"{GROUP}-{number}" for number in (1, 2, 3)), "b3"]
    namespaces = Namespaces(processes) if options.namespaces else None
    try:
        if namespaces is not None:
            namespaces.make()
            enter(namespaces.hub)
        with tempfile.TemporaryDirectory(prefix="overlay-soak-") as folder:
            overlay = begin(Path(folder), namespaces, options.scheme)
            try:
                problems, words = asyncio.run(soak(overlay, options.seconds, random.Random(options.seed)))
            finally:
                for process in overlay.processes.values():
                    if process.poll() is None:
                        process.send_signal(signal.SIGCONT)
                overlay.close()
    except (subprocess.CalledProcessError, PermissionError, FileNotFoundError) as error:
        if namespaces is None:
            raise
        print(f"no network namespaces here: {getattr(error, 'stderr', None) or error}".strip())
        return NAMESPACES_MISSING
    finally:
        if namespaces is not None:
            namespaces.remove()
    for problem in problems:
        print(f"BROKEN {problem}")
    print(f"seed {options.seed}: {'broken' if problems else 'all kept'}: {words}")
    return 1 if problems else 0


def enter(name: str) -> None:
    """Has all sockets that this process makes from now on be in a namespace."""
    import ctypes

    new_network = 0x40000000
    with Path(f"/run/netns/{name}").open("rb") as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), new_network):
            raise PermissionError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main())
