"""A group in trouble: without a majority, with a stopped replica, with a lost disk. One group goes through it all."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.broker.group.raw import Raw
from tests.patience import PATIENCE_S

from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.replica.administer import ask_status
from surecast.broker.replica.standing import standings
from surecast.client.group_client import GroupClient
from surecast.protocol.mqtt import V5, V311, Connack, Disconnect, Puback, Publish, ReasonCode

Run = Callable[..., Any]
SURECAST = Path(sys.executable).parent / "surecast"
PEER_QUEUE = 2 << 20


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGroup]:
    """A group with little patience and small queues."""
    options = {
        "sync": "none",
        "patience": "1s",
        "peer_queue": "2MiB",
        "paxos": {"snapshot_every": 100, "log_keep": 50},
    }
    with LocalGroup(write_group(tmp_path_factory.mktemp("trouble"), 3, options=options)) as group:
        group.start()
        group.wait_ready(PATIENCE_S)
        yield group


async def statuses(group: LocalGroup) -> dict[int, dict[str, Any]]:
    return {one["replica"]: one for one in await ask_status(group.spec) if "error" not in one}


async def leader_of(group: LocalGroup) -> int:
    while True:
        for number, one in (await statuses(group)).items():
            if one["leads"]:
                return number
        await asyncio.sleep(0.05)


async def equal(group: LocalGroup, *numbers: int) -> None:
    """Waits until replicas have applied the same; those that applied equally much must have."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = {number: one for number, one in (await statuses(group)).items() if number in numbers}
        states = {(one["applied"], one["hash"]) for one in found.values()}
        assert len(states) == len({applied for applied, _ in states}), f"different logs: {states}"
        if len(found) == len(numbers) and len(states) == 1 and all(one["voting"] for one in found.values()):
            return
        assert time.monotonic() < until, f"not equal: {found}"
        await asyncio.sleep(0.1)


