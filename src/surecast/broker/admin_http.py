"""A small HTTP/1.1 server: one request for each connection, everything bounded in size and time."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import stat
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from surecast.broker.private import make_private
from surecast.broker.security import address_of
from surecast.broker.tcp import peer_name
from surecast.errors import ConfigurationError

__all__ = ["AdminRequest", "Handler", "HttpServer", "Response", "bind_local", "json_response"]

_HEAD_BYTES_MAX = 16 * 1024
_BODY_BYTES_MAX = 64 * 1024
_HEAD_S = 5.0
_ANSWER_S = 20.0
_PLACES = 64
_PLACES_OF_ADDRESS = 32


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request. `is_local` says that it came by the local socket, which only the broker's own user can open."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    address: str
    is_local: bool


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[AdminRequest], Awaitable[Response]]


def json_response(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer for programs.

    >>> json_response({"ready": True}).body
    b'{"ready": true}\\n'
    """
    return Response(status, (json.dumps(data) + "\n").encode(), "application/json", headers or {})


class _Slots:
    """The connections of one kind of socket. Where there is no room, the one that was silent longest has to go.

    So connections that never ask anything cannot keep others out, however many there are.
    """

    def __init__(self, turned_away: Counter[str]):
        self._turned_away = turned_away
        self._silent: dict[asyncio.StreamWriter, str] = {}  # in the order in which they came, with their addresses
        self._asking: dict[asyncio.StreamWriter, str] = {}

    def enter(self, writer: asyncio.StreamWriter, address: str) -> bool:
        """Takes a connection in; False if all the others are being answered."""
        if address and not self._make_room(_PLACES_OF_ADDRESS, address):
            return False
        if not self._make_room(_PLACES, ""):
            return False
        self._silent[writer] = address
        return True

    def ask(self, writer: asyncio.StreamWriter) -> None:
        """A connection has sent its request."""
        address = self._silent.pop(writer, None)
        if address is not None:
            self._asking[writer] = address

    def leave(self, writer: asyncio.StreamWriter) -> None:
        """A connection is over."""
        self._silent.pop(writer, None)
        self._asking.pop(writer, None)

    def _make_room(self, count_max: int, address: str) -> bool:
        """Makes sure that one more may come, of one address or of all."""
        silent = [each for each, whose in self._silent.items() if address in ("", whose)]
        asking = sum(address in ("", whose) for whose in self._asking.values())
        if len(silent) + asking < count_max:
            return True
        if not silent:
            self._turned_away["busy"] += 1
            return False
        self._turned_away["silent"] += 1
        del self._silent[silent[0]]
        silent[0].transport.abort()
        return True


class HttpServer:
    """Answers requests at sockets that are bound already. The local socket has slots of its own.

    `turned_away` counts connections without an answer: those that stayed `silent`, and those that came when all slots
    were `busy`.
    """

    def __init__(self, handler: Handler):
        self._handler = handler
        self._servers: list[asyncio.Server] = []
        self.turned_away: Counter[str] = Counter()
        self._slots = {is_local: _Slots(self.turned_away) for is_local in (True, False)}

    async def serve(self, sock: socket.socket, is_local: bool, context: ssl.SSLContext | None = None) -> None:
        """Begins to answer at a socket, with TLS if there is a context."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connected(reader, writer, is_local)

        start = asyncio.start_unix_server if is_local else asyncio.start_server
        timeout_s = None if context is None else _HEAD_S
        self._servers.append(
            await start(connected, sock=sock, limit=_HEAD_BYTES_MAX, ssl=context, ssl_handshake_timeout=timeout_s)
        )

    def close(self) -> None:
        """Answers no more."""
        for server in self._servers:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_local: bool) -> None:
        slots = self._slots[is_local]
        address = "" if is_local else address_of(peer_name(writer.get_extra_info("peername")))
        if not slots.enter(writer, address):
            writer.transport.abort()
            return
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._answer(reader, writer, address, is_local)
        finally:
            slots.leave(writer)
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, is_local: bool
    ) -> None:
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                request = _parse(head, address, is_local)
                await _skip_body(reader, request)
        except TimeoutError:
            self.turned_away["silent"] += 1
            raise
        except asyncio.LimitOverrunError:
            response = _problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except ValueError as error:
            response = _problem(HTTPStatus.BAD_REQUEST, str(error))
        else:
            self._slots[is_local].ask(writer)
            async with asyncio.timeout(_ANSWER_S):
                response = await self._handler(request)
            if request.method == "HEAD":
                response = Response(response.status, b"", response.content_type, response.headers)
        status = HTTPStatus(response.status)
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            "Cache-Control": "no-store",
            "Connection": "close",
            **response.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {status.value} {status.phrase}\r\n{lines}\r\n".encode("latin-1") + response.body)
        async with asyncio.timeout(_ANSWER_S):
            await writer.drain()


def _problem(status: HTTPStatus, text: str = "") -> Response:
    return json_response({"error": text or status.phrase.lower()}, status)


def _parse(head: bytes, address: str, is_local: bool) -> AdminRequest:
    """A request from its head; ValueError says what is wrong with it."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise ValueError("this is HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise ValueError("a header is malformed")
        headers[name.lower()] = value.strip()
    target = urlsplit(parts[1])
    query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=20))
    return AdminRequest(parts[0], target.path, query, headers, address, is_local)


async def _skip_body(reader: asyncio.StreamReader, request: AdminRequest) -> None:
    """Reads the body of a request and ignores it: the first line of a request says everything."""
    if "transfer-encoding" in request.headers:
        raise ValueError("a body must come with its length")
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or len(length) > 9 or int(length) > _BODY_BYTES_MAX:
        raise ValueError("the body is too long")
    await reader.readexactly(int(length))


def bind_local(path: Path) -> socket.socket:
    """Returns a local socket that only this user can open. A file left by a process that has ended is replaced."""
    try:
        if not path.parent.exists():
            make_private(path.parent)
        status = path.lstat() if os.path.lexists(path) else None
    except OSError as error:
        raise ConfigurationError(f"{path.parent}: cannot be made or read: {error.strerror}") from None
    if path.parent.stat().st_uid not in (os.getuid(), 0) and not path.parent.stat().st_mode & stat.S_ISVTX:
        raise ConfigurationError(f"{path.parent} belongs to another user; set admin_socket to another path")
    if status is not None:
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
            raise ConfigurationError(
                f"{path} exists and is not a socket; remove it, or set admin_socket to another path"
            )
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise ConfigurationError(f"{path}: another broker answers here; set admin_socket to another path")
        path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        raise ConfigurationError(f"{path}: the local socket cannot be made: {error.strerror or error}") from None
    finally:
        os.umask(before)
    sock.listen(16)
    sock.setblocking(False)
    return sock
