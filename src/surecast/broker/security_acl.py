"""Access rules for publishing and subscribing, in the order in which they are written.

A rule is a line:

    allow|deny  publish|subscribe|all  FILTER  [user=NAME] [client=ID] [anonymous]

`user=` and `client=` take a `*` for any characters; `anonymous` means clients without a user name. In the filter, `%u`
stands for the user's name and `%c` for the client identifier. A filter with spaces goes in quotes. A line that begins
with `#` is a comment.

The first rule that says something about a topic decides, and what no rule allows is denied. A subscription to many
topics is allowed only if one rule allows all of them and no rule before it denies any. The other choice is to filter:
such a subscription is allowed if some of its topics may be, and the client gets the messages of those that are.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias

from surecast.errors import ConfigurationError, FileError
from surecast.protocol.mqtt import TopicError, validate_filter

__all__ = [
    "AccessFileError",
    "AccessRules",
    "Rule",
    "Wildcards",
    "covers",
    "format_rule",
    "overlaps",
    "parse_rule",
    "read_rules",
]

Wildcards: TypeAlias = Literal["deny", "filter"]
"""The treatment of a subscription to topics of which only some are allowed."""

_ACTIONS = ("publish", "subscribe", "all")
_FORM = "write: allow|deny publish|subscribe|all FILTER [user=NAME] [client=ID] [anonymous]"


class AccessFileError(FileError):
    """A file of access rules is wrong."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `user` and `client` are patterns; `anonymous` asks for clients without a user name."""

    allows: bool
    action: Literal["publish", "subscribe", "all"]
    filter: str
    user: str | None = None
    client: str | None = None
    anonymous: bool = False

    def concerns(self, user: str, client: str, action: str) -> bool:
        """Returns whether the rule applies to this client and this action."""
        if self.action not in ("all", action) or (self.anonymous and user):
            return False
        if self.user is not None and not (user and fnmatchcase(user, self.user)):
            return False
        return self.client is None or fnmatchcase(client, self.client)

    def filter_for(self, user: str, client: str) -> str | None:
        """The filter with its placeholders filled in; None where the names would change its meaning."""
        found = self.filter
        if "%" not in found:
            return found
        for mark, name in (("%u", user), ("%c", client)):
            if mark in found and (not name or any(character in name for character in "+#/%\0")):
                return None
        return found.replace("%u", user).replace("%c", client)


def parse_rule(text: str) -> Rule:
    """A rule from its line.

    >>> parse_rule("allow publish plant/%u/# user=*")
    Rule(allows=True, action='publish', filter='plant/%u/#', user='*', client=None, anonymous=False)
    >>> parse_rule("permit all #")
    Traceback (most recent call last):
        ...
    surecast.errors.ConfigurationError: 'permit' is not known here; write: allow|deny publish|subscribe|all FILTER ...
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigurationError(f"the quotes are wrong ({str(error).lower()}); {_FORM}") from None
    if len(words) < 3:
        raise ConfigurationError(f"a rule has three words or more; {_FORM}")
    verb, action, topic_filter, *rest = words
    if verb not in ("allow", "deny"):
        raise ConfigurationError(f"{verb!r} is not known here; {_FORM}")
    if action not in _ACTIONS:
        raise ConfigurationError(f"{action!r} is not an action; {_FORM}")
    try:
        validate_filter(topic_filter.replace("%u", "u").replace("%c", "c"))
    except TopicError as error:
        raise ConfigurationError(str(error)) from None
    who: dict[str, str | bool] = {}
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "anonymous":
            who["anonymous"] = True
        elif name in ("user", "client") and equals and value and name not in who:
            who[name] = value
        else:
            raise ConfigurationError(f"{word!r} is not known here; {_FORM}")
    if "user" in who and "anonymous" in who:
        raise ConfigurationError("an anonymous client has no user; write one of the two, or two rules")
    return Rule(verb == "allow", action, topic_filter, **who)  # type: ignore[arg-type]


def format_rule(rule: Rule) -> str:
    """A rule as it is written.

    >>> format_rule(parse_rule("allow  publish plant/%u/# user='ann b'"))
    "allow publish 'plant/%u/#' 'user=ann b'"
    """
    words = ["allow" if rule.allows else "deny", rule.action, rule.filter]
    words += [f"{name}={value}" for name in ("user", "client") if (value := getattr(rule, name)) is not None]
    return shlex.join([*words, "anonymous"] if rule.anonymous else words)


def read_rules(path: Path) -> list[Rule]:
    """The rules of a file; AccessFileError names the line of the first that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise AccessFileError(f"cannot be read: {error.strerror}", str(path)) from None
    except UnicodeDecodeError:
        raise AccessFileError("is not UTF-8 text", str(path)) from None
    rules = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                rules.append(parse_rule(line))
            except ConfigurationError as error:
                raise AccessFileError(str(error), str(path), number) from None
    return rules


