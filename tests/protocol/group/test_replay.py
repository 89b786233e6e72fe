"""Replay is equal to live execution: whatever the depth of the stack, the seed of hashes, the limits of Python are."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S
from tests.protocol.group.replaying import replay
from tests.protocol.group.world import Client, World

from surecast.protocol.mqtt import Properties

JSON = Properties(content_type="application/json")
FILTERS = [
    "price > 30",
    "price in [10, 40] and stock = \"Foo\"",
    "deep.er.price >= 3",
    "`caf\u00e9` exists",
    "n = 100000000000000000000001",
    "stock startswith \"F\" and price < 1e9",
]  # fmt: skip


def nested(depth: int) -> bytes:
    return b'{"price": 40, "in": ' + b"[" * depth + b"]" * depth + b"}"


def contents(seed: int) -> list[tuple[bytes, Properties]]:
    """Payloads that some parser somewhere takes for something else."""
    draw = random.Random(seed)
    found = [(nested(draw.randrange(900, 1_000)), JSON) for _ in range(20)]
    found += [(nested(draw.randrange(28, 34)), JSON) for _ in range(4)]
    found += [(b'{"price": 31, "n": ' + b"1" * draw.choice((24, 640, 641, 4_300, 4_301, 9_000)) + b"}", JSON)] * 3
    found += [(json.dumps({"price": draw.randrange(60), "stock": draw.choice("FGH") + "oo"}).encode(), JSON)] * 10
    found += [(json.dumps({"deep": {"er": {"price": draw.randrange(6)}}, "caf\u00e9": 1}).encode(), JSON)] * 3
    found += [
        (b'{"price": 40, "price": null}', JSON),
        (b'\xef\xbb\xbf{"price": 40}', JSON),
        ('{"price": 40}'.encode("utf-16"), JSON),
        (rb'{"price": 40, "stock": "F\ud800"}', JSON),
        (b'{"price": NaN}', JSON),
        (b'{"n": 100000000000000000000001}', JSON),
        (json.dumps({"p" * 300: {"price": 40}, "price": 33}).encode(), JSON),
        (b"", Properties(user=(("price", str(draw.randrange(60))), ("stock", "Foo")))),
    ]
    return found


def traffic(seed: int, kills: bool) -> World:
    """A group with content filters, hostile publishers, and replicas that come and go."""
    world = World(seed)
    topics = ["t/a", "t/b"]
    subscribers = [
        Client(
            world, f"sub{n}", topics=["t/#"] if n % 2 else ["$share/all/t/#"], subscribe_qos=n % 3, filter=FILTERS[n]
        )
        for n in range(len(FILTERS))
    ]
    while not all(s.subscribed for s in subscribers):
        world.step()
    publishers = [
        Client(world, f"pub{n}", topics=topics, publish_qos=n % 3, count=40, contents=contents(seed)) for n in range(4)
    ]
    down = []
    for step in range(250):
        world.step()
        if kills and step % 40 == 20:
            down = [world.random.choice(world.sites)]
            world.kill(down[0])
        elif kills and step % 40 == 35 and down:
            world.revive(down.pop())
    while any(p.left for p in publishers):
        world.step()
    world.catch_up()
    return world


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kills", [False, True])
def test_replay_is_equal_to_live_execution(seed: int, kills: bool) -> None:
    world = traffic(seed, kills)
    draw = random.Random(seed)
    room = sys.getrecursionlimit() - 400
    effects, state = replay(world.log, lambda slot: draw.randrange(room))
    assert sum(any(data[:8]) for data in effects.values()) > 1, "content filters decided something"
    for site in world.up:
        assert site.position == len(world.log)
        assert all(effects[slot] == told for slot, told in site.effects.items())
        assert site.machine.snapshot() == state
    half = len(world.log) // 2
    _, middle = replay(world.log[:half])
    assert replay(world.log, start=half, state=middle) == ({n: e for n, e in effects.items() if n > half}, state)


@pytest.mark.parametrize(("hash_seed", "digits", "frames"), [(1, 640, 400), (2, 0, 5_000)])
def test_replay_in_another_process(tmp_path: Path, hash_seed: int, digits: int, frames: int) -> None:
    world = traffic(7, kills=False)
    effects, state = replay(world.log)
    file = tmp_path / "log"
    file.write_bytes(pickle.dumps(world.log))
    told = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("replaying.py")), str(file), str(digits), str(frames)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    ).stdout.split()  # fmt: skip
    assert told == [sha256(b"".join(effects.values())).hexdigest(), sha256(state).hexdigest()]


def test_the_effects_tell_of_one_filter_that_decided_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The running hash of inputs could not see it: 165 messages queued at one replica, 159 at another."""
    world = World(1, sites=1)
    subscriber = Client(world, "sub", topics=["t/#"], subscribe_qos=1, filter="price > 30")
    while not subscriber.subscribed:
        world.step()
    subscriber.cut()
    world.clients.remove(subscriber)
    payloads = [(nested(900 + n), JSON) for n in range(100)]
    publisher = Client(world, "pub", topics=["t/a"], publish_qos=1, count=300, contents=payloads)
    while publisher.left:
        world.step()
    world.catch_up()
    effects, _ = replay(world.log)
    assert effects == world.sites[0].effects
    from surecast.protocol.broker import content

    def careless(payload: bytes) -> object:
        try:
            return json.loads(payload)
        except (ValueError, RecursionError):
            return {}

    monkeypatch.setattr(content, "_parsed", careless)
    shallow, state = replay(world.log)
    deep, other = replay(world.log, lambda slot: 60)
    assert (shallow == deep) is (state == other) is False
