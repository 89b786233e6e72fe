"""Where each replica of a group stands, from what all of them say: it leads, votes, catches up, joins, is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Standing", "standings"]

_BEHIND: Final = 1_000
"""Instances that a replica under load may be behind without being told to catch up."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One replica: `role` is leads, votes, catches up, joins, replaced or down; `detail` says more in words.

    `behind` counts the instances that are known to be chosen and not carried out here, None where it did not answer.
    """

    replica: int
    role: str
    detail: str
    behind: int | None


def standings(found: Sequence[dict[str, Any]]) -> list[Standing]:
    """Returns where each replica stands, by the statuses of all of them (`ask_status`).

    Whoever is furthest knows best who the members are. Numbers only rise: a replica that is not a member and has a
    lower number than one of them has been replaced, and one with a higher number has yet to join.

    >>> one = {"replica": 4, "voting": True, "leads": True, "members": [1, 2, 4], "applied": 9, "chosen": 9}
    >>> old = {**one, "replica": 3, "voting": False, "leads": False, "members": [1, 2, 3], "applied": 5}
    >>> [(each.replica, each.role) for each in standings([one, old, {"replica": 5, "error": "no answer"}])]
    [(4, 'leads'), (3, 'replaced'), (5, 'down')]
    """
    answered = [one for one in found if "error" not in one]
    best = max(answered, key=lambda one: (one["applied"], one["leads"]), default=None)
    members = tuple(best["members"]) if best is not None and not best.get("blank") else ()
    most = max((int(one["chosen"]) for one in answered), default=0)
    return [_standing(one, answered, members, most) for one in found]


def _standing(one: dict[str, Any], answered: list[dict[str, Any]], members: tuple[int, ...], most: int) -> Standing:
    number = int(one["replica"])
    is_replaced = bool(members) and number not in members and number < max(members)
    if "error" in one:
        if is_replaced:
            return Standing(number, "replaced", "it is down, and may be taken out of the group's file", None)
        return Standing(number, "down", _why_down(one, answered), None)
    behind = max(0, most - int(one["applied"]))
    if is_replaced:
        return Standing(number, "replaced", "another votes in its place; stop it", behind)
    if members and number not in members:
        return Standing(number, "joins", f"it votes after: surecast cluster replace OLD {number}", behind)
    if one.get("snapshot_size"):
        done, size = one["snapshot_bytes"] / 2**20, one["snapshot_size"] / 2**20
        return Standing(number, "catches up", f"{done:.1f} of {size:.1f} MiB of a snapshot are here", behind)
    if not one["voting"]:
        return Standing(number, "catches up", "it does not vote yet", behind)
    if behind > _BEHIND:
        return Standing(number, "catches up", "it votes", behind)
    return Standing(number, "leads" if one["leads"] else "votes", "", behind)


def _why_down(one: dict[str, Any], answered: list[dict[str, Any]]) -> str:
    """Why a replica does not answer, and since when the others have not heard of it."""
    silent_s = [
        float(peer["silent_s"])
        for other in answered
        for peer in other.get("peers", ())
        if peer["replica"] == one["replica"] and peer.get("silent_s") is not None
    ]
    since = f"silent for {min(silent_s):,.0f} s: " if silent_s else "not heard of yet: " if answered else ""
    return f"{since}{one['error']}"
