"""Matrices of measured round-trip times, alone or as slices of an archive."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from surecast.scenario.topology.raw import LINKS_MAX, RawTopology, ReadOptions
from surecast.scenario.topology.topology_file import BYTES_MAX, TopologyFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_rtt_matrix"]

_SECONDS = {"ms": 1e-3, "s": 1.0}
_LAST_NUMBER = re.compile(r"(\d+)\D*$", re.ASCII)
_TAR_MAGIC = b"ustar"
_TAR_MAGIC_AT = 257


def read_rtt_matrix(source: TopologyFile, options: ReadOptions) -> RawTopology:
    """Returns a topology in which every measured pair is a direct link with half of its mean round-trip time."""
    if options.unit is None:
        raise source.fail("a matrix of round-trip times does not name its unit; set the option unit to ms or s")
    if source.data[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        source = _choose_slice(source, options.slice)
    elif options.slice is not None:
        raise source.fail(f"slice {options.slice!r} was asked for, but the file is no archive; leave the option out")
    return _links(source, _matrix(source, options.limit), options.unit)


def _choose_slice(source: TopologyFile, wanted: int | str | None) -> TopologyFile:
    try:
        with tarfile.open(fileobj=io.BytesIO(source.data), mode="r:") as archive:
            members = {PurePosixPath(member.name).name: member for member in archive if member.isfile()}
            if not members:
                raise source.fail("the archive holds no files; expected matrices of round-trip times")
            if wanted is None and len(members) == 1:
                wanted = next(iter(members))
            chosen = _matching(members, wanted)
            if chosen is None:
                reason = "which one is not said" if wanted is None else f"none is called or numbered {wanted!r}"
                first, last = next(iter(members)), list(members)[-1]
                raise source.fail(
                    f"an archive of {len(members)} slices, {first} to {last}; {reason}; set the option slice"
                )
            file = archive.extractfile(members[chosen])
            data = b"" if file is None else file.read(BYTES_MAX)
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise source.fail(f"damaged or cut off archive ({error}); fetch it again") from None
    return TopologyFile(f"{source.name}({chosen})", data)


def _matching(members: dict[str, tarfile.TarInfo], wanted: int | str | None) -> str | None:
    """Returns the member with that name, or whose name has that number as its last one."""
    if str(wanted) in members:
        return str(wanted)
    for name in members:
        number = _LAST_NUMBER.search(name)
        if number and number[1].lstrip("0") == str(wanted).lstrip("0"):
            return name
    return None


def _matrix(source: TopologyFile, limit: int | None) -> NDArray[np.float64]:
    rows: list[NDArray[np.float64]] = []
    width = height = 0
    for number, line in source.lines():
        fields = line.split()
        width, height = width or len(fields), height + 1
        if len(fields) != width:
            raise source.fail(
                f"{len(fields)} entries in this row, {width} in the first; expected a square matrix", number
            )
        if height > width:
            raise source.fail(f"more rows than the {width} entries of a row; expected a square matrix", number)
        if limit is None or height <= limit:
            rows.append(_row(source, fields[:limit], number))
    if not rows:
        raise source.fail("the matrix is empty; expected one row a node")
    if height != width:
        raise source.fail(f"{height} rows of {width} entries; expected a square matrix, one row a node")
    return np.array(rows)


def _row(source: TopologyFile, fields: list[str], number: int) -> NDArray[np.float64]:
    try:
        row = np.array(fields, dtype=np.float64)
    except ValueError:
        row = np.array([source.number(text, "a round-trip time", number) for text in fields])
    if not np.isfinite(row).all():
        raise source.fail("an entry is not finite; write 0 or a negative number where there was no answer", number)
    return row


def _links(source: TopologyFile, rtt: NDArray[np.float64], unit: str) -> RawTopology:
    raw = RawTopology(source.name)
    for i in range(len(rtt)):
        raw.add_router(f"n{i}")
    upper = np.triu_indices(len(rtt), k=1)
    pairs = np.stack([rtt[upper], rtt.T[upper]])
    answered = pairs > 0
    directions = answered.sum(axis=0)
    linked = directions > 0
    if int(linked.sum()) > LINKS_MAX:
        raise source.fail(f"{int(linked.sum()):,} measured pairs; the limit is {LINKS_MAX:,}: set the option limit")
    mean_rtt_s = np.where(answered, pairs, 0.0).sum(axis=0)[linked] / directions[linked] * _SECONDS[unit]
    for a, b, latency_s in zip(upper[0][linked], upper[1][linked], mean_rtt_s / 2, strict=True):
        raw.add_link(int(a), int(b), latency_s=float(latency_s))
    total = len(linked)
    raw.notes.append("latency is half of the measured round-trip time, the two directions averaged")
    if one_way := int((directions == 1).sum()):
        raw.notes.append(f"{one_way} of {total} pairs answered in one direction only: that direction taken for both")
    if silent := int((directions == 0).sum()):
        raw.notes.append(f"{silent} of {total} pairs never answered: no direct link between them")
    return raw
