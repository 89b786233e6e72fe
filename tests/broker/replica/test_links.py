"""Links between replicas that are closed at an awkward moment."""

from __future__ import annotations

import asyncio

import pytest

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
        await asyncio.wait({closing}, timeout=10)
        assert closing.done()
        tried = dialler.tried
        await asyncio.sleep(0.05)
        return dialler.tried - tried

    assert asyncio.run(scenario()) == 0
