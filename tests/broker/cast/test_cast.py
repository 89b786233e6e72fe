"""Dissemination on UDP sockets, with losses, and with somebody who means ill."""

from __future__ import annotations

import asyncio
import socket

import numpy as np
import pytest

from surecast.broker.cast import CastOptions, LossyRelay, run_cast
from surecast.broker.cast.file_cast import _Cast, _warm_up
from surecast.broker.cast.loopback_relay import Address, stamped
from surecast.errors import ConfigurationError

DATA = np.random.default_rng(1).bytes(9_000)
SMALL = {"subscribers": 8, "brokers": 4, "packets": 8, "packet_bytes": 500, "rate_per_s": 150.0, "deadline_s": 20.0}


@pytest.mark.parametrize("scheme", ["coding-gossip", "tree-retransmission"])
def test_a_file_arrives_whole_at_everybody_though_a_tenth_is_lost(scheme: str) -> None:
    seen: list[tuple[int, int]] = []
    result = run_cast(CastOptions(scheme=scheme, loss=0.1, **SMALL), DATA, lambda *done: seen.append(done))  # type: ignore[arg-type]
    assert [one.is_whole for one in result.received.values()] == [True] * 8
    assert result.in_time == result.events * 8 == seen[-1][0] == seen[-1][1]
    assert 0.05 < result.relay["lost"] / result.relay["taken"] < 0.15
    assert result.sent["Data"] > result.events * 8 * 8


def test_without_recovery_losses_are_seen_and_counted() -> None:
    options = CastOptions(scheme="tree", loss=0.3, **{**SMALL, "deadline_s": 1.0})  # type: ignore[arg-type]
    result = run_cast(options, DATA)
    assert result.in_time < result.events * 8
    assert not all(one.is_whole for one in result.received.values())


class _Enemy:
    """Sends nonsense, lies and copies to every socket, from an address of its own."""

    def __init__(self, cast: _Cast):
        self.cast = cast
        self.copies: list[tuple[bytes, Address]] = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.sent = 0
        cast.relay.tap = self.copy

    def copy(self, data: bytes, address: Address) -> None:
        if len(self.copies) < 200:
            self.copies.append((data, address))

    async def attack(self) -> None:
        rng = np.random.default_rng(2)
        while True:
            await asyncio.sleep(0.02)
            for data, address in self.copies[-20:]:
                self.send(data, address)  # replayed, from the wrong address
                self.send(data[: int(rng.integers(0, len(data)))], address)
                self.send(stamped(0, rng.bytes(int(rng.integers(1, 1400)))), address)
                self.send(data + rng.bytes(5000), address)
                # The relay itself replays, cuts and falsifies: what is then refused is so by what it says.
                self.cast.relay._pass_on(data, address)
                self.cast.relay._pass_on(data[: int(rng.integers(1, len(data)))], address)
                at = int(rng.integers(0, len(data)))
                self.cast.relay._pass_on(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :], address)
                self.cast.relay._pass_on(stamped(77_777, data[4:]), address)
                self.cast.relay._pass_on(stamped(1, data[4:]), address)

    def send(self, data: bytes, address: Address) -> None:
        self.sent += 1
        self.socket.sendto(data, address)


def test_spoofed_replayed_truncated_and_oversized_datagrams_are_harmless() -> None:
    options = CastOptions(loss=0.05, key=b"a key of sixteen", **SMALL)  # type: ignore[arg-type]
    _warm_up(options)

    async def under_attack() -> tuple[_Enemy, object]:
        cast = _Cast(options, DATA, None)
        enemy = _Enemy(cast)
        attack = asyncio.create_task(enemy.attack())
        try:
            return enemy, await cast.run()
        finally:
            attack.cancel()
            enemy.socket.close()

    enemy, result = asyncio.run(under_attack())
    assert enemy.sent > 50
    assert all(one.is_whole for one in result.received.values())  # type: ignore[attr-defined]
    refused = result.refused  # type: ignore[attr-defined]
    assert refused["stranger"] > 0
    assert refused["another sender"] > 0
    assert sum(refused.values()) > refused["stranger"] + refused["done with"]


def test_the_relay_loses_by_its_seed_and_passes_nothing_for_strangers() -> None:
    def lost(seed: int) -> list[bool]:
        relay = LossyRelay(0.2, seed)
        return [relay._loses(1, 2) for _ in range(2000)]

    assert lost(1) == lost(1) != lost(2)
    assert np.mean(lost(1)) == pytest.approx(0.2, abs=0.04)
    relay = LossyRelay(0.0, 1)
    relay.introduce(1, ("127.0.0.1", 1000))
    relay.datagram_received(stamped(1, b"x"), ("127.0.0.1", 2000))
    relay.datagram_received(stamped(9, b"x"), ("127.0.0.1", 1000))
    relay.datagram_received(b"\0" * 5000, ("127.0.0.1", 1000))
    assert relay.counts == {"stranger": 1, "unknown receiver": 1, "impossible size": 1}


@pytest.mark.parametrize(("wrong", "said"), [({"subscribers": 0}, "subscribers"), ({"rate_per_s": 0.0}, "rate")])
def test_what_is_wrong_is_named(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        CastOptions(**wrong)  # type: ignore[arg-type]
