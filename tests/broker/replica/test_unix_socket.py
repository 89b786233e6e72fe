"""Replicas of one machine talk through Unix sockets; all others, and those who cannot, through TCP."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from surecast.broker.replica import Address, unix_socket
from surecast.broker.replica.unix_socket import dial_unix, listen_unix
from surecast.protocol.paxos.example_store import put

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has an abstract namespace")

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


def families(node: Any) -> list[int]:
    return [link._sock.family for link in node.peers._links.values() if link.is_up]


async def families_of_a_group(group: Any) -> list[int]:
    for number in (1, 2, 3):
        await group.start(number)
    leader = await group.leader()
    assert await group.ask(leader, 1, 1, put(b"k", bytes(300_000))) is not None
    await group.equal()
    while len(found := families(leader)) < 2:
        await asyncio.sleep(0.01)
    await group.stop()
    return found


def test_replicas_of_one_machine_take_the_short_way(local: Callable[..., Any], run: Run) -> None:
    assert run(lambda: families_of_a_group(local(3))) == [socket.AF_UNIX] * 2


def test_without_the_short_way_there_is_tcp(
    local: Callable[..., Any], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_socket, "_name", lambda address: None)
    assert run(lambda: families_of_a_group(local(3))) == [socket.AF_INET] * 2


def test_a_name_that_somebody_of_another_user_has_is_left_alone(
    local: Callable[..., Any], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.geteuid()
    group = local(3)
    taken = [listen_unix(place.peer) for place in group.places.values()]
    for sock in taken:
        assert sock is not None
        sock.listen()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert run(lambda: families_of_a_group(group)) == [socket.AF_INET] * 2
    for sock in taken:
        assert sock is not None
        sock.close()


def test_only_what_is_on_this_machine_is_near(run: Run) -> None:
    far = [Address("192.0.2.1", 7001), Address("example.invalid", 7001), Address("127.0.0.1", 1)]
    assert [run(lambda address=address: dial_unix(address)) for address in far] == [None] * 3
    assert [listen_unix(address) for address in far[:2]] == [None] * 2
    for host in ("localhost", "127.0.0.7", "::1"):
        address = Address(host, 7001)
        first = listen_unix(address)
        assert first is not None
        assert listen_unix(address) is None
        first.listen()

        async def dial(address: Address = address) -> None:
            sock = await dial_unix(address)
            assert sock is not None
            sock.close()

        run(dial)
        first.close()
        assert run(lambda address=address: dial_unix(address)) is None
