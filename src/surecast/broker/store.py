"""The broker's durable state: a map of keys to values that changes in whole commits.

`open_store` chooses by durability: `full` and `os` are a `SegmentStore` in a folder, `memory` is a `MemoryStore`.
Whatever keeps the promises of `Store` can stand in for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from surecast.broker.segment_store import SegmentStore
from surecast.broker.store_base import (
    DURABILITIES,
    DamagedError,
    Durability,
    MemoryStore,
    Operation,
    Store,
    StoreError,
    StoreStatistics,
)
from surecast.errors import ConfigurationError

__all__ = [
    "DURABILITIES",
    "DamagedError",
    "Durability",
    "MemoryStore",
    "Operation",
    "SegmentStore",
    "Store",
    "StoreError",
    "StoreStatistics",
    "open_store",
]


_FORMER: Final = "broker.db"
_SEGMENT_BYTES: Final = 4 << 20
_SLACK_BYTES: Final = 8 << 20


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
    if (folder / _FORMER).exists():
        raise StoreError(
            f"{folder / _FORMER}: the state of an earlier version of surecast, which this one cannot read; move it "
            "away to begin with an empty state, or go on with that version"
        )
    remedy = f"run surecast broker salvage {folder} to keep what stands before it, or restore the folder from a copy"
    return SegmentStore(folder, durability, _SEGMENT_BYTES, _SLACK_BYTES, may_lose=True, remedy=remedy)
