"""The broker's log lines on standard error: for people, or one JSON object each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO, Literal

__all__ = ["BrokerLog", "Level"]

Level = Literal["debug", "info", "warning", "error"]
_ORDER: dict[str, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_LINES_PER_S = 200.0


class BrokerLog:
    """Writes lines of an event and its fields. A flood is cut: what is left out is counted in a line of its own.

    >>> log = BrokerLog("info", "text", sys.stdout, clock=lambda: 0.0)
    >>> log.info("connected", client="ann", user=None)
    1970-01-01T00:00:00.000Z info connected client=ann
    """

    def __init__(
        self,
        level: Level = "info",
        format: Literal["text", "json"] = "text",
        stream: IO[str] | None = None,
        clock: Callable[[], float] = time.time,
    ):
        self._least = _ORDER[level]
        self.is_json = format == "json"
        self._stream = stream or sys.stderr
        self._clock = clock
        self._tokens = _LINES_PER_S
        self._tokens_at = 0.0
        self._left_out = 0

    def set_level(self, level: Level) -> None:
        """Changes the least that is written."""
        self._least = _ORDER[level]

    def wants(self, level: Level) -> bool:
        """Returns whether lines of a level are written."""
        return _ORDER[level] >= self._least

    def debug(self, event: str, **fields: object) -> None:
        """A detail."""
        self._line("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Writes a line about an everyday event."""
        self._line("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Writes a line that the operator may have to look at."""
        self._line("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Writes a line that the operator has to look at."""
        self._line("error", event, fields)

    def text(self, text: str) -> None:
        """Lines for people as they are, where everyday things are logged at all."""
        if self.wants("info"):
            with suppress(OSError):
                self._stream.write(text)
                self._stream.flush()

    def _line(self, level: Level, event: str, fields: dict[str, object]) -> None:
        if not self.wants(level):
            return
        now = self._clock()
        if level != "error":
            self._tokens = min(_LINES_PER_S, self._tokens + max(0.0, now - self._tokens_at) * _LINES_PER_S)
            self._tokens_at = now
            if self._tokens < 1.0:
                self._left_out += 1
                return
            self._tokens -= 1.0
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            self._write(now, "warning", "log lines left out", {"count": left_out})
        self._write(now, level, event, fields)

    def _write(self, now: float, level: str, event: str, fields: dict[str, object]) -> None:
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        given = {name: value for name, value in fields.items() if value is not None}
        if self.is_json:
            line = json.dumps({"time": stamp, "level": level, "event": event, **given}, default=str)
        else:
            line = " ".join((stamp, level, event, *(f"{name}={_quoted(value)}" for name, value in given.items())))
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:
            self._left_out += 1  # a log that cannot be written stops nobody


def _quoted(value: object) -> str:
    """A value that cannot be taken for more than one, and has no control characters."""
    text = str(value)
    plain = text and text.isprintable() and not any(character in text for character in ' "=')
    return text if plain else json.dumps(text)