def test_without_a_majority_nothing_is_acknowledged_and_clients_are_sent_away(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        left, *gone = group.numbers
        address = group.addresses[0]
        async with await Raw.open(address) as new, await Raw.open(address, V311) as old:
            await new.connect("new")
            await old.connect("old")
            for number in gone:
                group.kill(number)
            for client in (new, old):
                client.send(Publish("t", b"unheard", 1, packet_id=1))
            goodbye = await new.rest()
            [disconnect] = [packet for packet in goodbye if isinstance(packet, Disconnect)]
            assert disconnect.reason is ReasonCode.USE_ANOTHER_SERVER
            reference = disconnect.properties.server_reference
            assert reference is not None
            assert set(reference.split()) == {group.addresses[number - 1] for number in gone}
            assert not [packet for packet in [*goodbye, *await old.rest()] if isinstance(packet, Puback)]
        for version in (V5, V311):
            async with await Raw.open(address, version) as late:
                assert (await late.connect("late")).reason is ReasonCode.SERVER_UNAVAILABLE
        assert group.processes[left].poll() is None
        group.start(*gone)
        # The same client comes in as soon as there is a majority again, by itself.
        async with GroupClient(group.addresses, client_id="new", request_s=2.0) as again:
            await again.publish("t", b"heard", qos=2)
        await equal(group, *group.numbers)

    run(main)


def test_a_connection_refused_for_want_of_a_majority_leaves_nothing_behind(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        async with await Raw.open(group.addresses[0]) as client:
            connack: Connack = await client.connect("late", clean_start=False)
            assert not connack.session_present

    run(main)


def memory_bytes(group: LocalGroup, number: int) -> int:
    text = Path(f"/proc/{group.processes[number].pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


def test_a_stopped_follower_costs_bounded_memory_and_catches_up(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        leader = await leader_of(group)
        follower = next(number for number in group.numbers if number != leader)
        other = next(number for number in group.numbers if number not in (leader, follower))
        async with GroupClient([group.addresses[other - 1]], request_s=15.0) as client:
            await client.publish("t", bytes(20_000))
            before = memory_bytes(group, leader)
            group.processes[follower].send_signal(signal.SIGSTOP)
            for _ in range(25):  # 25 times 60 messages of 20 kB: 30 MB in all
                await asyncio.gather(*(client.publish("t", bytes(20_000)) for _ in range(60)))
            status = (await statuses(group))[leader]
            [peer] = [one for one in status["peers"] if one["replica"] == follower]
            assert peer["queued_bytes"] <= PEER_QUEUE + (1 << 20)  # and what was being written
            grown = memory_bytes(group, leader) - before
            group.processes[follower].send_signal(signal.SIGCONT)
        await equal(group, *group.numbers)
        # What the log keeps, up to 150 instances of what was in flight, and two snapshots; no more.
        assert grown < 100 << 20

    run(main)


def test_a_replica_whose_disk_is_lost_is_refused_and_replaced_by_a_new_one(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        async with GroupClient(group.addresses, client_id="lasting", request_s=2.0) as client:
            await client.subscribe("t", qos=1)
            await client.publish("t", b"before")
            assert (await client.message()).payload == b"before"
            lost = await leader_of(group)
            group.kill(lost)
            shutil.rmtree(group.spec.folder(lost))
            await client.publish("t", b"without it")
            group.start(lost)
            assert await asyncio.to_thread(group.processes[lost].wait, 30) not in (0, -signal.SIGKILL)
            assert "there are no data in" in (group.path.parent / f"{lost}.log").read_text()
            del group.processes[lost]
            add_replica(group, 4)
            late = await asyncio.to_thread(replace, group, lost, 4, "--timeout", "3s", code=1)
            assert "still waited for replica 4 to be reached at 127.0.0.1:" in late
            assert "Connect call failed" in late
            group.start(4)
            said = await asyncio.to_thread(replace, group, lost, 4)
            for words in ("asks replica", "a majority to agree", f"agreed: replica 4 takes the place of {lost} from"):
                assert words in said
            assert f"replica 4 takes the place of {lost}" in said.splitlines()[-1]
            assert "it has the state, and votes" in said
            roles = {each.replica: each.role for each in standings(await ask_status(group.spec))}
            assert roles[4] in ("leads", "votes")
            assert roles[lost] == "replaced"
            await client.publish("t", b"with another")
            assert [(await client.message()).payload for _ in range(2)] == [b"without it", b"with another"]
        present = [number for number in group.numbers if number != lost]
        await equal(group, *present)
        assert sorted((await statuses(group))[4]["members"]) == present
        async with GroupClient([group.addresses[group.numbers.index(4)]], client_id="lasting") as client:
            await client.publish("t", b"through the new one")
            assert (await client.message()).payload == b"through the new one"
        # The old one's entry may go from the file now; the new one and a founder start without it.
        change(group, lambda replicas: [one for one in replicas if one["id"] != lost])
        for number in (4, present[0]):
            group.kill(number)
            group.start(number)
            await equal(group, *present)

    run(main)


def replace(group: LocalGroup, old: int, new: int, *options: str, code: int = 0) -> str:
    """Returns what the command said: its progress, and its verdict in the last line."""
    command = [str(SURECAST), "cluster", "replace", str(old), str(new), str(group.path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr + done.stdout


def add_replica(group: LocalGroup, number: int) -> None:
    """Adds a replica that joins to the group's file."""
    extra = yaml.safe_load(write_group(group.path.parent / "extra", 1).read_text())["replicas"][0]
    change(group, lambda replicas: [*replicas, {**extra, "id": number, "joins": True}])


def change(group: LocalGroup, replicas: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Changes the replicas of the group's file."""
    data = yaml.safe_load(group.path.read_text())
    group.path.write_text(yaml.safe_dump({**data, "replicas": replicas(data["replicas"])}))
    group.spec = LocalGroup(group.path).spec
