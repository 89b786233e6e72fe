"""Where the replicas of a group can be reached.

The log decides *who* the members are; *where* they are is told from replica to replica. Each entry of the book has the
incarnation of the replica that wrote it about itself, so that the newest one wins; entries of the group file have
incarnation 0. The book is exchanged when a link comes up and whenever it changes, and is kept in the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from surecast.errors import ConfigurationError, PeerError

__all__ = ["Address", "Book", "Place", "parse_address"]

_KEY: Final = b"A"


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """An address as people write it.

    >>> parse_address("127.0.0.1:7001"), str(parse_address("[::1]:7001"))
    (Address(host='127.0.0.1', port=7001), '[::1]:7001')
    """
    host, _, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(f"{text!r} is no address; write an IPv6 address in brackets, such as [::1]:7001")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigurationError(f"{text!r} is no address; write host:port, such as 127.0.0.1:7001")
    return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses of a replica, by its own word in an incarnation; `client` is None where it takes no requests."""

    peer: Address
    client: Address | None = None
    incarnation: int = 0


class Book:
    """The places of all replicas known.

    >>> book = Book({1: Place(parse_address("a:1"))})
    >>> book.merge({"1": ["b:1", None, 4], "2": ["c:1", "c:2", 1]}), book.merge({"1": ["a:1", None, 3]})
    ([1, 2], [])
    >>> str(book[1].peer), [key for key, _ in book.records([2])]
    ('b:1', [b'A\\x00\\x02'])
    """

    def __init__(self, places: Mapping[int, Place] | None = None):
        self._places = dict(places or {})

    def __getitem__(self, replica: int) -> Place:
        return self._places[replica]

    def __contains__(self, replica: int) -> bool:
        return replica in self._places

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._places))

    def get(self, replica: int) -> Place | None:
        """The place of a replica, where it is known."""
        return self._places.get(replica)

    def enter(self, replica: int, place: Place) -> bool:
        """Enters a place unless a newer one is known; true where that changed something."""
        known = self._places.get(replica)
        if known == place or (known is not None and known.incarnation > place.incarnation):
            return False
        self._places[replica] = place
        return True

    def merge(self, told: Mapping[str, Any]) -> list[int]:
        """Enters what another replica told; the replicas whose place changed. PeerError where it is no book."""
        read = _read(told)
        # Two words of the same incarnation are the same, unless both come from group files: then the own file counts.
        return [one for one, place in read.items() if self._is_news(one, place) and self.enter(one, place)]

    def _is_news(self, replica: int, place: Place) -> bool:
        known = self._places.get(replica)
        return known is None or place.incarnation > known.incarnation

    def told(self) -> dict[str, Any]:
        """Returns the addresses to tell others."""
        return {str(replica): _fields(self._places[replica]) for replica in self}

    def records(self, replicas: list[int]) -> list[tuple[bytes, bytes]]:
        """Some entries as records of a store."""
        return [
            (_KEY + replica.to_bytes(2, "big"), json.dumps(_fields(self._places[replica])).encode())
            for replica in replicas
        ]

    def restore(self, key: bytes, value: bytes) -> None:
        """Enters a record that `records` made; others are passed over."""
        if key[:1] == _KEY and len(key) == 3:
            self.merge({str(int.from_bytes(key[1:], "big")): json.loads(value)})


def _fields(place: Place) -> list[Any]:
    return [str(place.peer), None if place.client is None else str(place.client), place.incarnation]


def _read(told: Mapping[str, Any]) -> dict[int, Place]:
    try:
        read = {
            int(replica): Place(
                parse_address(peer), None if client is None else parse_address(client), int(incarnation)
            )
            for replica, (peer, client, incarnation) in told.items()
        }
    except (ConfigurationError, AttributeError, TypeError, ValueError) as error:
        raise PeerError(f"addresses: what a replica told of them cannot be read: {error}") from error
    if any(not 0 < replica < 1 << 16 for replica in read):
        raise PeerError("addresses: a replica's number has 16 bits")
    return read
