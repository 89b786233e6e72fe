r"""Filters as people write them.

    filter     = [ class ":" ] ( "true" | "false" | constraint { "and" constraint } )
    class      = name | "*"
    constraint = name "=" ( number | text )
               | name ( "<" | "<=" | ">" | ">=" ) number
               | name "in" ( "[" | "(" ) bound "," bound ( "]" | ")" )
               | name ( "startswith" | "prefix" ) text
               | name "exists"
    bound      = number | "inf" | "-inf"
    name       = a letter or "_", then letters, digits, "_", "." and "-"; anything else in `backquotes`. Characters
                 beyond ASCII count as letters
    text       = "in double quotes"

A round bracket leaves its end out. Inside quotes `\\` stands for a backslash and `\"` (in backquotes: a backslash and
a backquote) for the quote. Without a class, or with `*`, a filter is for every class. There is no `!=` and no `or`:
covering and merging could not be decided attribute by attribute any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf, isinf
from typing import Final

from surecast.errors import ConfigurationError
from surecast.protocol.filters.constraints import (
    Constraint,
    Exists,
    Interval,
    StartsWith,
    above,
    at_least,
    at_most,
    below,
    equals,
)
from surecast.protocol.filters.filter import KEYWORDS, NAME, NOTHING, Filter

__all__ = ["FilterSyntaxError", "parse"]

_TOKEN: Final = (  # compiled for the first filter: most brokers never see one
    r"(?P<space>[ \t\r\n\f\v]+)"
    r"|(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<infinite>[+-]?inf(?![A-Za-z0-9_.\-\u0080-\U0010ffff]))"
    rf"|(?P<word>{NAME})"
    r"|(?P<text>\"(?:[^\"\\]|\\[\"\\])*\")"
    r"|(?P<name>`(?:[^`\\]|\\[`\\])*`)"
    r"|(?P<mark><=|>=|[=<>:*,()\[\]])"
)
_NUMBER_CHARACTERS_MAX: Final = 400  # no version of Python limits numbers of so few digits
_COMPARISONS: Final = {"<": below, "<=": at_most, ">": above, ">=": at_least}


class FilterSyntaxError(ConfigurationError):
    """A text is not a filter. `position` counts characters from 0; `expected` says what could have stood there.

    >>> parse("price > and")
    Traceback (most recent call last):
        ...
    surecast.protocol.filters.parse.FilterSyntaxError: character 9: expected a number, found 'and'
    """

    def __init__(self, position: int, expected: str, found: str):
        self.position = position
        self.expected = expected
        self.found = found
        super().__init__(f"character {position + 1}: expected {expected}, found {found}")

    def __reduce__(self) -> tuple[type[FilterSyntaxError], tuple[int, str, str]]:
        return FilterSyntaxError, (self.position, self.expected, self.found)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse(text: str) -> Filter:
    """The filter that a text describes.

    >>> parse('price > 35 and stock = "Foo"') == Filter(None, {"price": above(35), "stock": equals("Foo")})
    True
    >>> print(parse('Stock: price > 35 and price in [30, 40)'))
    Stock: price in (35, 40)
    """
    return _Parser(_tokens(text)).filter()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    pattern = re.compile(_TOKEN)  # kept by `re`
    position = 0
    while position < len(text):
        found = pattern.match(text, position)
        if found is None:
            quote = text[position]
            expected = f"a closing {quote}" if quote in '"`' else "a name, a number, a text or an operator"
            raise FilterSyntaxError(position, expected, repr(text[position : position + 12]))
        if found.lastgroup != "space":
            tokens.append(_Token(str(found.lastgroup), found.group(), position))
        position = found.end()
    return [*tokens, _Token("end", "", len(text))]


class _Parser:
    """Reads tokens from left to right, one token ahead."""

    def __init__(self, tokens: list[_Token]):
        self._tokens = tokens
        self._at = 0

    def filter(self) -> Filter:
        class_name: str | None = None
        if self._tokens[min(1, len(self._tokens) - 1)].text == ":":
            if not self._takes("*"):
                class_name = self._name("a class name or *")
            self._take(":", "':'")
        if self._takes("true"):
            result = Filter(class_name)
        elif self._takes("false"):
            result = NOTHING
        else:
            constraints = [self._constraint()]
            while self._takes("and"):
                constraints.append(self._constraint())
            result = Filter(class_name, constraints)
        if self._next.kind != "end":
            raise self._error("'and' or the end")
        return result

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _error(self, expected: str) -> FilterSyntaxError:
        token = self._next
        return FilterSyntaxError(token.position, expected, repr(token.text) if token.kind != "end" else "the end")

    def _takes(self, *words: str) -> str:
        """Goes past one of these words or marks and says which; empty if the next is none of them."""
        token = self._next
        if token.kind not in ("word", "mark") or token.text not in words:
            return ""
        self._at += 1
        return token.text

    def _take(self, word: str, expected: str) -> None:
        if not self._takes(word):
            raise self._error(expected)

    def _constraint(self) -> tuple[str, Constraint]:
        name = self._name("the name of an attribute")
        operator = self._takes("=", *_COMPARISONS, "in", "startswith", "prefix", "exists")
        if not operator:
            raise self._error("=, <, <=, >, >=, in, startswith or exists")
        if operator == "exists":
            return name, Exists()
        if operator in ("startswith", "prefix"):
            return name, StartsWith(self._text("a text in double quotes"))
        if operator == "in":
            return name, self._interval()
        if operator == "=":
            return name, equals(self._text("") if self._next.kind == "text" else self._number("a number or a text"))
        return name, _COMPARISONS[operator](self._number("a number"))

    def _interval(self) -> Interval:
        opening = self._takes("[", "(")
        if not opening:
            raise self._error("'[' or '('")
        low = self._bound()
        self._take(",", "','")
        high = self._bound()
        closing = self._takes("]", ")")
        if not closing:
            raise self._error("']' or ')'")
        return Interval(low, high, opening == "(", closing == ")")

    def _bound(self) -> float:
        if self._next.kind != "infinite":
            return self._number("a number, inf or -inf")
        self._at += 1
        return -inf if self._tokens[self._at - 1].text.startswith("-") else inf

    def _number(self, expected: str) -> float:
        token = self._next
        if token.kind != "number":
            raise self._error(expected)
        if len(token.text) > _NUMBER_CHARACTERS_MAX:
            raise self._error(f"a number of at most {_NUMBER_CHARACTERS_MAX} characters")
        try:
            value: float = int(token.text) if token.text.lstrip("+-").isdecimal() else float(token.text)
            if isinf(float(value)):
                raise OverflowError
        except (ValueError, OverflowError):
            raise self._error("a number below 1.8e308") from None
        self._at += 1
        return value

    def _text(self, expected: str) -> str:
        token = self._next
        if token.kind != "text":
            raise self._error(expected)
        self._at += 1
        return _unquoted(token.text)

    def _name(self, expected: str) -> str:
        token = self._next
        if token.kind == "name":
            self._at += 1
            return _unquoted(token.text)
        if token.kind != "word" or token.text in KEYWORDS:
            raise self._error(expected)
        self._at += 1
        return token.text


def _unquoted(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted[1:-1])
