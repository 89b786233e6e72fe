"""Finds ports for servers that are to be started, and started again, on this machine."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Final

from surecast.errors import ConfigurationError

__all__ = ["free_port", "free_ports"]

_LOWEST: Final = 10_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_DEFAULT: Final = 32_768
_TRIES_MAX: Final = 10_000


def free_port() -> int:
    """Returns one free port of loopback, as `free_ports` does."""
    return free_ports(1)[0]


def free_ports(count: int, but: Collection[int] = ()) -> list[int]:
    """Returns different ports of loopback at which nobody listens now, none of them in `but`.

    They lie below those that the system gives to outgoing connections: otherwise such a connection could have the port
    when its server starts again.

    >>> len(set(free_ports(3))), free_ports(0)
    (3, [])
    """
    below = _ephemeral_from()
    draw = random.SystemRandom()
    held: dict[int, socket.socket] = {}
    try:
        for _ in range(_TRIES_MAX):
            if len(held) == count:
                return list(held)
            port = draw.randrange(_LOWEST, below)
            if port in but or port in held:
                continue
            probe = socket.socket()
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                probe.close()
            else:
                held[port] = probe
    finally:
        for each in held.values():
            each.close()
    raise ConfigurationError(f"{count} free ports between {_LOWEST} and {below} were not found; name them yourself")


def _ephemeral_from() -> int:
    """Returns the first port that the system gives to outgoing connections."""
    try:
        first = int(_EPHEMERAL.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL_DEFAULT
    return first if first > _LOWEST + 1000 else 65_536  # where they begin low, there is no better range
