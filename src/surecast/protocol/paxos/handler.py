"""The interface of an application that is replicated (the Handler of P2S, Listing 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Context", "Handler", "InPieces", "InPlace", "WithEffects"]


@dataclass(slots=True)
class Context:
    """Where a command stands: its instance, and the time of its entry. The only clock a handler may look at."""

    slot: int = 0
    time_us: int = 0


class Handler(Protocol):
    """A deterministic state machine: the same commands give the same replies and the same state everywhere.

    It must not raise, look at a clock, or draw random numbers.
    """

    def execute(self, command: bytes, context: Context) -> bytes:
        """Applies a command and answers it."""

    def snapshot(self) -> bytes:
        """The whole state. Equal states must give equal bytes."""

    def restore(self, state: bytes) -> None:
        """Replaces the state by that of a snapshot; empty bytes are the initial state."""


@runtime_checkable
class InPieces(Protocol):
    """The interface that a handler of a large state may offer beside `snapshot`: then it is never in memory twice as a
    whole."""

    def snapshot_pieces(self) -> Iterator[bytes]:
        """Yields what `snapshot` returns, piece by piece."""


@runtime_checkable
class InPlace(Protocol):
    """The interface that a handler of large commands may offer beside `execute`: then they are not copied for it."""

    def execute_in(self, data: bytes, begin: int, end: int, context: Context) -> bytes:
        """Applies the command `data[begin:end]` and answers it."""


@runtime_checkable
class WithEffects(Protocol):
    """An optional part of a handler, so that replicas notice when they make different things of the same commands."""

    def effects(self, slot: int) -> bytes:
        """Returns a few bytes about what changed up to this instance: counts, sums, check sums.

        It is called after every `CHECKPOINT_EVERY` instances. The bytes must be equal on all replicas, so nothing that
        only the replica of a client knows may go into them; and what is summed up from call to call must be part of
        the snapshot.
        """
