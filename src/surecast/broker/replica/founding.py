"""Founding a group: an explicit act, once, before its replicas run.

A founding is a number drawn at random. It stands in the group's file and in the store of every replica, and replicas of
another founding are not let in. A founder starts only with a store that was made for it here: empty data under the file
of a group mean that a disk was lost. Had two of three founders begun anew with empty disks, they would be a majority
that has forgotten everything.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from surecast.broker.private import write_private
from surecast.broker.replica.group_file import GroupSpec, load_group
from surecast.broker.segment_store import SegmentStore
from surecast.broker.store_base import Store
from surecast.errors import ConfigurationError

__all__ = [
    "FOUNDING_KEY",
    "LostStateError",
    "check_store",
    "found_replica",
    "found_store",
    "new_founding",
    "write_founding",
]

FOUNDING_KEY: Final = b"F"
"""The record with the founding of a store."""


class LostStateError(ConfigurationError):
    """A founder of a group has no state: to start it again does not help."""


def new_founding() -> str:
    """Draws a founding."""
    return secrets.token_hex(16)


def found_store(store: Store, founding: str) -> None:
    """Makes an empty store that of a founder. ConfigurationError where a replica has used it already."""
    if any(key != FOUNDING_KEY for key, _ in store.items()):
        raise ConfigurationError("it has the data of a replica already; a group is founded once, with empty stores")
    store.commit([(FOUNDING_KEY, founding.encode())])


def found_replica(group: GroupSpec, number: int, founding: str | None = None) -> Path:
    """Makes the store of a founder, on the machine that it is to run on, and returns its folder.

    `founding` is that of the group's file where it is left out. ConfigurationError says why it cannot be done.
    """
    founding = founding or group.founding
    if founding is None:
        first = group.founding_command(number).partition(" --id")[0]
        raise ConfigurationError(f"the group {group.name} has no founding yet; first run {first}")
    if group.replica(number).joins:
        raise ConfigurationError(f"replica {number} joins the group {group.name} later: it is started, not founded")
    folder = group.folder(number)
    with SegmentStore(folder, group.durability) as store:
        try:
            found_store(store, founding)
        except ConfigurationError as error:
            raise ConfigurationError(f"{folder}: {error}") from None
    return folder


def write_founding(path: Path, founding: str, load: Callable[[Path], GroupSpec] = load_group) -> None:
    """Adds a founding to the file of a group that has none, at its end. ConfigurationError says why it cannot."""
    group = load(path)
    if group.founding is not None:
        raise ConfigurationError(f"{path}: the group {group.name} was founded before, as {group.founding}")
    text = path.read_text(encoding="utf-8")
    new = f"{text.rstrip()}\nfounding: {founding}  # drawn when the group was founded\n"
    half = path.with_name(f".{path.name}.new")
    write_private(half, new)
    try:
        if load(half).founding != founding:
            raise ConfigurationError(f"{path}: write founding: {founding} into it yourself")
    finally:
        half.unlink(missing_ok=True)
    write_private(path, new)


def check_store(group: GroupSpec, number: int, store: SegmentStore) -> None:
    """Raises where a founder would start with an empty store, and says what to do.

    LostStateError where the group was founded, ConfigurationError where it was not yet.
    """
    if group.replica(number).joins or store.statistics().live_keys:
        return
    kind = ConfigurationError if group.founding is None else LostStateError
    raise kind(
        f"replica {number} of the group {group.name}: there are no data in {store.folder}. If they are lost: "
        f"{group.remedy(number)}. If most replicas have lost theirs, make a new group and restore a backup there. If "
        f"the group has never run, found it: {group.founding_command(number)}"
    )
