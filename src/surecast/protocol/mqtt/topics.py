"""Topic names, topic filters, and which filter matches which name (MQTT 5.0, section 4.7; 4.8.2 for shared ones)."""

from __future__ import annotations

from typing import Final

from surecast.errors import ConfigurationError

__all__ = [
    "MAX_LEVELS",
    "SharedError",
    "TopicError",
    "covers",
    "filter_levels",
    "has_wildcard",
    "intersects",
    "match",
    "parse_shared",
    "validate_filter",
    "validate_topic_name",
]

MAX_LEVELS: Final = 200
"""The levels that a topic may have unless another limit is given: deep topics are an attack, not an application."""

_MAX_BYTES: Final = 65_535
_SHARE: Final = "$share/"


class TopicError(ConfigurationError):
    """A text is no topic name or no topic filter. `too_deep` says that it is one, but beyond the limit of levels."""

    def __init__(self, message: str, too_deep: bool = False):
        self.too_deep = too_deep
        super().__init__(message)


class SharedError(TopicError):
    """A filter begins like a shared subscription, but is none."""


def has_wildcard(filter: str) -> bool:
    """Returns whether a filter can match more than one topic.

    >>> has_wildcard("a/+"), has_wildcard("a/b")
    (True, False)
    """
    return "+" in filter or "#" in filter


def validate_topic_name(topic: str, max_levels: int = MAX_LEVELS) -> None:
    """Refuses what cannot be published to.

    >>> validate_topic_name("sport/tennis/player1")
    >>> validate_topic_name("sport/+")
    Traceback (most recent call last):
        ...
    surecast.protocol.mqtt.topics.TopicError: the topic name 'sport/+' has a wildcard; + and # are for filters
    """
    _validate(topic, "topic name", max_levels)
    if has_wildcard(topic):
        raise TopicError(f"the topic name {_quoted(topic)} has a wildcard; + and # are for filters")


def validate_filter(filter: str, max_levels: int = MAX_LEVELS) -> None:
    """Refuses what cannot be subscribed to. A shared subscription is checked further by `parse_shared`.

    >>> validate_filter("sport/+/player1/#")
    >>> validate_filter("tennis#")
    Traceback (most recent call last):
        ...
    surecast.protocol.mqtt.topics.TopicError: the topic filter 'tennis#' has a '#' that is not its whole last level
    """
    _validate(filter, "topic filter", max_levels)
    if not has_wildcard(filter):
        return
    if "#" in filter[:-1] or (filter[-1] == "#" and filter[-2:-1] not in ("", "/")):
        raise TopicError(f"the topic filter {_quoted(filter)} has a '#' that is not its whole last level")
    if "+" in filter and any("+" in level and level != "+" for level in filter.split("/")):
        raise TopicError(f"the topic filter {_quoted(filter)} has a '+' that is not a whole level")


def parse_shared(filter: str) -> tuple[str, str] | None:
    """Share name and topic filter of a shared subscription; None if the filter is an ordinary one.

    >>> parse_shared("$share/consumer1//finance"), parse_shared("sport/#")
    (('consumer1', '/finance'), None)
    >>> parse_shared("$share/+/a")
    Traceback (most recent call last):
        ...
    surecast.protocol.mqtt.topics.SharedError: the share name in '$share/+/a' is empty or has a wildcard
    """
    if not filter.startswith(_SHARE):
        return None
    name, slash, rest = filter[len(_SHARE) :].partition("/")
    if not name or has_wildcard(name):
        raise SharedError(f"the share name in {_quoted(filter)} is empty or has a wildcard")
    if not slash or not rest:
        raise SharedError(f"the shared subscription {_quoted(filter)} has no topic filter; write $share/NAME/FILTER")
    return name, rest


def match(filter: str, topic: str) -> bool:
    """Returns whether a valid filter (not a shared one) matches a valid topic name.

    >>> match("sport/#", "sport"), match("sport/+", "sport"), match("+/+", "/finance")
    (True, False, True)
    >>> match("#", "$SYS/uptime"), match("$SYS/#", "$SYS/uptime")
    (False, True)
    """
    if topic[:1] == "$" and filter[:1] in ("+", "#"):
        return False
    if not has_wildcard(filter):
        return filter == topic
    wanted, levels = filter.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    # With a closing # the levels beyond those wanted are free, and so zip must stop at the shorter one.
    return all(want in ("+", level) for want, level in zip(wanted, levels, strict=False))


def filter_levels(filter: str) -> list[str]:
    """Splits a filter into its levels, with "#" only behind levels that are a topic name: none is empty.

    >>> filter_levels("a/#"), filter_levels("#")
    (['a', '#'], ['+', '#'])
    """
    full = filter[:-1] + "+/#" if filter in ("#", "/#") else filter
    return full.split("/")


def covers(wide: str, narrow: str) -> bool:
    """Returns whether a valid filter matches every topic name that another one matches. Neither is a shared one.

    >>> covers("sport/#", "sport"), covers("sport/+", "sport/#"), covers("+/x", "sport/x")
    (True, False, True)
    >>> covers("#", "$SYS/uptime"), covers("+/#", "#")
    (False, True)
    """
    if wide[:1] in ("+", "#") and narrow[:1] == "$":
        return False
    wider, narrower = filter_levels(wide), filter_levels(narrow)
    for depth, level in enumerate(wider):
        if level == "#":
            return True
        if depth == len(narrower) or narrower[depth] == "#" or level not in ("+", narrower[depth]):
            # "a/#" matches "a" too, so that it covers a filter that ends one level before its "#".
            return False
    return len(wider) == len(narrower)


def intersects(a: str, b: str) -> bool:
    """Returns whether some topic name is matched by both of two valid filters. Neither is a shared one.

    >>> intersects("sport/+", "+/tennis"), intersects("sport/#", "sport"), intersects("#", "$SYS/uptime")
    (True, True, False)
    """
    if {a[:1], b[:1]} & {"+", "#"} and "$" in (a[:1], b[:1]):
        return False
    ours, theirs = filter_levels(a), filter_levels(b)
    for mine, other in zip(ours, theirs, strict=False):
        if "#" in (mine, other):
            return True
        if mine != other and "+" not in (mine, other):
            return False
    # One of them has ended. What is left of the other must match nothing: a closing "#" can.
    longer, ended = (ours, len(theirs)) if len(ours) > len(theirs) else (theirs, len(ours))
    return longer[ended:] in ([], ["#"])


def _validate(text: str, what: str, max_levels: int) -> None:
    if not text:
        raise TopicError(f"the {what} is empty; it must have at least one character")
    if "\0" in text:
        raise TopicError(f"the {what} {_quoted(text)} has the character U+0000")
    if len(text) * 4 > _MAX_BYTES and len(text.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise TopicError(f"the {what} {_quoted(text)} is longer than {_MAX_BYTES} bytes")
    if text.count("/") >= max_levels:
        levels = text.count("/") + 1
        raise TopicError(f"the {what} {_quoted(text)} has {levels} levels; at most {max_levels} are taken", True)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
