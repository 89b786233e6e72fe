"""Bytes to and from a broker: TCP, TLS, WebSocket or WebSocket on TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from surecast.client.client_errors import ClientError
from surecast.errors import ConfigurationError, connection_problem

__all__ = ["Transport", "open_transport", "tls_context"]

_READ_BYTES = 64 * 1024


class Transport(Protocol):
    """A connection to a broker."""

    async def read(self) -> bytes:
        """Returns the bytes that have arrived; empty when the broker has closed."""

    async def write(self, data: bytes) -> None:
        """Sends, and waits while too much is unsent."""

    async def close(self) -> None:
        """Closes after what was written is sent."""


class _Stream:
    """TCP or TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(_READ_BYTES)

    async def write(self, data: bytes) -> None:
        if self._writer.is_closing():  # asyncio would drop the data, and uvloop raise an error of its own
            raise ConnectionResetError("it is closed")
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(2.0):
                await self._writer.wait_closed()


class _WebSocket:
    """WebSocket frames; a packet may be cut anywhere."""

    def __init__(self, connection: object):
        from websockets.asyncio.client import ClientConnection

        assert isinstance(connection, ClientConnection)
        self._connection = connection

    async def read(self) -> bytes:
        from websockets.exceptions import ConnectionClosed

        try:
            data = await self._connection.recv()
        except ConnectionClosed:
            return b""
        return data if isinstance(data, bytes) else data.encode()

    async def write(self, data: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(data)
        except ConnectionClosed as error:
            raise OSError(str(error)) from None

    async def close(self) -> None:
        await self._connection.close()


async def open_transport(
    host: str, port: int, tls: ssl.SSLContext | None, websocket_path: str | None, timeout_s: float
) -> Transport:
    """Connects; ClientError says why it cannot."""
    where = f"{host}:{port}"
    if not 0 < port < 1 << 16:
        raise ClientError(f"{where}: no such port; choose one from 1 to 65535")
    try:
        async with asyncio.timeout(timeout_s):
            if websocket_path is None:
                return _Stream(*await asyncio.open_connection(host, port, ssl=tls))
            return await _open_websocket(host, port, tls, websocket_path)
    except TimeoutError:
        raise ClientError(f"{where}: no answer within {timeout_s:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise ClientError(f"{where}: the broker's certificate is not trusted: {error.verify_message}") from None
    except ssl.SSLError as error:
        raise ClientError(f"{where}: TLS failed: {error.reason or error}") from None
    except socket.gaierror as error:
        raise ClientError(f"{host}: no such host: {error.strerror}") from None
    except OSError as error:
        hint = "; does it speak TLS at this port?" if tls is not None and isinstance(error, ConnectionError) else ""
        raise ClientError(f"{where}: cannot connect: {connection_problem(error, where)}{hint}") from None


async def _open_websocket(host: str, port: int, tls: ssl.SSLContext | None, path: str) -> Transport:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidHandshake, InvalidMessage
    from websockets.typing import Subprotocol

    name = f"[{host}]" if ":" in host else host
    url = f"{'wss' if tls is not None else 'ws'}://{name}:{port}{path}"
    try:
        # No limit of its own: the packets in the frames have theirs.
        connection = await connect(
            url, ssl=tls, subprotocols=[Subprotocol("mqtt")], max_size=None, compression=None, proxy=None
        )
    except (InvalidHandshake, InvalidMessage) as error:
        raise ClientError(f"{url}: no MQTT by WebSocket here: {error}") from None
    return _WebSocket(connection)


def tls_context(
    ca: Path | None = None, certificate: Path | None = None, key: Path | None = None, insecure: bool = False
) -> ssl.SSLContext:
    """Returns TLS settings: the authorities to trust (the system's if none are named), and an optional client
    certificate.

    `insecure` does not look at whom the broker's certificate names; whether it is trusted is looked at all the same.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = not insecure
        if certificate is not None:
            context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as error:
        raise ConfigurationError(f"TLS: {ca or certificate} cannot be used: {error.reason or error}") from None
    except OSError as error:
        raise ConfigurationError(f"TLS: {ca or certificate or key}: {error.strerror or error}") from None
    return context
