"""Repairs a group of which one replica has lost its state: a new replica takes its place, and fetches the state.

A replica that lost part of its votes must not vote as if it had not. So its state is never mended. Its folder is set
aside, and a replica with a new number, at the same addresses, joins in its place.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from surecast.broker.cluster import LocalGroup, is_running
from surecast.broker.group_config import load_broker_group
from surecast.broker.private import write_private
from surecast.broker.replica.administer import Tell, ask_replace, ask_status, await_member
from surecast.documents.reading import parse_source, with_fields
from surecast.errors import ConfigurationError

__all__ = ["Repaired", "repair_replica"]


@dataclass(frozen=True, slots=True)
class Repaired:
    """The outcome of a repair: the new replica, where the state of the old one is, from where on the new one votes."""

    old: int
    new: int
    aside: Path | None
    since: int
    process: subprocess.Popen[bytes] | None
    """The process of the new replica; None where it was started by somebody else."""


def repair_replica(path: Path, old: int, *, starts: bool = True, timeout_s: float = 120.0, tell: Tell) -> Repaired:
    """Puts a new replica in the place of one whose state is damaged or lost, and waits until it votes.

    The folder of the old one is set aside, the group's file is changed, and the new one is started by this call, or by
    somebody else if `starts` is false. ConfigurationError says why it cannot be done.
    """
    begun_s = time.monotonic()
    group = load_broker_group(path)
    folder = group.folder(old)
    if is_running(folder):
        raise ConfigurationError(
            f"replica {old} is running, so its state is readable; stop it first if you want to replace it"
        )
    members = _members(path, old)
    new = max(*members, *(one.id for one in group.replicas)) + 1
    text = _with_replaced(path, old, new)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = _set_aside(folder, f"damaged-{stamp}")
    if aside is not None:
        tell(f"the state of replica {old} is set aside: {aside}")
    write_private(path.with_name(f"{path.name}.before-{stamp}"), path.read_text(encoding="utf-8"))
    write_private(path, text)
    tell(f"{path} has replica {new} in the place of {old}")
    process = _start(path, new, tell) if starts else None
    if not starts:
        tell(f"waits for replica {new}; start it: surecast broker --group {path} --id {new}")

    async def join() -> int:
        spec = load_broker_group(path)
        left_s = max(1.0, timeout_s - (time.monotonic() - begun_s))
        since = await ask_replace(spec, old, new, timeout_s=left_s, tell=tell)
        tell(f"agreed: replica {new} takes the place of {old} from instance {since} on")
        left_s = max(1.0, timeout_s - (time.monotonic() - begun_s))
        await await_member(spec, new, timeout_s=left_s, tell=tell)
        return since

    try:
        since = asyncio.run(join())
    except ConfigurationError as error:
        again = f"surecast cluster replace {old} {new} {path}"
        raise ConfigurationError(
            f"{error}; replica {new} is in the file: make sure that it runs, then run {again}"
        ) from None
    return Repaired(old, new, aside, since, process)


def _members(path: Path, old: int) -> list[int]:
    """Returns the members of the group; ConfigurationError where the old one is none, or too few of them run."""
    running = [
        one
        for one in asyncio.run(ask_status(load_broker_group(path)))
        if one["replica"] != old and "error" not in one and one["voting"]
    ]
    members: list[int] = list(running[0]["members"]) if running else []
    if not any(one["leader"] for one in running) or len(running) <= len(members) // 2:
        raise ConfigurationError(
            f"{path}: {len(running)} of the other replicas run and vote; a majority must run before one that is lost "
            "can be replaced"
        )
    if old not in members:
        raise ConfigurationError(f"replica {old} is no member of the group any more; its members are {members}")
    return members


def _set_aside(folder: Path, suffix: str) -> Path | None:
    """Renames a folder; None where there is none."""
    if not folder.exists():
        return None
    aside = folder.with_name(f"{folder.name}.{suffix}")
    folder.rename(aside)
    return aside


def _with_replaced(path: Path, old: int, new: int) -> str:
    """Returns the text of the group's file with the new replica in the place of the old one, comments and all."""
    text = path.read_text(encoding="utf-8")
    wanted = parse_source(text, str(path), path.parent).data
    at = next(at for at, one in enumerate(wanted["replicas"]) if one["id"] == old)
    wanted["replicas"][at].update(id=new, joins=True)
    edited = with_fields(text, ("replicas", at), {"id": str(new), "joins": "true"})
    if parse_source(edited, str(path), path.parent).data != wanted:
        raise ConfigurationError(
            f"{path}: replica {old} cannot be changed in place. Write id: {new} and joins: true there yourself, start "
            f"replica {new} with an empty folder, and run surecast cluster replace {old} {new} {path}"
        )
    return edited


def _start(path: Path, new: int, tell: Tell) -> subprocess.Popen[bytes]:
    """Starts the new replica as a process that stays."""
    group = LocalGroup(path)
    group.start(new)
    process = group.processes[new]
    tell(f"replica {new} is process {process.pid}, its log is {path.parent / f'{new}.log'}")
    return process
