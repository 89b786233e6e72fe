"""A replica whose disk is damaged says so by name, and one command puts a new one in its place."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.cluster import LocalGroup, is_running, stop_replicas, write_group
from surecast.broker.cluster_repair import repair_replica
from surecast.broker.store import StoreError
from surecast.broker.store_salvage import salvage
from surecast.client import Client
from surecast.client.group_client import split_address
from surecast.errors import ConfigurationError


@pytest.fixture
def group(tmp_path: Path) -> Iterator[LocalGroup]:
    """A group of three that takes clients."""
    path = write_group(tmp_path / "group", 3)
    with LocalGroup(path) as started:
        started.start()
        started.wait_ready(PATIENCE_S)
        yield started
        stop_replicas(path)


def wait_until(seen: Callable[[], bool]) -> None:
    """Waits for what every replica learns a moment after the one that answered first."""
    until = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < until
        time.sleep(0.1)


async def publish(address: str, count: int) -> None:
    async with Client(*split_address(address)) as client:
        for n in range(count):
            await client.publish(f"state/{n}", b"%d" % n, 1, retain=True)


async def retained(address: str, count: int) -> set[str]:
    async with Client(*split_address(address)) as client:
        await client.subscribe("state/#")
        return {(await client.message()).topic for _ in range(count)}


def test_a_damaged_replica_is_refused_by_name_and_repaired_from_the_others(group: LocalGroup) -> None:
    asyncio.run(publish(group.addresses[2], 40))
    group.kill(3)
    folder = group.spec.folder(3)
    last = max(folder.glob("segment-*.log"))
    whole = last.read_bytes()
    last.write_bytes(whole[: len(whole) // 2])
    group.start(3)
    assert group.processes.pop(3).wait(PATIENCE_S) == 3
    said = group.last_words(3)
    assert f"{last}: damaged at byte" in said
    assert f"surecast cluster repair 3 {group.path}" in said
    with pytest.raises(StoreError, match="cluster repair"):
        salvage(folder)  # it would forget its votes
    told: list[str] = []
    text = group.path.read_text()
    text = text.replace("- id: 3\n", "- id: 3  # in the cellar\n").replace(
        "replicas:\n", "# one for each room\nreplicas:\n"
    )
    group.path.write_text(text)
    done = repair_replica(group.path, 3, tell=told.append)
    assert group.path.read_text() == text.replace("- id: 3 ", "- joins: true\n  id: 4 ")
    assert (done.old, done.new) == (3, 4)
    assert any("agreed: replica 4 takes the place of 3" in line for line in told)
    assert done.aside is not None
    assert (done.aside / last.name).read_bytes() == whole[: len(whole) // 2]
    now = LocalGroup(group.path)
    assert now.numbers == [1, 2, 4]
    wait_until(lambda: [one["voting"] for one in now.status()] == [True] * 3)
    assert asyncio.run(retained(now.addresses[2], 40)) == {f"state/{n}" for n in range(40)}
    with pytest.raises(ConfigurationError, match="replica 4 is running"):
        repair_replica(group.path, 4, tell=told.append)
    with pytest.raises(ConfigurationError, match="replica 3: the group local has only 1, 2, 4"):
        repair_replica(group.path, 3, tell=told.append)
    assert done.process is not None
    done.process.terminate()
    done.process.wait(PATIENCE_S)
    assert not is_running(now.spec.folder(4))


def test_without_a_majority_nothing_is_touched(group: LocalGroup) -> None:
    for number in (2, 3):
        group.kill(number)
    before = group.path.read_bytes()
    with pytest.raises(ConfigurationError, match="a majority must run"):
        repair_replica(group.path, 3, tell=lambda line: None)
    assert group.path.read_bytes() == before
    assert group.spec.folder(3).exists()


def test_every_founder_can_be_replaced_and_the_group_starts_again(group: LocalGroup) -> None:
    asyncio.run(publish(group.addresses[0], 5))
    processes = []
    for number in (1, 2, 3):
        group.kill(number)
        del group.processes[number]
        shutil.rmtree(group.spec.folder(number))
        done = repair_replica(group.path, number, timeout_s=PATIENCE_S, tell=lambda line: None)
        assert done.process is not None
        processes.append(done.process)
    assert sorted(stop_replicas(group.path)) == [4, 5, 6]
    for process in processes:
        process.wait(PATIENCE_S)
    with LocalGroup(group.path) as again:
        assert again.numbers == [4, 5, 6]
        again.start()
        again.wait_ready(PATIENCE_S)
        wait_until(lambda: [one["members"] for one in again.status()] == [[4, 5, 6]] * 3)
        assert asyncio.run(retained(again.addresses[0], 5)) == {f"state/{n}" for n in range(5)}
