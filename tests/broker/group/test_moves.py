"""Clients that say goodbye to one replica and are at another at once: real processes, real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.broker.group.raw import Raw
from tests.patience import PATIENCE_S

from surecast.broker.cluster import LocalGroup, write_group
from surecast.protocol.mqtt import (
    V5,
    V311,
    Connack,
    Disconnect,
    Properties,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Will,
)

Run = Callable[..., Any]
TRIES = 100
LASTING = Properties(session_expiry_s=300)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGroup]:
    with LocalGroup(write_group(tmp_path_factory.mktemp("moves"), 3, options={"sync": "none"})) as group:
        group.start()
        group.wait_ready(PATIENCE_S)
        yield group


def test_a_goodbye_counts_wherever_the_client_goes_next(group: LocalGroup, run: Run) -> None:
    """A hundred tries: no will is published, and the session expiry in the DISCONNECT is the one that holds."""

    async def main() -> None:
        async with await Raw.open(group.addresses[2]) as watcher:
            await watcher.connect("watcher")
            watcher.send(Subscribe(1, (SubscriptionRequest("wills/#", 1),)))
            ended = []
            for attempt in range(TRIES):
                old, new = group.addresses[attempt % 3], group.addresses[(attempt + 1 + attempt // 3 % 2) % 3]
                will = Will("wills/m", b"%d" % attempt, 1)
                is_kept = attempt % 2 == 0
                first = await Raw.open(old)
                async with first:
                    await first.connect(f"m{attempt}", will=will, properties=LASTING)
                    first.send(Disconnect(properties=Properties(session_expiry_s=600 if is_kept else 0)))
                async with await Raw.open(new) as second:
                    welcome = await second.connect(f"m{attempt}", clean_start=False, properties=LASTING)
                    ended.append(welcome.session_present is is_kept)
                    second.send(Disconnect())
            watcher.send(Publish("wills/end", b"end"))
            assert (await watcher.get(Publish)).payload == b"end"
            assert all(ended), f"the expiry was lost {ended.count(False)} times"

    run(main)


@pytest.mark.parametrize("version", [V5, V311])
def test_a_session_moves_from_a_replica_that_is_killed(group: LocalGroup, run: Run, version: int) -> None:
    """Nobody waits for a replica that is gone: its clients are let in elsewhere before it is declared down."""

    async def main() -> None:
        leader = await asyncio.to_thread(group.leader)
        victim = next(number for number in (1, 2, 3) if number != leader)
        async with (
            await Raw.open(group.addresses[victim - 1], version) as first,
            await Raw.open(group.addresses[leader - 1], version) as second,
        ):
            properties = LASTING if version == V5 else Properties()
            await first.connect("survivor", clean_start=False, properties=properties)
            await asyncio.to_thread(group.kill, victim)
            welcome = await second.connect("survivor", clean_start=False, properties=properties)
            assert isinstance(welcome, Connack)
            assert welcome.session_present
        group.start(victim)
        await asyncio.to_thread(group.wait_ready)

    run(main)
