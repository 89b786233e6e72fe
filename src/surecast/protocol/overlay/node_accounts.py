"""The fate of the events that a node took in, by neighbour. The accounts balance at every moment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["HopAccounts", "NodeAccounts"]


@dataclass(slots=True)
class HopAccounts:
    """Events for one neighbour: offered = acknowledged + lost + detoured + dropped + on the link + in custody.

    `lost` were on the link when its session ended, and may have come. `detoured` were sent around the neighbour and
    not kept for it: they are offered to the first neighbour on that way, as are those that only pass here on a detour.
    `on_link` are in the session, sent or not; what is in custody and not on the link is counted there.
    """

    offered: int = 0
    acknowledged: int = 0
    lost: int = 0
    detoured: int = 0
    on_link: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    transmitted: int = 0
    """Events that were sent to it for the first time, or were lost at once as there was no connection."""
    retransmitted: int = 0
    """Events in custody that were sent to it again, or could not be when they were due."""

    given_up: tuple[int, ...] = ()
    """The events of each frame that was given up, 0 where they are in custody or there are none, in order."""

    def came_after_all(self, frames: int) -> None:
        """So many of the frames that were given up have come, says the neighbour: they were not lost."""
        came = sum(self.given_up[:frames])
        self.lost -= came
        self.acknowledged += came
        self.given_up = ()

    def problem(self, in_custody: int) -> str:
        """Returns what does not add up; nothing where all does."""
        fates = self.acknowledged + self.lost + self.detoured + self.dropped.total() + self.on_link + in_custody
        return "" if fates == self.offered else f"{self.offered} events offered, {fates} accounted for: {self}"


@dataclass(slots=True)
class NodeAccounts:
    """Events at one broker since it was started. `duplicates` came again and went no further."""

    published: int = 0
    refused: int = 0
    received: int = 0
    duplicates: int = 0
    too_old: int = 0
    expired: int = 0
    delivered: int = 0
    unadvertised: int = 0
    """Events published on a tree with advertisements, to a topic that nobody here had advertised."""
    shared: int = 0
    """Events given to members of shared subscriptions, here or elsewhere: one for each subscription."""
    handed_on: int = 0
    """Of these, events that a broker without members any more has given to others."""
    unclaimed: int = 0
    """Events of shared subscriptions that were dropped: all members have gone meanwhile, or none may have them."""
    subscriptions_lost: int = 0
    """Subscriptions that were to be refreshed from end to end over a link that was down."""
    hops: dict[str, HopAccounts] = field(default_factory=dict)
