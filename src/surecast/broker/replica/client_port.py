"""Where a replica takes requests of clients: what arrives in one turn of the event loop is submitted in one piece."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from surecast.broker.replica.accepted_connection import AcceptedConnection
from surecast.broker.replica.addresses import Address, parse_address
from surecast.broker.replica.client_wire import (
    REPLACE,
    REQUESTS,
    STATUS,
    STATUS_AND_STATE,
    VERIFY,
    pack_answers,
    pack_overload,
)
from surecast.broker.replica.frames import frame
from surecast.broker.replica.handshake import Hello, Role, Welcome
from surecast.broker.replica.node import REPLACE_S, ReplicaNode
from surecast.broker.replica.node_user import NodeUser
from surecast.errors import ConfigurationError, OverloadError, PeerError, SurecastError
from surecast.protocol.paxos import Answer

__all__ = ["ClientPort"]

_COUNT: Final = struct.Struct(">I")
_REQUEST: Final = struct.Struct(">QQI")
_UNSENT_BYTES_MAX: Final = 64 << 20
_REPLACE_MAX_S: Final = 3600.0


class ClientPort(NodeUser):
    """The port of one replica. `secret` is what clients must have; empty lets everybody ask.

    An administrator, who may look at the status and replace replicas, has the secret of the group.
    """

    def __init__(self, node: ReplicaNode, secret: bytes = b"", request_bytes_max: int = 16 << 20):
        self.node = node
        self.waiting = 0
        self._secret = secret
        self._request_bytes_max = request_bytes_max
        self._tables: list[bytes] = []
        self._commands: list[bytes] = []
        self._owners: list[tuple[AcceptedConnection, int]] = []
        self._count = 0
        self._connections: set[AcceptedConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, address: Address) -> Address:
        """Listens, and tells the group where; the address with the port that it got."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: AcceptedConnection(self, self._request_bytes_max), *address)
        except OSError as error:
            where = f"replica {self.node.id}: cannot listen for clients at {address}"
            raise ConfigurationError(f"{where}: {error.strerror}") from error
        found = Address(address.host, self._server.sockets[0].getsockname()[1])
        self.node.serve(self)
        self.node.announce(self.node.address, found)
        return found

    async def stop(self) -> None:
        """Closes all connections; their clients ask another replica."""
        self.node.leave(self)
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self._connections):
            connection.abort()
        if self._server is not None:
            self._server.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._server.wait_closed()

    # The handler of accepted connections

    def secret_of(self, role: Role) -> bytes:
        """Returns the secret that a peer in this role must have."""
        return self._secret if role == "client" else self.node.peers.secret

    def refusal_reason(self, hello: Hello) -> str | None:
        """Why not to let somebody in."""
        if hello.role == "peer":
            return "this port is for clients"
        if hello.group not in ("", self.node.group):
            return f"this is a replica of the group {self.node.group!r}, not {hello.group!r}"
        if hello.number == 0:
            return "a client has a number above 0"
        return None

    def welcome(self, hello: Hello) -> Welcome:
        """Returns the answer: how many requests may be in flight, and where the members take requests."""
        places = self.node.places()
        book = {str(one): str(place.client) for one, place in places.items() if place.client is not None}
        return Welcome(self.node.id, 0, self.node.settings.reply_window, book)

    def entered(self, connection: AcceptedConnection) -> None:
        """A client is in."""
        self._connections.add(connection)

    def left(self, connection: AcceptedConnection) -> None:
        """A client is gone; what it asked for is applied all the same."""
        self._connections.discard(connection)

    def refused(self, connection: AcceptedConnection, reason: str) -> None:
        """A client was turned away."""
        self.node.log.warning("client refused", replica=self.node.id, address=connection.address, reason=reason)

    def received(self, connection: AcceptedConnection, frames: list[bytes]) -> None:
        """A client asks."""
        for content in frames:
            kind = content[:1]
            if kind == REQUESTS:
                self._take(connection, content)
            elif kind == STATUS:
                self._answer(connection, STATUS, self._status(connection, content))
            elif kind == REPLACE and connection.hello.role == "admin":
                self._begin_task(self._replace(connection, content))
            elif kind == VERIFY and connection.hello.role == "admin":
                self._begin_task(self._verify(connection))
            else:
                raise PeerError(f"client: a {connection.hello.role} may not say {kind!r}")

    # Requests

    def _take(self, connection: AcceptedConnection, content: bytes) -> None:
        """Puts requests aside for this turn. Nobody may speak for another client, nor for the group."""
        size = len(content)
        if size < 5:
            raise PeerError("client: requests begin with their count")
        (count,) = _COUNT.unpack_from(content, 1)
        begin = 5 + count * _REQUEST.size
        if begin > size:
            raise PeerError(f"client: {count} requests are announced, but {size} bytes hold fewer")
        table = content[5:begin]
        client, total = connection.hello.number, begin
        for number, _, command_bytes in _REQUEST.iter_unpack(table):
            total += command_bytes
            if number != client:
                raise PeerError(f"client {client}: it asks in the name of {number}")
        if total != size:
            raise PeerError("client: the sizes of the commands do not add up to the requests")
        if count:
            self._tables.append(table)
            self._commands.append(content[begin:])
            self._owners.append((connection, count))
            self._count += count
            self.node.plan_turn()

    def submit_waiting(self) -> None:
        """Submits all that this turn brought."""
        if not self._count:
            return
        tables, owners = self._tables, self._owners
        packed = b"".join([_COUNT.pack(self._count), *tables, *self._commands])
        self._tables, self._commands, self._owners, self._count = [], [], [], 0
        try:
            self.node.submit(packed, _answer_to(owners))
        except OverloadError:
            for (connection, _), table in zip(owners, tables, strict=True):
                connection.write(frame(pack_overload([sequence for _, sequence, _ in _REQUEST.iter_unpack(table)])))

    # Administration

    def _status(self, connection: AcceptedConnection, content: bytes) -> dict[str, Any]:
        """The status; with a digest of the state where an administrator wants it, which costs a snapshot."""
        fields = self.node.status().as_dict()
        if content == STATUS_AND_STATE and connection.hello.role == "admin":
            fields["state"] = blake2b(self.node.handler.snapshot(), digest_size=16).hexdigest()
        return fields

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _verify(self, connection: AcceptedConnection) -> None:
        try:
            self._answer(connection, VERIFY, {"instance": await self.node.verify()})
        except SurecastError as error:
            self._answer(connection, VERIFY, {"error": str(error)})

    async def _replace(self, connection: AcceptedConnection, content: bytes) -> None:
        try:
            fields = json.loads(content[1:])
            address = fields.get("address")
            since = await self.node.replace(
                int(fields["old"]),
                int(fields["new"]),
                None if address is None else parse_address(address),
                min(float(fields.get("timeout_s", REPLACE_S)), _REPLACE_MAX_S),
                lambda line: self._answer(connection, REPLACE, {"waits": line}),
            )
            self._answer(connection, REPLACE, {"since": since})
        except OverloadError as error:
            self._answer(connection, REPLACE, {"error": str(error), "is_late": True})
        except (SurecastError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._answer(connection, REPLACE, {"error": str(error)})

    @staticmethod
    def _answer(connection: AcceptedConnection, kind: bytes, fields: dict[str, Any]) -> None:
        connection.write(frame(kind + json.dumps(fields).encode()))


def _answer_to(owners: list[tuple[AcceptedConnection, int]]) -> Callable[[list[Answer]], None]:
    """Gives each client its part of the answers."""

    def done(answers: list[Answer]) -> None:
        at = 0
        for connection, count in owners:
            if connection.is_open:
                connection.write(frame(pack_answers(answers[at : at + count])))
                if connection.unsent_bytes > _UNSENT_BYTES_MAX:
                    connection.abort()  # it asks, and does not read the answers
            at += count

    return done
