"""The handshake of a link: both ends prove that they belong to the overlay, before anything else is read.

    dialler   H  which overlay and plan it goes by, who it is, whom it wants, a random number
    acceptor  C  a random number
    dialler   P  HMAC of both
    acceptor  W  HMAC of both; or R and why not

On a machine the secret of the overlay proves it. Between machines TLS has done so before, by a certificate with the
broker's name; then the secret is empty, and the handshake says only who is meant and what does not fit.
"""

from __future__ import annotations

import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Final

from surecast.broker.replica.handshake import RefusalError, proof, refusal
from surecast.errors import PeerError
from surecast.protocol.overlay.overlay_plan import OverlayPlan

__all__ = ["HANDSHAKE_BYTES_MAX", "AcceptingHandshake", "DiallingHandshake", "LinkIdentity"]

HANDSHAKE_BYTES_MAX: Final = 4 << 10
_VERSION: Final = 1
_TEXTS: Final = ("overlay", "broker", "to", "hash", "nonce")


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """The identity of a broker on its links: overlay, name, the plan that it goes by, and its secret."""

    overlay: str
    broker: str
    plan: OverlayPlan
    secret: bytes


@dataclass(frozen=True, slots=True)
class _Greeting:
    """The first word of a dialler."""

    overlay: str
    broker: str
    to: str
    epoch: int
    hash: str
    nonce: str

    def encode(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return b"H" + json.dumps({"version": _VERSION, **fields}).encode()

    @classmethod
    def decode(cls, data: bytes) -> _Greeting:
        try:
            fields = json.loads(data[1:]) if data[:1] == b"H" else None
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise PeerError("handshake: these bytes are none; is the other end a broker of an overlay?")
        if fields.get("version") != _VERSION:
            raise PeerError(f"handshake: version {fields.get('version')!r}; this broker speaks {_VERSION}")
        texts, epoch = [fields.get(name) for name in _TEXTS], fields.get("epoch")
        if not all(isinstance(text, str) for text in texts) or not isinstance(epoch, int) or isinstance(epoch, bool):
            raise PeerError("handshake: overlay, broker, to, hash and nonce are text, and epoch is a number")
        overlay, broker, to, plan_hash, nonce = texts
        return cls(str(overlay), str(broker), str(to), epoch, str(plan_hash), str(nonce))


class DiallingHandshake:
    """The side of the broker that dials `neighbour`.

    >>> from surecast.protocol.overlay.overlay_plan import Tree
    >>> plan = OverlayPlan(("b1", "b2"), (("b1", "b2"),), (Tree((("b1", "b2"),)),))
    >>> dialler = DiallingHandshake(LinkIdentity("shop", "b1", plan, b"secret"), "b2")
    >>> acceptor = AcceptingHandshake(LinkIdentity("shop", "b2", plan, b"secret"))
    >>> challenge = acceptor.receive(dialler.greet())
    >>> welcome = acceptor.receive(dialler.receive(challenge))
    >>> dialler.receive(welcome)
    b''
    >>> acceptor.neighbour, dialler.is_complete, acceptor.is_complete
    ('b1', True, True)
    """

    def __init__(self, identity: LinkIdentity, neighbour: str):
        self.neighbour = neighbour
        self.is_complete = False
        self._secret = identity.secret
        self._greeting = _Greeting(
            identity.overlay,
            identity.broker,
            neighbour,
            identity.plan.epoch,
            identity.plan.hash,
            secrets.token_hex(16),
        ).encode()
        self._challenge = b""

    def greet(self) -> bytes:
        """Returns what to say first."""
        return self._greeting

    def receive(self, data: bytes) -> bytes:
        """Takes in what the other end said; returns the answer, empty at the end. RefusalError where it says no."""
        if data[:1] == b"R":
            raise RefusalError(data[1:].decode(errors="replace"))
        if self.is_complete:
            raise PeerError("handshake: it is over")
        if not self._challenge:
            if data[:1] != b"C":
                raise PeerError("handshake: it was not answered by a challenge; is this the link port of a broker?")
            self._challenge = data
            return b"P" + proof(self._secret, "dial", self._greeting, data)
        if not hmac.compare_digest(data, b"W" + proof(self._secret, "accept", self._greeting, self._challenge)):
            raise PeerError("handshake: the other end does not have the same secret")
        self.is_complete = True
        return b""


class AcceptingHandshake:
    """The side of the broker that is dialled. `certificate_name` is the name in the certificate of the other end, None
    where the link is not TLS. `reason` is why the other end was refused: its answer is to be sent, then closed."""

    def __init__(self, identity: LinkIdentity, certificate_name: str | None = None):
        self.neighbour = ""
        self.reason = ""
        self.is_complete = False
        self._identity = identity
        self._certificate_name = certificate_name
        self._said: tuple[bytes, bytes] | None = None

    def receive(self, data: bytes) -> bytes:
        """Takes in what the other end said; returns the answer."""
        if self.is_complete or self.reason:
            raise PeerError("handshake: it is over")
        secret = self._identity.secret
        if self._said is None:
            _Greeting.decode(data)
            self._said = (data, b"C" + secrets.token_bytes(16))
            return self._said[1]
        greeting = _Greeting.decode(self._said[0])
        if hmac.compare_digest(data, b"P" + proof(secret, "dial", *self._said)):
            self.reason = self._problem(greeting)
        else:
            self.reason = "the secret is not that of this overlay"
        if self.reason:
            return refusal(self.reason)
        self.neighbour, self.is_complete = greeting.broker, True
        return b"W" + proof(secret, "accept", *self._said)

    def _problem(self, greeting: _Greeting) -> str:
        """Returns why a broker that has proven itself cannot be a neighbour; nothing where it can."""
        identity, plan = self._identity, self._identity.plan
        if greeting.overlay != identity.overlay:
            return f"this is the overlay {identity.overlay}, not {greeting.overlay}"
        if greeting.to != identity.broker:
            return f"this is broker {identity.broker}, not {greeting.to}"
        if self._certificate_name is not None and self._certificate_name != greeting.broker:
            return f"the certificate is that of {self._certificate_name or 'nobody'}, not of {greeting.broker}"
        if greeting.epoch != plan.epoch:
            text = f"the plans differ: epoch {greeting.epoch} at {greeting.broker}, {plan.epoch} at {identity.broker}"
            return f"{text}; give all brokers the same file"
        if greeting.hash != plan.hash:
            text = f"the plans of epoch {plan.epoch} differ: {greeting.hash} at {greeting.broker}, {plan.hash} at"
            return f"{text} {identity.broker}; give all brokers the same file"
        if greeting.broker not in plan.brokers or greeting.broker not in plan.neighbours(identity.broker):
            return f"{greeting.broker} is no neighbour of {identity.broker} in the plan"
        return ""
