"""A client that does nothing by itself: packets out, packets in."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from tests.patience import PATIENCE_S

from surecast.client.group_client import split_address
from surecast.protocol.mqtt import V5, Connack, Connect, Packet, PacketDecoder, encode

P = TypeVar("P")


class Raw:
    """One connection; `async with await Raw.open(address) as raw`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int):
        self.version = version
        self._reader, self._writer = reader, writer
        self._decoder = PacketDecoder(version=version, side="client")
        self._arrived: list[Packet] = []

    @classmethod
    async def open(cls, address: str, version: int = V5) -> Raw:
        return cls(*await asyncio.open_connection(*split_address(address)), version)

    async def __aenter__(self) -> Raw:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._writer.close()

    def send(self, packet: Packet) -> None:
        self._writer.write(encode(packet, self.version))

    async def connect(self, client_id: str, **fields: Any) -> Connack:
        self.send(Connect(client_id, version=self.version, **fields))
        return await self.get(Connack)

    async def get(self, kind: type[P], timeout_s: float = PATIENCE_S) -> P:
        """The next packet of a kind; others before it are left out."""
        async with asyncio.timeout(timeout_s):
            while True:
                while self._arrived:
                    packet = self._arrived.pop(0)
                    if isinstance(packet, kind):
                        return packet
                await self._read()

    async def rest(self, timeout_s: float = PATIENCE_S) -> list[Packet]:
        """All packets until the other end closes."""
        async with asyncio.timeout(timeout_s):
            try:
                while True:
                    await self._read()
            except (EOFError, ConnectionError):
                return self._arrived

    async def _read(self) -> None:
        data = await self._reader.read(1 << 16)
        if not data:
            raise EOFError("the connection is over")
        self._arrived += self._decoder.feed(data)
