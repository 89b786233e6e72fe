"""Kills, stops and starts the replicas of a real group under load, and checks what it promises.

    python tools/replica_kills.py --seconds 60 --seed 1 [--replicas 3] [--variant multi]

Replicas of the example store run as processes. Clients increment counters, and set a register where it has the value
they read. Meanwhile the leader or another replica is killed (SIGKILL) and started again, or stopped (SIGSTOP) and let
go on. What must hold:

- every increment that was answered is counted once, and none twice: answers of one counter are all different, and at
  the end it has as many as were answered, or up to as many more as got no answer;
- an increment that began after another was answered has a higher count (linearizability of counters);
- the successful changes of the register form one chain, each from the value that the one before it set;
- at the end all replicas are at the same instance, with the same running hash and the same state.

All choices come from the seed, but not the timing of real processes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from replica_group import Group
from surecast.broker.replica import new_loop
from surecast.client.client_errors import ClientError
from surecast.client.replicated import GroupConnection, dial
from surecast.protocol.paxos.example_store import cas, get, incr, put

COUNTERS = 3


@dataclass
class History:
    """The history of operations that clients saw."""

    increments: dict[int, list[tuple[float, float, int]]] = field(default_factory=dict)
    unanswered: dict[int, int] = field(default_factory=dict)
    changes: list[tuple[bytes, bytes]] = field(default_factory=list)
    unknown_changes: set[bytes] = field(default_factory=set)
    answered_s: list[float] = field(default_factory=list)

    def check(self, finals: dict[int, int], register: bytes) -> None:
        """Raises AssertionError where a promise is broken."""
        for counter, seen in self.increments.items():
            counts = [count for _, _, count in seen]
            assert len(set(counts)) == len(counts), f"counter {counter}: a count was answered twice"
            unknown = self.unanswered.get(counter, 0)
            assert len(counts) <= finals[counter] <= len(counts) + unknown, (
                f"counter {counter}: {finals[counter]} after {len(counts)} answered and {unknown} unanswered increments"
            )
            latest = 0
            ends = sorted((end, count) for _, end, count in seen)
            at = 0
            for begin, _, count in sorted(seen):
                while at < len(ends) and ends[at][0] < begin:
                    latest = max(latest, ends[at][1])
                    at += 1
                assert count > latest, f"counter {counter}: {count} was answered to one that began after {latest}"
        followed = dict(self.changes)
        assert len(followed) == len(self.changes), "register: one value was changed twice"
        value, left = b"0", len(self.changes)
        while value in followed and left:
            value, left = followed[value], left - 1
        if not self.unknown_changes:
            assert not left, f"register: {left} changes are not in the chain"
            assert value == register, f"register: it has {register!r}, and the last change was to {value!r}"


async def increment(connection: GroupConnection, history: History, draw: random.Random, over: asyncio.Event) -> None:
    """Increments counters until the end."""
    while not over.is_set():
        counter = draw.randrange(COUNTERS)
        begin = time.monotonic()
        try:
            reply = await connection.send_request(incr(b"counter %d" % counter))
        except ClientError:
            history.unanswered[counter] = history.unanswered.get(counter, 0) + 1
            continue
        end = time.monotonic()
        assert reply[:1] == b"+", reply
        history.increments.setdefault(counter, []).append((begin, end, int(reply[1:])))
        history.answered_s.append(end)


async def change(connection: GroupConnection, history: History, name: bytes, over: asyncio.Event) -> None:
    """Reads the register and sets it where it still has that value; reads back what only this client writes."""
    count = 0
    own = b"own " + name
    while not over.is_set():
        count += 1
        new = b"%s-%d" % (name, count)
        with contextlib.suppress(ClientError):
            expected = (await connection.send_request(get(b"register")))[1:]
            history.unknown_changes.add(new)
            reply = await connection.send_request(cas(b"register", expected, new))
            history.unknown_changes.discard(new)
            if reply == b"+":
                history.changes.append((expected, new))
            assert await connection.send_request(put(own, new)) == b"+"
            assert await connection.send_request(get(own)) == b"+" + new, "a client does not read what it wrote"


async def trouble(group: Group, options: argparse.Namespace, over: asyncio.Event, events: list[str]) -> None:
    """Kills and stops replicas, one at a time, for the time given and until the leader was killed often enough."""
    draw, interval_s, kills = random.Random(options.seed), options.interval, 0
    until_s = time.monotonic() + options.seconds
    while time.monotonic() < until_s or kills < options.leader_kills:
        await asyncio.sleep(interval_s * draw.uniform(0.7, 1.3))
        leader = await group.wait_leader()
        which = leader if draw.random() < 0.6 else draw.choice(group.founders)
        begin = time.monotonic()
        if draw.random() < 0.75:
            # In a thread: waiting for its end here would stop the clients too, and hide part of the gap.
            await asyncio.to_thread(group.signal, which, signal.SIGKILL)
            kills += which == leader
            events.append(f"{begin:.3f} killed {which}{' (the leader)' if which == leader else ''}")
            await asyncio.sleep(draw.uniform(0.0, interval_s))
            group.start([which])
        else:
            group.signal(which, signal.SIGSTOP)
            events.append(f"{begin:.3f} stopped {which}{' (the leader)' if which == leader else ''}")
            await asyncio.sleep(draw.uniform(0.2, interval_s))
            group.signal(which, signal.SIGCONT)
        while len(await group.status()) < len(group.founders):
            await asyncio.sleep(0.05)
    over.set()


def gap_after(answered_s: list[float], at_s: float) -> float:
    """The longest time without any answer that began in the second after a moment."""
    around = [one for one in sorted(answered_s) if at_s - 0.1 <= one]
    gaps = [b - a for a, b in pairwise(around) if a <= at_s + 1.0]
    return max(gaps, default=0.0)


async def run(options: argparse.Namespace, folder: Path) -> None:
    """One run."""
    paxos = {"variant": options.variant, "snapshot_every": 400, "log_keep": 100, "snapshot_at_once": "1B"}
    group = Group(folder, options.replicas, sync=options.sync, paxos=paxos)
    history, events = History(), list[str]()
    try:
        group.start(group.founders)
        await group.wait_leader()
        turned = [group.addresses[at:] + group.addresses[:at] for at in range(len(group.addresses))]
        connections = [await dial(turned[at % len(turned)], group="test") for at in range(options.clients)]
        assert await connections[0].send_request(put(b"register", b"0")) == b"+"
        over = asyncio.Event()
        tasks = [trouble(group, options, over, events)]
        for at, connection in enumerate(connections):
            tasks += [increment(connection, history, random.Random(f"{options.seed} {at} {n}"), over) for n in range(8)]
        tasks += [change(one, history, b"c%d" % at, over) for at, one in enumerate(connections[:3])]
        await asyncio.gather(*tasks)
        replies = [await connections[0].send_request(get(b"counter %d" % one)) for one in range(COUNTERS)]
        register = (await connections[0].send_request(get(b"register")))[1:]
        for connection in connections:
            await connection.close()
        final = await group.wait_equal(group.founders)
        history.check({one: int(reply[1:]) for one, reply in enumerate(replies)}, register)
    except BaseException:
        print(group.log()[-6000:])
        raise
    finally:
        group.end()
    for event in events:
        gap = gap_after(history.answered_s, float(event.split()[0]))
        print(f"{event.partition(' ')[2]}: {gap * 1000:.0f} ms without an answer")
    answered = sum(map(len, history.increments.values()))
    print(f"{answered} increments answered, {sum(history.unanswered.values())} not; {len(history.changes)} changes")
    print(f"all replicas at instance {final[1]['applied']}, hash {final[1]['hash'][:16]}")
    print("all promises kept")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--interval", type=float, default=1.5, help="seconds between two troubles, about")
    parser.add_argument("--leader-kills", type=int, default=3, help="go on until the leader was killed so often")
    parser.add_argument("--variant", choices=("multi", "batch", "fast"), default="multi")
    parser.add_argument("--sync", choices=("majority", "none"), default="majority")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run(options, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
