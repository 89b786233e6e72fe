"""A checksum that is remembered is that of the bytes, whatever was summed before and has gone since."""

from __future__ import annotations

import random
from zlib import crc32

from surecast.protocol.paxos import checksums
from surecast.protocol.paxos.checksums import crc_of, remember


def test_checksums_are_right_whatever_is_remembered() -> None:
    rng = random.Random(1)
    kept: list[bytes] = []
    for _ in range(3_000):
        data = rng.randbytes(rng.choice((0, 10, 511, 512, 700, 5_000)))  # most go at once, and others get their place
        assert crc_of(data) == crc32(data)
        if rng.random() < 0.05:
            kept.append(data)
        if kept:
            again = rng.choice(kept)
            assert crc_of(again) == crc32(again)
            longer = again + b"tail"
            remember(longer, crc32(b"tail", crc_of(again)))
            assert crc_of(longer) == crc32(longer)


def test_little_is_held_for_the_sake_of_checksums() -> None:
    for at in range(100):
        crc_of(bytes(600 + at))
        crc_of(bytes((2 << 20) + at))
    held = [data for data, _ in checksums._known.values()]
    assert 0 < len(held) < 100
    assert max(map(len, held)) <= 1 << 20
