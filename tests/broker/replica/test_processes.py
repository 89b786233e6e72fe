"""Groups of real processes: a replica that is stopped, one that is replaced, and too few of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest

from surecast.broker.replica.__main__ import main
from surecast.broker.replica.administer import ask_replace
from surecast.client.replicated import RequestTimeoutError, dial
from surecast.errors import ConfigurationError
from surecast.protocol.paxos.example_store import get, incr, put

Processes = Callable[..., Any]
Run = Callable[..., Any]


def test_a_stopped_follower_costs_bounded_memory_and_catches_up(processes: Processes, run: Run) -> None:
    group = processes(sync="none", paxos={"snapshot_every": 100, "log_keep": 50})

    async def work() -> None:
        group.start(group.founders)
        leader = await group.wait_leader()
        follower = next(one for one in group.founders if one != leader)
        async with await dial([group.addresses[leader - 1]]) as connection:
            await connection.send_request(put(b"k", b""))
            before = group.memory_bytes(leader)
            group.signal(follower, signal.SIGSTOP)
            for _ in range(25):  # 25 times 64 values of 20 kB: 32 MB in all
                await asyncio.gather(*(connection.submit(put(b"k%d" % n, bytes(20_000))) for n in range(64)))
            status = (await group.status())[leader]
            [peer] = [one for one in status["peers"] if one["replica"] == follower]
            assert peer["queued_bytes"] <= 8 << 20
            grown = group.memory_bytes(leader) - before
            group.signal(follower, signal.SIGCONT)
            await group.wait_equal(group.founders)
            # What the log keeps (up to 150 instances, each at most what is in flight), and two snapshots; no more.
            assert grown < 120 << 20

    run(work)


def test_a_blank_replica_takes_a_place_while_the_group_works(processes: Processes, run: Run) -> None:
    group = processes(joiners=1, paxos={"snapshot_every": 50, "log_keep": 20})

    async def work() -> None:
        group.start(group.founders)
        leader = await group.wait_leader()
        old = next(one for one in group.founders if one != leader)
        async with await dial(group.addresses) as connection:
            count = 0
            is_over = asyncio.Event()

            async def load() -> None:
                nonlocal count
                while not is_over.is_set():
                    count += 1
                    assert await connection.send_request(incr(b"k")) == b"+%d" % count

            task = asyncio.create_task(load())
            while count < 60:
                await asyncio.sleep(0.02)
            group.start([4])
            with pytest.raises(ConfigurationError, match="not a member"):
                await ask_replace(group.spec, 9, 4)
            assert await ask_replace(group.spec, old, 4) > 0
            group.signal(old, signal.SIGKILL)
            left = [one for one in (*group.founders, 4) if one != old]
            while count < 300:
                await asyncio.sleep(0.02)
            is_over.set()
            await task
            found = await group.wait_equal(left)
            assert set(found[4]["members"]) == set(left)
            # With the new one and without another the group goes on.
            group.signal(next(one for one in left if one != 4), signal.SIGKILL)
            assert await connection.send_request(get(b"k")) == b"+%d" % count
            # The client knows the address of the new one from the group.
            assert str(group.spec.replicas[3].client) in map(str, connection.addresses)

    run(work)


def test_without_a_majority_requests_time_out_and_nothing_goes_wrong(processes: Processes, run: Run) -> None:
    group = processes()

    async def work() -> None:
        group.start(group.founders)
        await group.wait_leader()
        async with await dial(group.addresses) as connection:
            assert await connection.send_request(incr(b"k")) == b"+1"
            for number in (1, 2):
                group.signal(number, signal.SIGKILL)
            with pytest.raises(RequestTimeoutError, match="a majority of the replicas may be down"):
                await connection.send_request(incr(b"k"), timeout_s=1.0)
            late = asyncio.create_task(connection.send_request(incr(b"k")))
            group.start([1, 2])
            count = int((await late)[1:])
            assert count in (2, 3)  # the one that timed out may have been applied, once
            final = int((await connection.send_request(get(b"k")))[1:])
            assert final in (2, 3)
        await group.wait_equal(group.founders)
        for number in group.founders:
            group.signal(number, signal.SIGTERM)

    run(work)


def test_what_is_wrong_with_a_command_is_said(processes: Processes, capsys: pytest.CaptureFixture[str]) -> None:
    group = processes()
    assert main(["--group", str(group.path), "--id", "9", "--handler", group.handler]) == 2
    assert capsys.readouterr().err == "replica 9: the group test has only 1, 2, 3; add it to replicas:\n"
    assert main(["--group", str(group.path), "--id", "1", "--handler", "surecast.nothing:here"]) == 2
    assert "handler 'surecast.nothing:here'" in capsys.readouterr().err
    assert main(["--group", str(group.path), "--replace", "1", "--by", "2"]) == 2
    assert "replica 2 has no joins: true in the group's file; add {id: 4" in capsys.readouterr().err
    assert main(["--group", str(group.path), "--status"]) == 0
    assert capsys.readouterr().out.count('"error"') == 3
