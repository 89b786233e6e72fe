"""Questions and orders of an administrator to a running group."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any

from surecast.broker.replica.addresses import Address
from surecast.broker.replica.client_link import ReplicaLink
from surecast.broker.replica.client_wire import REPLACE, STATUS, STATUS_AND_STATE, VERIFY
from surecast.broker.replica.frames import frame
from surecast.broker.replica.group_file import GroupSpec
from surecast.broker.replica.handshake import Hello
from surecast.errors import ConfigurationError, PeerError, connection_problem

__all__ = ["Tell", "ask_replace", "ask_status", "ask_verify", "await_member", "check_never_ran"]

Tell = Callable[[str], None]
"""Gets a line whenever something else is waited for."""

_STATUS_S = 5.0
_REPLACE_S = 120.0
_LEAST_S = 1.0
_LATE_S = 2.0
_POLL_S = 0.2
_VERIFY_S = 30.0


def _silence(line: str) -> None:
    """For callers who do not want to know."""


async def _ask(
    group: GroupSpec, address: Address, question: bytes, timeout_s: float, tell: Tell = _silence
) -> dict[str, Any]:
    hello = Hello("admin", group.name, 1, 0, secrets.token_hex(16))
    link, _ = await ReplicaLink.open(address, hello, group.read_secret())
    try:
        link.write(frame(question))
        async with asyncio.timeout(timeout_s):
            while True:
                answer: dict[str, Any] = json.loads((await link.receive())[1:])
                if "waits" not in answer:
                    return answer
                tell(str(answer["waits"]))
    finally:
        link.close()


def _addresses(group: GroupSpec) -> dict[int, Address]:
    found = {one.id: group.client_address(one) for one in group.replicas}
    return {number: address for number, address in found.items() if address is not None}


async def ask_status(group: GroupSpec, state: bool = False) -> list[dict[str, Any]]:
    """The status of every replica of a group's file that takes clients: its fields, or what is wrong with it.

    `state` adds a digest of the handler's state, taken at the same instance; each replica makes a snapshot for it.
    """
    question = STATUS_AND_STATE if state else STATUS

    async def one(number: int, address: Address) -> dict[str, Any]:
        try:
            return await _ask(group, address, question, _STATUS_S)
        except (OSError, PeerError) as error:
            return {"replica": number, "error": connection_problem(error, str(address), "replica")}

    return list(await asyncio.gather(*(one(number, address) for number, address in _addresses(group).items())))


async def check_never_ran(group: GroupSpec, number: int) -> None:
    """ConfigurationError where a replica that answers remembers this one: it is replaced, and not founded again."""
    for one in await ask_status(group):
        if number in one.get("known", ()):
            raise ConfigurationError(
                f"replica {number} has run in the group {group.name} before: replica {one['replica']} remembers what "
                f"it promised, and would refuse an empty store. If its data are lost: {group.remedy(number)}"
            )


async def ask_replace(
    group: GroupSpec,
    old: int,
    new: int,
    address: str | None = None,
    *,
    timeout_s: float = _REPLACE_S,
    tell: Tell = _silence,
) -> int:
    """Has a new replica, which is running, take the place of an old one; the instance from which on it votes.

    The replicas are asked one after the other until one can do it. ConfigurationError says why it cannot be done.
    """
    known = {one.id: one.peer for one in group.replicas}
    where = address or known.get(new)
    await _check_replace(group, old, new, is_in_file=address is None)
    askable = {number: asked for number, asked in _addresses(group).items() if number not in (old, new)}
    trouble = "no replica of the file takes clients"
    until_s = asyncio.get_running_loop().time() + timeout_s
    for place, (number, asked) in enumerate(askable.items()):
        left_s = max(_LEAST_S, (until_s - asyncio.get_running_loop().time()) / (len(askable) - place))
        fields = {"old": old, "new": new, "address": where, "timeout_s": left_s}
        tell(f"asks replica {number} at {asked}")
        try:
            answer = await _ask(group, asked, REPLACE + json.dumps(fields).encode(), left_s + _LATE_S, tell)
        except (OSError, PeerError) as error:
            trouble = f"replica {number}: {connection_problem(error, str(asked), 'replica')}"
            tell(trouble)
            continue
        if "since" in answer:
            return int(answer["since"])
        trouble = str(answer.get("error"))
        if not answer.get("is_late"):
            break  # the group does not want it, and would say the same again
    raise ConfigurationError(trouble)


async def _check_replace(group: GroupSpec, old: int, new: int, is_in_file: bool) -> None:
    """ConfigurationError where waiting would not help: the numbers or the group's file are wrong."""
    entry = next((one for one in group.replicas if one.id == new), None)
    members = next((tuple(one["members"]) for one in await ask_status(group) if one.get("voting")), ())
    highest = max((*members, *(one.id for one in group.replicas if one.id != new)))
    if members and old not in members:
        raise ConfigurationError(f"replica {old} is not a member of the group; its members are {list(members)}")
    if new in members:
        raise ConfigurationError(f"replica {new} is a member already; the new one has a higher number than all before")
    if is_in_file and (entry is None or not entry.joins):
        lacks = "is not in the group's file" if entry is None else "has no joins: true in the group's file"
        number = new if new > highest else highest + 1
        raise ConfigurationError(
            f"replica {new} {lacks}; add {{id: {number}, joins: true, peer: ..., client: ..., mqtt: ...}} to replicas: "
            f"and start it, then replace {old} by {number}"
        )


