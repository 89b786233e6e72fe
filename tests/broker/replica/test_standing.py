"""The standing of replicas, by what they say of themselves and of each other."""

from __future__ import annotations

from typing import Any

from surecast.broker.replica.standing import standings


def status(number: int, members: tuple[int, ...] = (1, 2, 3), **others: Any) -> dict[str, Any]:
    """Returns what a replica says that votes and has applied everything."""
    fields = {"replica": number, "leads": False, "voting": True, "members": members, "applied": 5_000, "chosen": 5_000}
    return {**fields, "blank": False, "snapshot_size": 0, "snapshot_bytes": 0, "peers": [], **others}


def roles(*found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each.role, each.detail) for each in standings(found)]


def test_a_group_that_is_whole() -> None:
    assert roles(status(1), status(2, leads=True), status(3, applied=4_999)) == [
        ("votes", ""),
        ("leads", ""),
        ("votes", ""),
    ]
    assert [each.behind for each in standings([status(1), status(2, applied=4_990)])] == [0, 10]


def test_one_that_is_down_and_since_when() -> None:
    peers = [{"replica": 3, "silent_s": 12.3}, {"replica": 2, "silent_s": 0.1}]
    later = [{"replica": 3, "silent_s": 11.9}]
    found = roles(status(1, peers=peers), status(2, peers=later), {"replica": 3, "error": "refused"})
    assert found[2] == ("down", "silent for 12 s: refused")
    assert roles(status(1, peers=[{"replica": 3, "silent_s": None}]), {"replica": 3, "error": "refused"})[1] == (
        "down",
        "not heard of yet: refused",
    )
    assert roles({"replica": 1, "error": "refused"}) == [("down", "refused")]


def test_one_that_was_replaced_whether_it_runs_or_not() -> None:
    """Its own status may say that it is a member still: it does not hear of the change."""
    new = status(4, (1, 2, 4))
    old = status(3, (1, 2, 3), voting=False, applied=4_000)
    assert roles(status(1, (1, 2, 4)), new, old)[2] == ("replaced", "another votes in its place; stop it")
    assert roles(new, {"replica": 3, "error": "refused"})[1][0] == "replaced"


def test_one_that_joins_and_then_catches_up() -> None:
    blank = {"voting": False, "blank": True, "applied": 0, "members": ()}
    assert roles(status(1), status(4, **blank))[1] == ("joins", "it votes after: surecast cluster replace OLD 4")
    member = status(1, (1, 2, 4))
    arriving = status(4, **{**blank, "snapshot_bytes": 3 << 20, "snapshot_size": 8 << 20})
    assert roles(member, arriving)[1] == ("catches up", "3.0 of 8.0 MiB of a snapshot are here")
    assert roles(member, status(4, **blank))[1] == ("catches up", "it does not vote yet")
    assert roles(member, status(4, (1, 2, 4), applied=100))[1] == ("catches up", "it votes")


def test_nobody_knows_who_the_members_are() -> None:
    assert roles(status(1, (), blank=True, voting=False, applied=0, chosen=0)) == [
        ("catches up", "it does not vote yet")
    ]
