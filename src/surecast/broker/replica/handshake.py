"""The handshake of a connection. Both ends prove that they have the secret; neither says it.

    dialler   H  who it is, which group it wants, a random number
    acceptor  C  a random number
    dialler   P  HMAC of both
    acceptor  W  HMAC of both and of its welcome; or R and why not

Frames after the welcome carry a checksum, not a proof: the links of a group belong on a network that can be trusted.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeGuard

from surecast.errors import PeerError

__all__ = ["HELLO_BYTES_MAX", "Hello", "RefusalError", "Role", "Welcome", "proof", "refusal", "shake_hands", "welcome"]

Role: TypeAlias = Literal["peer", "client", "admin"]
HELLO_BYTES_MAX: Final = 16 << 10
_VERSION: Final = 3
_PROOF_BYTES: Final = 32


class RefusalError(PeerError):
    """The other end does not want this connection; the message says why."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who dials: a replica or a client by its number, and the group it wants.

    `book` has addresses that a replica knows, its own among them. `founding` is that of its group, `start` the number
    that it drew when it started. `plan` is that of the overlay in which the group is a broker, if it is one.

    >>> hello = Hello("peer", "plant", 2, token=9, nonce="00ff")
    >>> Hello.decode(hello.encode()) == hello
    True
    """

    role: Role
    group: str
    number: int
    token: int = 0
    nonce: str = ""
    book: Mapping[str, Any] = field(default_factory=dict)
    founding: str = ""
    start: int = 0
    plan: str = ""

    def encode(self) -> bytes:
        """As bytes."""
        return b"H" + json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """Reads what `encode` wrote; PeerError where it is none."""
        fields = _read(b"H", data)
        role, group, nonce, founding = (fields.get(name) for name in ("role", "group", "nonce", "founding"))
        plan = fields.get("plan", "")
        number, token, start, book = (fields.get(name) for name in ("number", "token", "start", "book"))
        if fields.get("version") != _VERSION or role not in ("peer", "client", "admin"):
            raise PeerError(f"handshake: version {fields.get('version')!r} and role {role!r} are not known here")
        if not (isinstance(group, str) and isinstance(nonce, str)):
            raise PeerError("handshake: group and nonce are text")
        if not (isinstance(founding, str) and isinstance(plan, str)):
            raise PeerError("handshake: founding and plan are text")
        if not isinstance(book, dict):
            raise PeerError("handshake: the book is a mapping")
        if not (_is_number(number) and _is_number(token) and _is_number(start)):
            raise PeerError("handshake: number, token and start are whole numbers of 64 bits")
        return cls(role, group, number, token, nonce, book, founding, start, plan)


@dataclass(frozen=True, slots=True)
class Welcome:
    """Who answered: the replica, its token, the requests a client may have in flight, and the addresses it knows."""

    replica: int
    token: int
    window: int = 0
    book: Mapping[str, Any] = field(default_factory=dict)


def proof(secret: bytes, end: Literal["dial", "accept"], *said: bytes) -> bytes:
    """Returns a proof over what was said, which only an end with the secret can make.

    >>> proof(b"secret", "dial", b"hello", b"1") == proof(b"secret", "dial", b"hello", b"2")
    False
    """
    content = b"".join(len(part).to_bytes(4, "big") + part for part in (end.encode(), *said))
    return hmac.digest(secret, content, "sha256")


def welcome(secret: bytes, given: Welcome, *said: bytes) -> bytes:
    """The last word of the acceptor."""
    fields = {"replica": given.replica, "token": given.token, "window": given.window, "book": given.book}
    body = json.dumps(fields).encode()
    return b"W" + proof(secret, "accept", *said, body) + body


def refusal(reason: str) -> bytes:
    """The last word of an acceptor that says no."""
    return b"R" + reason.encode()


async def shake_hands(
    send: Callable[[bytes], Awaitable[None]], receive: Callable[[], Awaitable[bytes]], hello: Hello, secret: bytes
) -> Welcome:
    """The dialler's side. RefusalError where the other end says no, PeerError where it cannot prove what it is."""
    first = hello.encode()
    await send(first)
    challenge = _unless_refused(await receive())
    if challenge[:1] != b"C":
        raise PeerError("handshake: it was not answered by a challenge; is this the port of a replica?")
    await send(b"P" + proof(secret, "dial", first, challenge))
    answer = _unless_refused(await receive())
    body = answer[1 + _PROOF_BYTES :]
    if not hmac.compare_digest(answer[: 1 + _PROOF_BYTES], b"W" + proof(secret, "accept", first, challenge, body)):
        raise PeerError("handshake: the other end does not have the same secret")
    fields = _read(b"W", b"W" + body)
    try:
        return Welcome(int(fields["replica"]), int(fields["token"]), int(fields["window"]), dict(fields["book"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError(f"handshake: a welcome that cannot be read: {error!r}") from error


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < 1 << 64


def _unless_refused(data: bytes) -> bytes:
    if data[:1] == b"R":
        raise RefusalError(data[1:].decode(errors="replace"))
    return data


def _read(kind: bytes, data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data[1:]) if data[:1] == kind else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise PeerError("handshake: these bytes are none; is the other end a replica or a client of one?")
    return fields
