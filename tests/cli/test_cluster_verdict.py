"""The first line of `surecast cluster status`: whether the group works."""

from __future__ import annotations

from typing import Any

import pytest

from surecast.cli.cluster import group_verdict


def replicas(*roles: str, leader: int | None = 1, **fields: Any) -> list[dict[str, Any]]:
    """Returns statuses of replicas 1, 2, ... with these roles; those that are down know no leader."""
    return [
        {"replica": number, "role": role, **({} if role == "down" else {"leader": leader, **fields})}
        for number, role in enumerate(roles, start=1)
    ]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (
            replicas("leads", "votes", "votes"),
            "The group works: replica 1 leads, and 3 of 3 replicas vote. It works on if 1 more fails.",
        ),
        (
            replicas("leads", *["votes"] * 4),
            "The group works: replica 1 leads, and 5 of 5 replicas vote. It works on if 2 more fail.",
        ),
        (
            replicas("leads", "votes", "down"),
            "The group works: replica 1 leads, and 2 of 3 replicas vote. No more may fail.",
        ),
        # One that lags and votes counts, one that does not vote yet does not.
        (
            replicas("leads", "catches up", "down", voting=True),
            "The group works: replica 1 leads, and 2 of 3 replicas vote. No more may fail.",
        ),
        (
            replicas("leads", "catches up", "down", voting=False),
            "The group may NOT work: replica 1 is said to lead, but 1 of 3 replicas vote; 2 are needed.",
        ),
        # Those that are no members do not count.
        (
            replicas("leads", "votes", "votes", "joins", "replaced"),
            "The group works: replica 1 leads, and 3 of 3 replicas vote. It works on if 1 more fails.",
        ),
        (replicas("leads"), "The group works: replica 1 leads, and 1 of 1 replicas vote. No more may fail."),
        (
            replicas("votes", "down", "down", leader=None),
            "The group does NOT work: no replica leads, and 1 of 3 replicas vote; 2 are needed.",
        ),
        (
            replicas("down", "down", "down"),
            "The group does NOT work: no replica leads, and 0 of 3 replicas vote; 2 are needed.",
        ),
        (
            replicas("leads", "votes", "votes", alarm="replica 3 differs"),
            "The group is NOT in agreement: see the alarm of replica 1, 2, 3 below.",
        ),
    ],
)
def test_the_verdict_on_a_group(found: list[dict[str, Any]], verdict: str) -> None:
    assert group_verdict(found) == verdict
