"""The broker's durable state: a map of keys to values that changes in whole commits.

`open_store` chooses by durability: `full` and `os` are a `SqliteStore` in a folder, `memory` is a `MemoryStore`.
Whatever keeps the promises of `Store` can stand in for them.
"""

from __future__ import annotations

from pathlib import Path

from surecast.broker.store_base import (
    DURABILITIES,
    Durability,
    MemoryStore,
    Operation,
    Store,
    StoreError,
    StoreStatistics,
)
from surecast.broker.store_sqlite import Cleaning, SqliteStore
from surecast.errors import ConfigurationError

__all__ = [
    "DURABILITIES",
    "Cleaning",
    "Durability",
    "MemoryStore",
    "Operation",
    "SqliteStore",
    "Store",
    "StoreError",
    "StoreStatistics",
    "open_store",
]


def open_store(folder: Path | None, durability: Durability = "full") -> Store:
    """The store of a folder, made if it is not there; `memory` needs no folder.

    >>> store = open_store(None, "memory")
    >>> store.commit([(b"key", b"value")])
    >>> list(store.items())
    [(b'key', b'value')]
    """
    if durability not in DURABILITIES:
        raise ConfigurationError(f"durability: {durability!r} is unknown; write one of {', '.join(DURABILITIES)}")
    if durability == "memory":
        return MemoryStore()
    if folder is None:
        raise ConfigurationError(f"durability: {durability!r} needs a folder to write to; name one, or write 'memory'")
    return SqliteStore(folder, durability)
