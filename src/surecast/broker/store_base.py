"""A store: a durable map of keys to values that changes in whole commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from surecast.errors import SurecastError

__all__ = [
    "DURABILITIES",
    "DamagedError",
    "Durability",
    "MemoryStore",
    "Operation",
    "Store",
    "StoreError",
    "StoreStatistics",
]

Durability: TypeAlias = Literal["full", "os", "memory"]
"""The failures that a commit survives once it has returned.

- `full`: loss of power. The disk has confirmed the data before `commit` returns.
- `os`: the end of the broker process, even by `kill -9`. The data is with the operating system; a loss of power may
  take the last commits, and always the last ones only.
- `memory`: nothing. The state is gone when the broker ends.
"""
DURABILITIES: tuple[Durability, ...] = ("full", "os", "memory")

Operation: TypeAlias = tuple[bytes, bytes | None]
"""A key and its new value, or None to delete the key."""


class StoreError(SurecastError):
    """The store cannot be opened, read or written; the message names the file and says what to do."""


class DamagedError(StoreError):
    """A store that lost or changed something it had confirmed; `path` and `at` say where, `reason` what."""

    def __init__(self, path: Path, at: int, reason: str, remedy: str = ""):
        super().__init__(f"{path}: damaged at byte {at:,}: {reason}" + (f"; {remedy}" if remedy else ""))
        self.path = path
        self.at = at
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The size of a store: its live keys and values, and the files that hold them."""

    live_keys: int
    live_bytes: int
    log_bytes: int
    rows: int
    commits: int = 0
    """The number of the last commit."""
    in_doubt: bool = False
    """True where the last commits before the start may be lost."""


class Store(Protocol):
    """A durable map that changes in whole commits. One caller at a time."""

    @property
    def folder(self) -> Path | None:
        """The folder that it is in, and locks; None where it is in memory only."""

    @property
    def durability(self) -> Durability:
        """The failures that a commit survives once it has returned."""

    def commit(self, operations: Iterable[Operation]) -> None:
        """Applies all operations or none, the later ones over the earlier ones, and returns when they are durable.

        A commit that raises StoreError has changed nothing; the same operations may be committed again.
        """

    def write(self, operations: Iterable[Operation]) -> None:
        """As `commit`, but they need not be durable before the next `barrier` is over. Waits for the one before."""

    def barrier(self) -> Callable[[], None] | None:
        """Returns what makes all that was written durable, for any thread to call; None where all of it is.

        It raises StoreError where the disk does not confirm that.
        """

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every live pair once, in no promised order. Meant for the start: commit nothing while it runs."""

    def statistics(self) -> StoreStatistics:
        """The present size."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what the operator should know of the state in which the store was opened."""

    def close(self) -> None:
        """Lets go of the files. Closing twice is harmless."""


class MemoryStore:
    """A store that lasts as long as the object.

    >>> store = MemoryStore()
    >>> store.commit([(b"a", b"1"), (b"b", b"2"), (b"a", None)])
    >>> list(store.items())
    [(b'b', b'2')]
    """

    durability: Durability = "memory"
    folder: Path | None = None
    warnings: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._pairs: dict[bytes, bytes] = {}

    def commit(self, operations: Iterable[Operation]) -> None:
        """Applies the operations; nothing is written anywhere."""
        for key, value in operations:
            if value is None:
                self._pairs.pop(key, None)
            else:
                self._pairs[key] = value

    def write(self, operations: Iterable[Operation]) -> None:
        """Commits."""
        self.commit(operations)

    def barrier(self) -> Callable[[], None] | None:
        """Returns nothing: there is no disk to wait for."""
        return None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every live pair once."""
        return iter(self._pairs.items())

    def statistics(self) -> StoreStatistics:
        """The present size; there is no log."""
        return StoreStatistics(len(self._pairs), sum(len(k) + len(v) for k, v in self._pairs.items()), 0, 0)

    def close(self) -> None:
        """Forgets everything."""
        self._pairs.clear()
