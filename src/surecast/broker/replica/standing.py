"""The standing of each replica of a group, from what all of them say: leads, votes, catches up, joins, replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

__all__ = ["Standing", "Verdict", "standings", "verdict"]

_BEHIND: Final = 1_000
"""Instances that a replica under load may be behind without being told to catch up."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One replica: `role` is leads, votes, catches up, joins, replaced or down; `detail` says more in words.

    `behind` counts the instances that are known to be chosen and not applied here, None where it did not answer.
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
    if one.get("blank") and one.get("counts", {}).get("states discarded"):
        return Standing(number, "catches up", "it differed from the majority, and takes its state", behind)
    if one.get("snapshot_size"):
        done, size = one["snapshot_bytes"] / 2**20, one["snapshot_size"] / 2**20
        return Standing(number, "catches up", f"{done:.1f} of {size:.1f} MiB of a snapshot are here", behind)
    if not one["voting"]:
        return Standing(number, "catches up", "it does not vote yet", behind)
    if behind > _BEHIND:
        return Standing(number, "catches up", "it votes", behind)
    return Standing(number, "leads" if one["leads"] else "votes", "", behind)


def _why_down(one: dict[str, Any], answered: list[dict[str, Any]]) -> str:
    """Returns why a replica does not answer, and since when the others have not heard of it."""
    silent_s = [
        float(peer["silent_s"])
        for other in answered
        for peer in other.get("peers", ())
        if peer["replica"] == one["replica"] and peer.get("silent_s") is not None
    ]
    since = f"silent for {min(silent_s):,.0f} s: " if silent_s else "not heard of yet: " if answered else ""
    return f"{since}{one['error']}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A comparison of states at an instance: `hashes` by replica, and why others were not compared."""

    instance: int
    hashes: dict[int, str]
    missing: dict[int, str]

    @property
    def is_equal(self) -> bool:
        """Returns whether all replicas were compared, and are equal."""
        return len(set(self.hashes.values())) == 1 and not self.missing

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"is_equal": self.is_equal, **asdict(self)}

    def __str__(self) -> str:
        if len(set(self.hashes.values())) > 1:
            told = "".join(f"\n  replica {one}: {told[:16]}" for one, told in self.hashes.items())
            text = f"DIFFERENT: the replicas do not have the same state at instance {self.instance:,}{told}"
        elif not self.missing:
            names = ", ".join(map(str, self.hashes))
            text = f"equal: replicas {names} have the same state at instance {self.instance:,}"
        else:
            names = ", ".join(map(str, self.hashes)) or "none"
            text = f"NOT ALL COMPARED: of the replicas, {names} have the same state at instance {self.instance:,}"
        return text + "".join(f"\n  replica {one}: not compared, {why}" for one, why in self.missing.items())


def verdict(instance: int, found: Sequence[dict[str, Any]]) -> Verdict:
    """Returns what the statuses of all replicas say about their states at an instance (`ask_verify`).

    >>> one = {"replica": 1, "voting": True, "verified": 7, "verified_hash": "ab"}
    >>> print(verdict(7, [one, {**one, "replica": 2}]))
    equal: replicas 1, 2 have the same state at instance 7
    >>> print(verdict(7, [one, {**one, "replica": 2, "verified_hash": "cd"}, {"replica": 3, "error": "no answer"}]))
    DIFFERENT: the replicas do not have the same state at instance 7
      replica 1: ab
      replica 2: cd
      replica 3: not compared, no answer
    """
    hashes: dict[int, str] = {}
    missing: dict[int, str] = {}
    for one in found:
        if one.get("verified") == instance:
            hashes[int(one["replica"])] = str(one["verified_hash"])
        elif "error" in one:
            missing[int(one["replica"])] = str(one["error"])
        elif one["voting"]:
            missing[int(one["replica"])] = f"it has hashed its state at instance {one['verified']:,} last; ask again"
    return Verdict(instance, hashes, missing)
