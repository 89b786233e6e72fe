"""Questions and orders of an administrator to a running group."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

from surecast.broker.replica.addresses import Address
from surecast.broker.replica.client_link import ReplicaLink
from surecast.broker.replica.client_wire import REPLACE, STATUS, STATUS_AND_STATE
from surecast.broker.replica.frames import frame
from surecast.broker.replica.group_file import GroupSpec
from surecast.broker.replica.hello import Hello
from surecast.errors import ConfigurationError, PeerError

__all__ = ["ask_replace", "ask_status"]

_STATUS_S = 5.0
_REPLACE_S = 60.0


async def _ask(group: GroupSpec, address: Address, question: bytes, timeout_s: float) -> dict[str, Any]:
    hello = Hello("admin", group.name, 1, 0, secrets.token_hex(16))
    link, _ = await ReplicaLink.open(address, hello, group.read_secret())
    try:
        link.write(frame(question))
        async with asyncio.timeout(timeout_s):
            answer: dict[str, Any] = json.loads((await link.hear())[1:])
            return answer
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
            return {"replica": number, "error": str(error) or "no answer"}

    return list(await asyncio.gather(*(one(number, address) for number, address in _addresses(group).items())))


async def ask_replace(group: GroupSpec, old: int, new: int, address: str | None = None) -> int:
    """Has a new replica, which is running, take the place of an old one; the instance from which on it votes.

    The first replica that can be reached is asked. ConfigurationError says why it cannot be done.
    """
    known = {one.id: one.peer for one in group.replicas}
    where = address or known.get(new)
    question = REPLACE + json.dumps({"old": old, "new": new, "address": where}).encode()
    trouble = "no replica of the file takes clients"
    for number, asked in _addresses(group).items():
        if number in (old, new):
            continue
        try:
            answer = await _ask(group, asked, question, _REPLACE_S)
        except (OSError, PeerError) as error:
            trouble = f"replica {number}: {error or 'no answer'}"
            continue
        if "since" in answer:
            return int(answer["since"])
        trouble = str(answer.get("error"))
    raise ConfigurationError(trouble)
