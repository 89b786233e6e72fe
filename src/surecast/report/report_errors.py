"""The errors of reports, with messages that suggest a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from surecast.errors import UserError

__all__ = ["ReportError"]


class ReportError(UserError):
    """A report cannot be built, asked, read, written or compared as requested."""


def suggestion(word: str, words: Iterable[str]) -> str:
    """Returns the end of a message about an unknown word: the closest known one, if any is close.

    >>> suggestion("utilization", ["utilisation", "reliability"])
    "; did you mean 'utilisation'?"
    >>> suggestion("zzz", ["utilisation"])
    ''
    """
    matches = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def listing(words: Iterable[str], limit: int = 8) -> str:
    """Words for a message, the first few and how many more.

    >>> listing(["b1", "b2", "b3"], limit=2)
    'b1, b2 and 1 more'
    """
    all_words = list(words)
    shown = ", ".join(word or "''" for word in all_words[:limit])
    more = len(all_words) - limit
    return f"{shown} and {more} more" if more > 0 else shown or "nothing"
