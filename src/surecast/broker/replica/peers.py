"""The other replicas: links to them, links from them, and where they are."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from surecast.broker.replica.accepted_connection import AcceptedConnection
from surecast.broker.replica.addresses import Address, Book, Place
from surecast.broker.replica.frames import begin_frame, frame
from surecast.broker.replica.handshake import Hello, Role, Welcome
from surecast.broker.replica.links import PeerLink
from surecast.broker.replica.status import PeerStatus
from surecast.broker.replica.unix_socket import listen_unix
from surecast.broker.service_log import BrokerLog
from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.paxos import Message
from surecast.protocol.paxos.clocks import Clocks
from surecast.protocol.paxos.membership import Membership
from surecast.protocol.paxos.wire import encode_parts

__all__ = ["PeerListener", "Peers"]

_BOOK: Final = b"B"
_UNORDERED: Final = b"S"
_BESIDE_THE_PROTOCOL: Final = frozenset(_BOOK + _UNORDERED)
_FRAME_BYTES_MAX: Final = 1 << 30
_ENCODED_MAX: Final = 64


class PeerListener(Protocol):
    """Receives what the peers of a replica send."""

    def received(self, sender: int, contents: list[bytes], start: int) -> None:
        """Messages of another replica, which drew this number at its start; PeerError where they are none."""

    def received_unordered(self, content: bytes) -> None:
        """Takes what another replica forwarded beside the protocol, unordered; PeerError where it makes no sense."""

    def met(self, sender: int) -> None:
        """Another replica has connected anew."""

    def keep(self, records: list[tuple[bytes, bytes]]) -> None:
        """Addresses that are new."""


class Peers:
    """All links of one replica."""

    def __init__(
        self,
        replica: int,
        group: str,
        secret: bytes,
        book: Book,
        listener: PeerListener,
        log: BrokerLog,
        link_delay_s: float | Mapping[int, float] = 0.0,
        queue_bytes_max: int = 8 << 20,
        founding: str = "",
        plan: str = "",
    ):
        self.id = replica
        self.founding = founding
        self.plan = plan
        self.group = group
        self.secret = secret
        self.book = book
        self.waiting = 0
        self.token = 0
        self.start = 0
        self.tokens: dict[int, int] = {}
        self._listener = listener
        self._log = log
        self._link_delay_s = link_delay_s
        self._queue_bytes_max = queue_bytes_max
        self._links: dict[int, PeerLink] = {}
        self._connections: dict[int, AcceptedConnection] = {}
        self._whys: dict[int, str] = {}
        self._encoded: dict[int, tuple[Message, bytes, bytes]] = {}  # the last proposals by identity, in two parts
        self._servers: list[asyncio.Server] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._membership: Membership

    async def open(self, own: Address, token: int, start: int, membership: Membership) -> Address:
        """Listens at the own address, and returns it with the port that it got."""
        self.token, self.start, self._membership = token, start, membership
        loop = asyncio.get_running_loop()
        try:
            tcp = await loop.create_server(self._accept, *own, start_serving=False)
            self._servers = [tcp]
            address = Address(own.host, tcp.sockets[0].getsockname()[1])
            if (local := listen_unix(address)) is not None:  # before TCP is open, so that nobody uses that
                try:
                    self._servers.append(await loop.create_unix_server(self._accept, sock=local))
                except BaseException:
                    local.close()
                    raise
            await tcp.start_serving()
        except OSError as error:
            for server in self._servers:
                server.close()
            raise ConfigurationError(f"replica {self.id}: cannot listen at {own}: {error.strerror}") from error
        return address

    def _accept(self) -> AcceptedConnection:
        return AcceptedConnection(self, _FRAME_BYTES_MAX, in_place=True)

    def hang_up(self) -> None:
        """Is silent from now on."""
        self._is_closed = True
        for connection in list(self._connections.values()):
            connection.abort()
        for peer in list(self._links):
            self._drop(peer)
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Hangs up, and returns when all connections are closed."""
        self.hang_up()
        while self._closing:
            await asyncio.gather(*self._closing)
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                for server in self._servers:
                    await server.wait_closed()

    # What is sent

    def post(self, messages: list[tuple[int, Message]]) -> None:
        """Puts messages into the next write of each link."""
        encoded = self._encoded
        for to, message in messages:
            link = self._links.get(to)
            if link is None or not link.is_up:
                continue
            if (known := encoded.get(id(message))) is not None:
                link.post(known[1], known[2])
                continue
            head, value = encode_parts(message)
            head = begin_frame(head, len(value))
            link.post(head, value)
            if value:  # a proposal goes to all, to some of them later, and is encoded once
                if len(encoded) >= _ENCODED_MAX:
                    encoded.clear()
                encoded[id(message)] = message, head, value

    def post_unordered(self, contents: list[bytes]) -> None:
        """Puts what the protocol does not know of into the next write of every link that is up."""
        for content in contents:
            data = frame(_UNORDERED + content)
            for link in self._links.values():
                if link.is_up:
                    link.post(data)

    def flush(self) -> None:
        """Writes what was posted, once for each link."""
        for link in self._links.values():
            if link.posted:
                link.flush()

    def check(self) -> None:
        """Gives up links on which nothing moves."""
        for link in list(self._links.values()):
            link.check()

    def choose(self, members: Iterable[int], is_new: bool, highest: int) -> None:
        """Links to all members and to those that dialled; one that joins also tries all others that it knows."""
        wanted = {*members, *self._connections}
        if is_new:
            wanted.update(self.book)
        wanted.discard(self.id)
        if wanted != self._links.keys():
            for peer in wanted:
                self.link(peer)
            for peer in [peer for peer in self._links if peer not in wanted and peer <= highest]:
                self._drop(peer)

    def link(self, peer: int) -> None:
        """Makes a link where there is none."""
        if peer not in self._links and peer != self.id and not self._is_closed:
            delay = self._link_delay_s
            delay_s = delay.get(peer, 0.0) if isinstance(delay, Mapping) else delay
            self._links[peer] = PeerLink(peer, self, self._queue_bytes_max, delay_s)

    def _drop(self, peer: int) -> None:
        task = asyncio.get_running_loop().create_task(self._links.pop(peer).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def enter(self, replica: int, place: Place) -> None:
        """Enters where a replica is, and tells the others."""
        if self.book.enter(replica, place):
            self._learned([replica])

    def _learned(self, replicas: list[int]) -> None:
        """Keeps and tells on what is new about addresses."""
        if not replicas or self._is_closed:
            return
        self._listener.keep(self.book.records(replicas))
        data = frame(_BOOK + json.dumps(self._told()).encode())
        for link in list(self._links.values()):
            if link.peer in replicas:
                link.redial()
            link.post(data)

    def _told(self) -> dict[str, Any]:
        """Returns what others need to know: places of members and of those that may join, not of those that were
        replaced."""
        membership = self._membership
        known = (*membership.ids(), self.id)
        return {
            one: place for one, place in self.book.told().items() if int(one) in known or int(one) > membership.highest
        }

    def is_up(self, peer: int) -> bool:
        """Returns whether there is a link to another replica."""
        link = self._links.get(peer)
        return link is not None and link.is_up

    def why_not(self, peer: int) -> str:
        """Returns why there is no link to another replica; empty where there is one, or nothing is known yet."""
        return self._whys.get(peer, "")

    def status(self, members: tuple[int, ...], silent_s: Mapping[int, float], clocks: Clocks) -> tuple[PeerStatus, ...]:
        """A look at all links. `silent_s` says how long nothing has come from each replica that was ever heard."""
        differences = {one: clocks.difference(one) for one in self._links}
        return tuple(
            PeerStatus(
                replica=one,
                address=str(self.book[one].peer) if one in self.book else "",
                is_member=one in members,
                up=link.is_up,
                heard=one in self._connections,
                queued_bytes=link.queued_bytes,
                dropped=link.dropped,
                silent_s=silent_s.get(one),
                clock_ahead_s=None if (found := differences[one]) is None else found.ahead_s,
                clock_error_s=None if found is None else found.error_s,
            )
            for one, link in sorted(self._links.items())
        )

    # What links ask for and tell

    def hello(self) -> Hello:
        """Returns the first frame to another replica that this one dials."""
        nonce = secrets.token_hex(16)
        return Hello("peer", self.group, self.id, self.token, nonce, self._told(), self.founding, self.start, self.plan)

    def address_of(self, peer: int) -> Address | None:
        """Where a replica is, as far as known."""
        place = self.book.get(peer)
        return None if place is None else place.peer

    def link_up(self, peer: int, welcome: Welcome) -> None:
        """A link to another replica is up."""
        self.tokens[peer] = welcome.token
        self._whys.pop(peer, None)
        self._log.info("link up", replica=self.id, peer=peer)
        with suppress(PeerError):
            self._merge_book(welcome.book)

    def link_down(self, peer: int, reason: str) -> None:
        """A link to another replica is down, or could not be made."""
        if self._whys.get(peer) != reason and not self._is_closed:
            self._whys[peer] = reason
            self._log.warning("link down", replica=self.id, peer=peer, reason=reason)

    # The handler of accepted connections

    def secret_of(self, role: Role) -> bytes:
        """Returns the secret that another replica must have."""
        return self.secret

    def refusal_reason(self, hello: Hello) -> str | None:
        """Returns why to refuse another replica, None to accept it."""
        if hello.role != "peer":
            return "this port is for other replicas"
        if hello.group != self.group:
            return f"this is a replica of the group {self.group!r}, not {hello.group!r}"
        if hello.founding != self.founding:
            return (
                f"this group {self.group!r} was founded as {self.founding or 'nothing'}, not as "
                f"{hello.founding or 'nothing'}; replicas of one group have the same founding in their files"
            )
        if hello.plan != self.plan:
            return (
                f"this group goes by {self.plan or 'no plan of an overlay'}, not by {hello.plan or 'none'}; give all "
                "replicas the same file"
            )
        if hello.number == self.id or not 0 < hello.number < 1 << 16:
            return f"this is replica {self.id}; another one has another number, from 1 to 65535"
        membership = self._membership
        if not membership.includes(self.id, self.token):
            return None  # one that has yet to join has the members of its file, and learns their tokens from the others
        for part in membership.configurations:
            if any(one == hello.number and token != hello.token for one, token in part.members):
                return f"replica {hello.number} of this group was created with another token"
        return None

    def welcome(self, hello: Hello) -> Welcome:
        """Returns the answer to another replica."""
        return Welcome(self.id, self.token, 0, self._told())

    def entered(self, connection: AcceptedConnection) -> None:
        """Another replica has dialled this one."""
        peer = connection.hello.number
        former = self._connections.get(peer)
        self._connections[peer] = connection
        if former is not None:
            former.abort()
        self.tokens[peer] = connection.hello.token
        self._listener.met(peer)
        self._merge_book(connection.hello.book)
        if not self._is_closed:
            self.link(peer)
            self._links[peer].poke()

    def received(self, connection: AcceptedConnection, frames: list[bytes]) -> None:
        """Messages of another replica."""
        sender = connection.hello.number
        if self._is_closed or self._connections.get(sender) is not connection:
            return
        for content in frames:
            if content and content[0] in _BESIDE_THE_PROTOCOL:
                frames = self._take_beside_the_protocol(frames)
                break
        self._listener.received(sender, frames, connection.hello.start)

    def _take_beside_the_protocol(self, frames: list[bytes]) -> list[bytes]:
        """Takes what is no message of the protocol; what is left."""
        rest = []
        for content in frames:
            kind = content[:1]
            if kind == _BOOK:
                self._merge_book(_read_book(bytes(content)))
            elif kind == _UNORDERED:
                self._listener.received_unordered(bytes(content[1:]))
            else:
                rest.append(content)
        return rest

    def _merge_book(self, told: Mapping[str, Any]) -> None:
        self._learned(self.book.merge(told))

    def left(self, connection: AcceptedConnection) -> None:
        """A link from another replica is down."""
        if self._connections.get(connection.hello.number) is connection:
            del self._connections[connection.hello.number]

    def refused(self, connection: AcceptedConnection, reason: str) -> None:
        """A connection was refused."""
        self._log.warning("connection refused", replica=self.id, address=connection.address, reason=reason)


def _read_book(content: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(content[1:])
    except (ValueError, RecursionError) as error:
        raise PeerError(f"addresses: {error}") from error
    if not isinstance(told, dict):
        raise PeerError("addresses: a mapping was expected")
    return told
