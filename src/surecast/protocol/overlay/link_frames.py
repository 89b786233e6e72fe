"""Hellos and pings: all that goes over a connection between brokers besides frames and acknowledgements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from surecast.errors import PeerError
from surecast.protocol.link import LinkHello
from surecast.protocol.overlay.overlay_frames import Written
from surecast.protocol.overlay.overlay_plan import OverlayPlan

__all__ = ["VERSION", "OverlayHello", "Ping", "Pong", "Received", "check_hello"]

VERSION: Final = 3
"""The version of the frames that this broker writes. It reads those up to this one."""


@dataclass(frozen=True, slots=True)
class OverlayHello:
    """The first thing that each end of a connection says: who it is and whom it means, the versions that it speaks, the
    plan that it goes by, and where the link is to go on."""

    broker: str
    to: str
    plan_epoch: int
    plan_hash: str
    link: LinkHello
    version_min: int = VERSION
    version_max: int = VERSION


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks whether the other end is there, and what time it is there."""

    number: int
    sent_s: float


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping, whose number and time it repeats; `answered_s` is the time at the end that answers."""

    number: int
    sent_s: float
    answered_s: float


Received: TypeAlias = OverlayHello | Ping | Pong | Written
"""Everything that can come over a connection."""


def check_hello(plan: OverlayPlan, name: str, neighbour: str, hello: OverlayHello) -> None:
    """Raises PeerError where the hello of a neighbour does not fit; `neighbour` is empty until it is known who calls.

    >>> from surecast.protocol.overlay.overlay_plan import Tree
    >>> plan = OverlayPlan(("b1", "b2"), (("b1", "b2"),), (Tree((("b1", "b2"),)),))
    >>> hello = OverlayHello("b2", "b1", 7, plan.hash, LinkHello((1, 0), (0, 0), 0, 100))
    >>> check_hello(plan, "b1", "b2", hello)
    Traceback (most recent call last):
    ...
    surecast.errors.PeerError: b2 goes by epoch 7 of the plan, b1 by epoch 1; give both the same plan file
    """
    other = hello.broker
    if hello.to != name or (neighbour and other != neighbour):
        raise PeerError(f"{other} calls {hello.to}; this is {name}, and it expects {neighbour or 'a neighbour'}")
    if other not in plan.brokers or other not in plan.neighbours(name):
        raise PeerError(f"{other} is no neighbour of {name} in the plan")
    if not hello.version_min <= VERSION <= hello.version_max:
        raise PeerError(
            f"{other} speaks the versions {hello.version_min} to {hello.version_max} of the overlay; {name} speaks "
            f"{VERSION}"
        )
    if hello.plan_epoch != plan.epoch:
        raise PeerError(
            f"{other} goes by epoch {hello.plan_epoch} of the plan, {name} by epoch {plan.epoch}; give both the same "
            "plan file"
        )
    if hello.plan_hash != plan.hash:
        raise PeerError(
            f"{other} goes by another plan of epoch {plan.epoch} than {name}: its hash is {hello.plan_hash}, here it "
            f"is {plan.hash}; give both the same plan file"
        )
