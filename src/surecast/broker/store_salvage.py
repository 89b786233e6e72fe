"""Salvages a damaged store: keeps the state before the damage, and sets the damaged files aside.

The state is the one after the last commit that can be read without a gap. Pairs that cleaning had moved from files that
are gone by now stand after the damage: they were live before it, and are taken along. What is later is given up, since
half of it would be a state that no broker was ever in.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from surecast.broker.private import make_private
from surecast.broker.replica.founding import FOUNDING_KEY
from surecast.broker.segment_file import Scan, next_entry, scan
from surecast.broker.segment_load import LogReader, segment_number
from surecast.broker.segment_mark import MARK_NAME, MarkState, read_mark
from surecast.broker.segment_store import SegmentStore
from surecast.broker.store_base import DamagedError, StoreError

__all__ = ["Salvaged", "salvage"]


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The parts kept and given up; `reason` is the damage. Nothing was set aside where it could be opened."""

    reason: str
    kept_commit: int
    last_commit: int
    """The last commit that is known to have been there."""
    pairs: int
    moved: int
    aside: Path | None


def salvage(folder: Path, last_resort: bool = False) -> Salvaged:
    """Makes a store in the folder of what can be read of it; StoreError where no store is there or it is in use.

    A store that opens as it is stays as it is. That of a replica is refused unless it is the last resort: what is
    salvaged may lack votes that the replica gave.
    """
    names = sorted(folder.glob("segment-*.log"))
    if not names and not (folder / MARK_NAME).exists():
        raise StoreError(f"{folder}: there is no store in this folder; name the folder of a broker's state")
    state, number, moved, last = _readable(folder, names)
    if FOUNDING_KEY in state and not last_resort:
        raise StoreError(
            f"{folder}: the state of a replica, whose promises to the others may be lost; put a new one in its place, "
            "by surecast cluster repair; only if no majority of the group is left add --last-resort"
        )
    try:
        with SegmentStore(folder, "full", may_lose=True, sync_every_s=0) as store:
            found = store.statistics()
            return Salvaged(store.doubt, found.commits, found.commits, found.live_keys, 0, None)
    except DamagedError as error:
        reason = str(error)
    aside = _set_aside(folder, names)
    with SegmentStore(folder, "full", sync_every_s=0) as store:
        store.commit(state.items())
    return Salvaged(reason, number, last, len(state), moved, aside)


def _readable(folder: Path, names: list[Path]) -> tuple[dict[bytes, bytes], int, int, int]:
    """Returns the state before the damage, its last commit, the moved pairs in it, and the last commit known of."""
    scans = {segment_number(path): scan(path.read_bytes()) for path in names}
    mark = _mark_of(folder, scans)
    log = LogReader(folder, mark, may_lose=True)
    log.read_files()
    state = _values(log)
    end, begin = log.next - 1, log.files[0].number if log.files else 0
    last, moved = max(mark.number, mark.synced, end), 0
    for number, found in scans.items():
        if found is None or found.head.store != mark.store or number < begin:
            continue
        data = (folder / f"segment-{number:010d}.log").read_bytes()
        entry = next_entry(data, 0, found.head.salt)
        while entry is not None:
            last = max(last, entry.number)
            if entry.number > end and log.oldest < begin and entry.oldest <= begin:
                for key, value in entry.pairs[len(entry.pairs) - entry.moved :]:
                    moved += key not in state
                    state.setdefault(key, value)
            entry = next_entry(data, entry.end, found.head.salt)
    return state, end, moved, last


def _mark_of(folder: Path, scans: dict[int, Scan | None]) -> MarkState:
    """Returns the mark, with nothing required of the log; one made up for the store of most files where it is lost."""
    try:
        found = read_mark(folder / MARK_NAME)
        store, number = found.store, found.number
    except (OSError, StoreError):
        stores = [each.head.store for each in scans.values() if each is not None]
        store, number = max(stores, key=stores.count, default=0), 0
    return MarkState(store, number, 0, False, False, False, False)


def _values(log: LogReader) -> dict[bytes, bytes]:
    """Returns every live pair of a log."""
    contents = {one.number: one.path.read_bytes() for one in log.files}
    return {key: log.value(location, contents) for key, location in log.index.items()}


def _set_aside(folder: Path, names: list[Path]) -> Path:
    """Moves the files of the store into a folder beside them."""
    base = folder / time.strftime("damaged-%Y%m%d-%H%M%S")
    aside, count = base, 1
    while aside.exists():
        count += 1
        aside = base.with_name(f"{base.name}-{count}")
    make_private(aside)
    for path in (*names, *sorted(folder.glob("spare-*.log")), folder / MARK_NAME):
        if path.exists():
            path.rename(aside / path.name)
    return aside
