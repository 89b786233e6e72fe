"""Disks that are set back to an older copy, or wiped: the replica is refused by name, and the remedy works."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.cluster import LocalGroup, stop_replicas, write_group
from surecast.broker.cluster_repair import repair_replica
from surecast.broker.group_config import load_broker_group
from surecast.broker.replica.founding import found_replica
from surecast.client.group_client import GroupClient
from surecast.errors import ConfigurationError


@pytest.fixture
def group(tmp_path: Path) -> Iterator[LocalGroup]:
    """A group of three that takes clients."""
    with LocalGroup(write_group(tmp_path / "group", 3)) as started:
        started.start()
        started.wait_ready(PATIENCE_S)
        yield started
        stop_replicas(started.path)


def publish(group: LocalGroup, first: int, count: int) -> None:
    async def run() -> None:
        async with GroupClient(group.addresses) as client:
            for n in range(first, first + count):
                await client.publish(f"kept/{n}", b"%d" % n, qos=1, retain=True)

    asyncio.run(run())


def kept(addresses: list[str], count: int) -> int:
    """Returns how many of the retained messages are there."""

    async def run() -> int:
        async with GroupClient(addresses) as client, client.subscription("kept/#", qos=1) as messages:
            seen = set()
            async for message in messages:
                seen.add(message.topic)
                if len(seen) == count:
                    return count
        return len(seen)

    return asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def restart(group: LocalGroup, number: int) -> None:
    group.kill(number)
    group.start(number)
    group.wait_ready(PATIENCE_S)


@pytest.mark.parametrize("moment", ["before the last start", "after it"])
def test_an_older_copy_is_refused_though_the_others_restarted_and_is_repaired(
    group: LocalGroup, moment: str, tmp_path: Path
) -> None:
    """One of the others is down while the acknowledged messages come, and up alone with the set-back one later."""
    folder, copy = group.spec.folder(3), tmp_path / "copy"
    publish(group, 0, 20)
    if moment == "after it":
        restart(group, 3)
        publish(group, 20, 5)
    group.kill(3)
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.sock"))
    group.start(3)
    group.wait_ready(PATIENCE_S)
    if moment == "after it":  # the start that the copy does not have is the one that nobody looks at
        publish(group, 25, 5)
    group.kill(2)
    publish(group, 30, 15)
    time.sleep(0.6)  # what a replica saw of the others is durable after a quarter of a second
    group.kill(1)
    group.kill(3)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    group.start(1, 3)
    assert group.processes.pop(3).wait(PATIENCE_S) == 3
    said = (group.path.parent / "3.log").read_text()
    assert "replica 3: replica 1 does not take it back" in said
    assert f"surecast cluster repair 3 {group.path}" in said
    group.start(3)  # it knows now, without asking anybody
    assert group.processes.pop(3).wait(PATIENCE_S) == 1
    group.start(2)
    group.wait_ready(PATIENCE_S)
    done = repair_replica(group.path, 3, tell=lambda line: None)
    try:
        assert kept(LocalGroup(group.path).addresses, 45 if moment == "after it" else 35)
    finally:
        assert done.process is not None
        done.process.terminate()
        done.process.wait(PATIENCE_S)


def test_wiped_disks_do_not_found_the_group_anew(group: LocalGroup) -> None:
    publish(group, 0, 10)
    for number in (1, 2, 3):
        group.kill(number)
    for number in (2, 3):
        shutil.rmtree(group.spec.folder(number))
    group.start()
    for number in (2, 3):
        assert group.processes.pop(number).wait(PATIENCE_S) == 3  # as for every replica that must not be started again
        said = (group.path.parent / f"{number}.log").read_text()
        assert f"replica {number} of the group local: there are no data in {group.spec.folder(number)}" in said
        assert f"surecast cluster repair {number} {group.path}" in said
        assert "restore a backup" in said
    assert write_group(group.path.parent, 3) == group.path  # `cluster up` again founds nothing either
    assert not list(group.spec.folder(2).glob("segment-*"))


def test_a_replica_that_others_remember_is_not_founded_again(group: LocalGroup) -> None:
    group.kill(3)
    folder = group.spec.folder(3)
    shutil.rmtree(folder)
    for command in (
        ("surecast", "cluster", "found", group.path, "--id", 3),
        ("surecast.broker.replica", "--group", group.path, "--found", "--id", 3),
    ):
        asked = [sys.executable, "-m", *map(str, command)]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        said = " ".join(done.stderr.split())
        assert done.returncode != 0
        assert "replica 3 has run in the group local before" in said
        assert f"surecast cluster repair 3 {group.path}" in said or "--replace 3 --by NEW" in said
        assert not folder.exists()


def test_a_founding_that_was_interrupted_is_done_anew(tmp_path: Path) -> None:
    path = write_group(tmp_path / "group", 3)
    text = path.read_text()
    path.write_text(text[: text.index("founding:")])  # its stores are there, and its file does not say so yet
    shutil.rmtree(load_broker_group(path).folder(2))
    assert load_broker_group(write_group(path.parent, 3)).founding is not None
    assert path.read_text() != text
    with LocalGroup(path) as group:
        group.start()
        group.wait_ready(PATIENCE_S)
    with pytest.raises(ConfigurationError, match="a group is founded once"):
        found_replica(load_broker_group(path), 1)


def test_founding_by_hand(tmp_path: Path) -> None:
    def surecast(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "surecast", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S
        )

    path = write_group(tmp_path / "group", 1)
    text = path.read_text()
    path.write_text(text[: text.index("founding:")])
    shutil.rmtree(tmp_path / "group" / "data")
    refused = surecast("broker", "--group", path, "--id", 1)
    assert (refused.returncode, f"surecast cluster found {path} --id 1" in refused.stderr) == (1, True)
    assert f"first run surecast cluster found {path}" in surecast("cluster", "found", path, "--id", 1).stderr
    assert f"surecast cluster found {path} --id N" in surecast("cluster", "found", path).stdout.replace("\n", "")
    assert "was founded before" in surecast("cluster", "found", path).stderr
    assert surecast("cluster", "found", path, "--id", 1).stdout.startswith("founded: replica 1 in ")
    with LocalGroup(path) as group:
        group.start()
        group.wait_ready(PATIENCE_S)