class AccessRules:
    """Answers whether a client may do something.

    >>> rules = AccessRules(map(parse_rule, ["deny all plant/secret/#", "allow subscribe plant/# user=ann"]))
    >>> rules.allows("ann", "c1", "subscribe", "plant/hall/+"), rules.allows("ann", "c1", "publish", "plant/hall")
    (True, False)
    >>> rules.allows("ann", "c1", "subscribe", "plant/#")  # would include plant/secret
    False
    >>> rules = AccessRules(rules.rules, "filter")
    >>> rules.allows("ann", "c1", "subscribe", "plant/#"), rules.allows("ann", "c1", "receive", "plant/secret/7")
    (True, False)
    """

    def __init__(self, rules: Iterable[Rule], wildcards: Wildcards = "deny"):
        self.rules = tuple(rules)
        self.wildcards: Wildcards = wildcards

    @property
    def checks_deliveries(self) -> bool:
        """Returns whether a subscription says too little, so that every delivery is checked."""
        return self.wildcards == "filter"

    def allows(self, user: str, client: str, action: str, topic: str) -> bool:
        """Returns whether a client may publish to a topic, subscribe to a filter, or receive messages of a topic."""
        # Where deliveries are checked, some topic of a filter is enough: no rule before it may deny all of them.
        some = action == "subscribe" and self.wildcards == "filter"
        action = "subscribe" if action == "receive" else action
        for rule in self.rules:
            if not rule.concerns(user, client, action):
                continue
            own = rule.filter_for(user, client)
            if own is None:
                # A denial whose meaning is unclear for this client must not be skipped.
                if not rule.allows:
                    return False
            elif rule.allows:
                if overlaps(own, topic) if some else covers(own, topic):
                    return True
            elif covers(own, topic) if some else overlaps(own, topic):
                return False
        return False


def covers(wide: str, narrow: str) -> bool:
    """Returns whether a filter matches every topic that another matches; a topic is a filter too.

    >>> covers("a/#", "a/+/c"), covers("a/+", "a/#"), covers("#", "$SYS/uptime"), covers("+/#", "#"), covers("a/#", "a")
    (True, False, False, False, True)
    """
    if wide[:1] in ("+", "#") and narrow[:1] == "$":
        return False
    wanted, levels = wide.split("/"), narrow.split("/")
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index >= len(levels) or levels[index] == "#" or level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)


def overlaps(one: str, other: str) -> bool:
    """Returns whether some topic matches both filters.

    >>> overlaps("a/+", "+/b"), overlaps("a/b", "a/c"), overlaps("a/b/#", "#"), overlaps("a/b", "a/b/#")
    (True, False, True, True)
    """
    if "$" in (one[:1], other[:1]) and {one[:1], other[:1]} & {"+", "#"}:
        return False
    left, right = one.split("/"), other.split("/")
    for index in range(max(len(left), len(right))):
        a = left[index] if index < len(left) else None
        b = right[index] if index < len(right) else None
        if "#" in (a, b):
            return True
        if a is None or b is None or ("+" not in (a, b) and a != b):
            return False
    return True
