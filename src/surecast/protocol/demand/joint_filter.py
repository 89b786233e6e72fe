"""Joint filters: a topic filter, a content filter and the highest QoS, with covering, merging and hulls.

A joint filter stands for the events whose topic and attributes it matches, each at its QoS or a lower one. Covering is
exact: each factor has to cover its own. A union of products is no product, so that two filters merge exactly only
where one covers the other, or where all factors but the content are equal and the contents merge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from surecast.protocol.filters import Event, Filter, hull, merge
from surecast.protocol.mqtt import topics

__all__ = ["EVERY_CONTENT", "JointFilter", "Members", "joint_hull", "joint_merge"]

EVERY_CONTENT: Final = Filter()
"""The content filter of a subscription that has none."""

_SAME: Final = {"+/#": "#", "/+/#": "/#"}


class Members(NamedTuple):
    """The members of a shared subscription at one broker with the same filter: `ready` are connected, `away` have
    sessions that wait for their clients."""

    share: str
    home: str
    ready: int
    away: int


@dataclass(slots=True)
class JointFilter:
    """A topic filter, a content filter, and the highest QoS of the subscriptions that they stand for. Nobody changes
    one that was made: what is found out about it is kept. With `members` it stands for those of a shared subscription
    at one broker; it covers nothing else, and nothing else covers it.

    >>> from surecast.protocol.filters import parse
    >>> wide, narrow = JointFilter("stock/#", qos=1), JointFilter("stock/+", parse("price > 35"))
    >>> wide.covers(narrow), narrow.covers(wide)
    (True, False)
    >>> print(narrow)
    stock/+ where price > 35 at QoS 0
    """

    topic: str
    content: Filter = EVERY_CONTENT
    qos: int = 0
    members: Members | None = None
    _hash: int | None = field(default=None, init=False, compare=False, repr=False)
    _text: str | None = field(default=None, init=False, compare=False, repr=False)
    _digest: tuple[int, int] | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.topic in _SAME:
            self.topic = _SAME[self.topic]

    def __hash__(self) -> int:
        value = self._hash  # tables and summaries of every broker on the way look a filter up
        if value is None:
            value = self._hash = hash((self.topic, self.content, self.qos, self.members))
        return value

    def __reduce__(self) -> tuple[type[JointFilter], tuple[str, Filter, int, Members | None]]:
        return JointFilter, (self.topic, self.content, self.qos, self.members)  # hashes of text differ by process

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts joint filters alike everywhere, whatever the order in which they came."""
        return (self.topic, self.qos, self.content_text, *(self.members or ()))

    @property
    def content_text(self) -> str:
        """The content filter as text that is read as an equal one; empty where it is for every content."""
        text = self._text
        if text is None:
            text = self._text = "" if self.content == EVERY_CONTENT else str(self.content)
        return text

    @property
    def digest(self) -> tuple[int, int]:
        """Two numbers, of 16 and 64 bits, that are the same for equal filters at all brokers."""
        digest = self._digest
        if digest is None:
            text = f"{self.topic}\0{self.qos}\0{self.content_text}"
            if self.members is not None:
                text += "".join(f"\0{part}" for part in self.members)
            both = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).digest()
            digest = self._digest = int.from_bytes(both[:2], "big"), int.from_bytes(both[2:], "big")
        return digest

    def __str__(self) -> str:
        content = f" where {self.content_text}" if self.content_text else ""
        text = f"{self.topic}{content} at QoS {self.qos}"
        if self.members is None:
            return text
        share, home, ready, away = self.members
        return f"{text}, shared in {share} by {ready} connected and {away} away at {home}"

    @property
    def satisfiable(self) -> bool:
        """True if some event is matched."""
        return self.content.satisfiable

    def matches(self, event: Event) -> bool:
        """Returns whether an event, whose class is its topic, is matched.

        >>> JointFilter("stock/+").matches(Event("stock/acme", {"price": 37}))
        True
        """
        return topics.match(self.topic, event.class_name) and self.content.matches(event)

    def covers(self, other: JointFilter) -> bool:
        """Returns whether every event that the other matches is matched, at a QoS as high."""
        if self.members is not None or other.members is not None:
            return self == other
        return self.qos >= other.qos and topics.covers(self.topic, other.topic) and self.content.covers(other.content)


def joint_merge(a: JointFilter, b: JointFilter) -> JointFilter | None:
    """Returns the filter that matches exactly the events of either, each at its QoS; None if there is none.

    >>> from surecast.protocol.filters import parse
    >>> print(joint_merge(JointFilter("s", parse("p in [1, 2]")), JointFilter("s", parse("p in [2, 3]"))))
    s where p in [1, 3] at QoS 0
    >>> joint_merge(JointFilter("s/1"), JointFilter("s/2")) is None
    True
    """
    if a.covers(b):
        return a
    if b.covers(a):
        return b
    if (a.topic, a.qos) != (b.topic, b.qos):
        return None
    content = merge(a.content, b.content)
    return None if content is None else JointFilter(a.topic, content, a.qos)


def joint_hull(a: JointFilter, b: JointFilter) -> JointFilter:
    """Returns the smallest filter on the same topics that covers both.

    >>> from surecast.protocol.filters import parse
    >>> print(joint_hull(JointFilter("s", parse("p in [1, 2]")), JointFilter("s", parse("p in [3, 4]"), 1)))
    s where p in [1, 4] at QoS 1
    """
    if a.topic != b.topic:
        raise ValueError(f"the hull of {a} and {b}: their topic filters differ")
    return JointFilter(a.topic, hull(a.content, b.content), max(a.qos, b.qos))