async def await_member(
    group: GroupSpec, new: int, *, timeout_s: float = _REPLACE_S, tell: Tell = _silence
) -> dict[str, Any]:
    """Waits until a new replica has the state of the others and votes; its status then.

    ConfigurationError says what is still missing after the time.
    """
    address = _addresses(group).get(new)
    if address is None:
        raise ConfigurationError(f"replica {new}: the group's file does not say where it can be asked; add client:")
    waits, until_s = "", asyncio.get_running_loop().time() + timeout_s
    while True:
        try:
            status = await _ask(group, address, STATUS, _STATUS_S)
            now = _lacks(status)
        except (OSError, PeerError) as error:
            now = f"it does not answer: {connection_problem(error, str(address), 'replica')}"
        if not now:
            return status
        if now != waits:
            waits = now
            tell(f"replica {new}: {waits}")
        if asyncio.get_running_loop().time() > until_s:
            raise ConfigurationError(f"replica {new} is a member, but does not vote after {timeout_s:g} s: {waits}")
        await asyncio.sleep(_POLL_S)


def _lacks(status: dict[str, Any]) -> str:
    """Returns what a replica still needs before it votes; empty where nothing is missing."""
    if status["snapshot_size"]:
        done, size = int(status["snapshot_bytes"]), int(status["snapshot_size"])
        return f"{done / 2**20:.1f} of {size / 2**20:.1f} MiB of a snapshot are here"
    if status["blank"]:
        return "it waits for a snapshot of the others"
    behind = int(status["chosen"]) - int(status["applied"])
    if not status["voting"]:
        return f"it catches up, {behind:,} instances behind" if behind else "it has not heard of its membership yet"
    return ""


async def ask_verify(group: GroupSpec, timeout_s: float = _VERIFY_S) -> tuple[int, list[dict[str, Any]]]:
    """Has every replica hash its whole state at one instance; this instance, and the status of every replica then.

    Those that have not come as far in time show a lower instance as `verified`. ConfigurationError where no replica
    can be asked, or there is no majority.
    """
    trouble = "no replica of the file takes clients"
    for number, address in _addresses(group).items():
        try:
            answer = await _ask(group, address, VERIFY, timeout_s)
        except (OSError, PeerError) as error:
            trouble = f"replica {number}: {connection_problem(error, str(address), 'replica')}"
            continue
        if "instance" in answer:
            break
        trouble = str(answer.get("error"))
    else:
        raise ConfigurationError(trouble)
    instance, until_s = int(answer["instance"]), asyncio.get_running_loop().time() + timeout_s
    while True:
        found = await ask_status(group)
        late = [one for one in found if "error" not in one and one["voting"] and one["verified"] < instance]
        if not late or asyncio.get_running_loop().time() > until_s:
            return instance, found
        await asyncio.sleep(_POLL_S)
