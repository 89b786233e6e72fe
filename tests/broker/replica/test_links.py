"""Links between replicas that are closed at an awkward moment."""

from __future__ import annotations

import asyncio

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.replica.addresses import Address
from surecast.broker.replica.links import PeerLink


class Nowhere:
    """Knows no addresses."""

    def __init__(self) -> None:
        self.tried = 0

    def address_of(self, peer: int) -> Address | None:
        self.tried += 1
        return None

    def link_up(self, peer: int, welcome: object) -> None:
        raise AssertionError("there is nobody to link to")

    def link_down(self, peer: int, reason: str) -> None:
        pass


def test_a_frame_in_two_parts_is_taken_or_dropped_as_a_whole() -> None:
    async def scenario() -> tuple[int, int]:
        link = PeerLink(2, Nowhere(), 1000)
        link.is_up = True
        link.post(bytes(600), bytes(300))
        link.post(bytes(90), bytes(20))  # the first part alone would fit
        link.post(bytes(60), bytes(40))
        found = link.queued_bytes, link.dropped
        await link.close()
        return found

    assert asyncio.run(scenario()) == (1000, 1)


@pytest.mark.parametrize("turns", range(6))
def test_a_link_that_is_closed_while_it_is_told_to_dial_is_closed(turns: int) -> None:
    """`wait_for` of Python 3.11 forgets that it was cancelled where what it waits for happens at the same moment."""

    async def scenario() -> int:
        dialler = Nowhere()
        link = PeerLink(2, dialler, 1000)
        while not dialler.tried:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        link.poke()
        closing = asyncio.create_task(link.close())
        await asyncio.wait({closing}, timeout=PATIENCE_S)
        assert closing.done()
        tried = dialler.tried
        await asyncio.sleep(0.05)
        return dialler.tried - tried

    assert asyncio.run(scenario()) == 0
