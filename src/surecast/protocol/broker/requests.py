"""Requests that clients may repeat: a PUBLISH that names itself is published once, however often it is sent.

The user property `surecast-request` of a PUBLISH is `TOKEN:SEQUENCE`. A client chooses its token once, and counts its
requests. For each user and token the outcomes of the last 64 numbers are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from surecast.protocol.broker.message import text_field
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.mqtt import Properties, ReasonCode

__all__ = ["PROPERTY", "WINDOW", "RequestError", "Requests", "TokenOutcomes", "request_of"]

PROPERTY: Final = "surecast-request"
WINDOW: Final = 64
_TOKEN_MAX: Final = 64
_DIGITS_MAX: Final = 18
_NOTHING: Final = 0xFF  # no reason code of a PUBACK

Request = tuple[str, int]


class RequestError(Exception):
    """A PUBLISH that names itself, but not in a way that can be remembered."""


def request_of(properties: Properties) -> Request | None:
    """The token and the number that a PUBLISH gives itself, None if it gives none; RequestError if they are malformed.

    >>> request_of(Properties(user=(("surecast-request", "till-7:12"),)))
    ('till-7', 12)
    """
    found = [value for name, value in properties.user if name == PROPERTY]
    if not found:
        return None
    token, colon, number = found[0].rpartition(":")
    if len(found) > 1 or not colon or not 0 < len(token) <= _TOKEN_MAX:
        raise RequestError(f"{PROPERTY} is given once, as TOKEN:SEQUENCE with a token of 1 to {_TOKEN_MAX} characters")
    if not (number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX):
        raise RequestError(f"the sequence number of {PROPERTY} has 1 to {_DIGITS_MAX} digits")
    return token, int(number)


class TokenOutcomes:
    """The requests of one token: the highest number so far, and the outcomes of the last 64."""

    __slots__ = ("highest", "is_durable", "outcomes", "used_at")

    def __init__(self, highest: int, outcomes: bytes, used_at: float, is_durable: bool):
        self.highest = highest
        self.outcomes = bytearray(outcomes)
        self.used_at = used_at
        self.is_durable = is_durable

    def outcome(self, number: int) -> ReasonCode | None:
        """The outcome of a request, None if it is new; RequestError if that is too long ago to say."""
        if number > self.highest:
            return None
        if number <= self.highest - WINDOW:
            raise RequestError(
                f"request {number} is {WINDOW} or more before {self.highest}: it may have been published"
            )
        code = self.outcomes[number % WINDOW]
        return None if code == _NOTHING else ReasonCode(code)

    def set(self, number: int, reason: ReasonCode) -> None:
        """Remembers an outcome; those that leave the window are forgotten."""
        for skipped in range(max(self.highest + 1, number - WINDOW + 1), number):
            self.outcomes[skipped % WINDOW] = _NOTHING
        self.outcomes[number % WINDOW] = reason
        self.highest = max(self.highest, number)


class Requests:
    """The outcomes of requests, by user and token. Of too many tokens the one that was not used longest is forgotten.

    >>> requests = Requests(Journal(), tokens_max=1)
    >>> requests.keep("ann", ("t", 1), ReasonCode.SUCCESS, 0, 0.0)
    >>> requests.outcome("ann", ("t", 1)), requests.outcome("bob", ("t", 1)), requests.outcome("ann", ("t", 2))
    (<ReasonCode.SUCCESS: 0>, None, None)
    """

    def __init__(self, journal: Journal, tokens_max: int):
        self._journal = journal
        self._entries: OrderedDict[tuple[str, str], TokenOutcomes] = OrderedDict()
        self.tokens_max = tokens_max

    def __len__(self) -> int:
        return len(self._entries)

    def outcome(self, user: str, request: Request) -> ReasonCode | None:
        """Returns the outcome of a request, None if it is new; RequestError if it is no longer remembered."""
        key = (user, request[0])
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.outcome(request[1])

    def keep(self, user: str, request: Request, reason: ReasonCode, qos: int, now: float) -> None:
        """Remembers an outcome that `outcome` did not know, on disk too unless the message came at QoS 0."""
        token, number = request
        key = (user, token)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = TokenOutcomes(number, bytes((_NOTHING,)) * WINDOW, now, False)
            while len(self._entries) > self.tokens_max:
                self._forget()
        entry.set(number, reason)
        entry.used_at = now
        if qos:
            entry.is_durable = True
            self._journal.request(_field(key), entry.used_at, entry.highest, bytes(entry.outcomes))

    def _forget(self) -> None:
        key, entry = self._entries.popitem(last=False)
        if entry.is_durable:
            self._journal.forget_request(_field(key))

    def items(self) -> Iterator[tuple[str, str, TokenOutcomes]]:
        """Users, tokens and what is remembered of them, the longest unused first."""
        for (user, token), entry in self._entries.items():
            yield user, token, entry

    def adopt(self, items: Iterable[tuple[str, str, TokenOutcomes]]) -> None:
        """Takes over the `items` of another, or of the disk."""
        for user, token, entry in items:
            self._entries[user, token] = entry
        while len(self._entries) > self.tokens_max:
            self._forget()


def _field(key: tuple[str, str]) -> bytes:
    return text_field(key[0]) + text_field(key[1])
