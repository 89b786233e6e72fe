"""A broker's event log over HTTP, by offset: where it begins and ends, and its records in ranges. Knows no Spark.

The broker answers `GET /log?offset=N&limit=M` with records, with 410 where retention has removed the record at the
offset, and with 416 where the log has never got so far; the last two say where the log begins or ends.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from surecast.errors import ConfigurationError, SurecastError

__all__ = ["REMOVED", "LogAccess", "LogError", "LogTruncated", "RemoteLog", "log_at", "ranges"]

Records = list[dict[str, Any]]
ANSWER_MAX: Final = 10_000
_FAR: Final = 1 << 61
_TIMEOUT_S: Final = 30.0
_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.2
_VARIABLES: Final = {
    "token": "SURECAST_LOG_TOKEN",
    "user": "SURECAST_LOG_USER",
    "password": "SURECAST_LOG_PASSWORD",
}
_ADDRESS: Final = re.compile(r"(?:([^=/]+)=)?(https?://.+)")

REMOVED: Final = "removed from the log before it was read"
"""The reason of a record of type `lost` that stands for records that retention has taken."""


class LogError(SurecastError):
    """A log cannot be read; the message says whose and why."""


class LogTruncated(LogError):  # noqa: N818 - what it is, not that it is an error
    """Records that were to be read are not kept any more; `first_available` is the first that is."""

    def __init__(self, url: str, offset: int, first_available: int):
        self.offset, self.first_available = offset, first_available
        super().__init__(
            f"{url}: the log was truncated: {first_available - offset} records from offset {offset} on are gone, the "
            f"first that is kept is {first_available}; keep logs for longer (retention of event_log), or go on "
            "without these records by option failOnDataLoss=false, which puts a record of type lost in their place"
        )


@dataclass(frozen=True, slots=True)
class LogAccess:
    """The credentials of a reader: the administrator's token, or name and password of a user who may read the log.

    >>> LogAccess("let-me-in").options()
    {'token': 'let-me-in'}
    """

    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @staticmethod
    def of(options: Mapping[str, str]) -> LogAccess:
        return LogAccess(options.get("token"), options.get("user"), options.get("password"))

    @staticmethod
    def of_environment() -> LogAccess:
        """Returns the access that another process passed on by `environment`."""
        return LogAccess.of({name: os.environ[key] for name, key in _VARIABLES.items() if key in os.environ})

    def environment(self) -> dict[str, str]:
        """Variables that tell another process who reads."""
        return {_VARIABLES[name]: value for name, value in self.options().items()}

    def options(self) -> dict[str, str]:
        """Returns the options of a source that are set."""
        credentials = {"token": self.token, "user": self.user, "password": self.password}
        return {name: value for name, value in credentials.items() if value is not None}

    def headers(self) -> dict[str, str]:
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user:
            pair = f"{self.user}:{self.password or ''}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}


@dataclass(frozen=True, slots=True)
class RemoteLog:
    """The log of the broker whose HTTP listener is at `url`.

    >>> RemoteLog("ftp://b1")
    Traceback (most recent call last):
    ...
    surecast.errors.ConfigurationError: url ftp://b1: write the broker's HTTP listener, such as http://127.0.0.1:9883
    """

    url: str
    access: LogAccess = LogAccess()
    keep_on: bool = False
    """Go on where records are gone, with one record of type `lost` in their place."""
    name: str = ""
    """Name of the log; host and port where none is given."""

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigurationError(f"url {self.url}: write the broker's HTTP listener, such as http://127.0.0.1:9883")
        if address.username is not None:
            # It would be in tables, in reports and in the state of streams.
            raise ConfigurationError(f"url {address.hostname}: leave user and password out of the address")
        object.__setattr__(self, "name", self.name or address.netloc)

    def first(self) -> int:
        """Returns the offset of the oldest record that is kept."""
        status, data = self._get(0, 1)
        return int(data["first_available"]) if status == http.client.GONE else 0

    def end(self) -> int:
        """Returns the offset that the next record will have."""
        status, data = self._get(_FAR, 1)
        if status != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise LogError(f"{self.url}: this broker does not say where its log ends; it answered {status}")
        return int(data["next_offset"])

    def read(self, start: int, end: int) -> Iterator[Records]:
        """Yields the records from `start` to before `end`, one list per answer of the broker. They are always the
        same."""
        offset = start
        while offset < end:
            status, data = self._get(offset, min(ANSWER_MAX, end - offset))
            if status == http.client.GONE:
                available = int(data["first_available"])
                if not self.keep_on:
                    raise LogTruncated(self.url, offset, available)
                upto = min(available, end)
                yield [self._lost(offset, upto - offset, available)]
                offset = upto
                continue
            records: Records = data.get("records", [])
            if not records and self.keep_on:
                yield [self._lost(offset, end - offset, end)]
                return
            if not records:
                now = data.get("next_offset", offset)
                raise LogError(
                    f"{self.url}: the log was read up to offset {end}, and now ends at {now}: "
                    "its folder was emptied, or a loss of power took records; start anew with another checkpoint"
                )
            yield records
            offset = int(records[-1]["offset"]) + 1

    def _lost(self, offset: int, count: int, available: int) -> dict[str, Any]:
        """Returns the record that stands for records that were removed; its time is that of the first record still
        there."""
        _, data = self._get(available, 1)
        records: Records = data.get("records") or [{"time": time.time()}]
        return {
            "offset": offset,
            "time": records[0]["time"],
            "type": "lost",
            "records": count,
            "reason": REMOVED,
        }

    def _get(self, offset: int, limit: int) -> tuple[int, Mapping[str, Any]]:
        """Returns status and answer; an error that may be temporary is tried again."""
        trouble = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S * 2**attempt)
            try:
                status, body = self._ask(f"/log?offset={offset}&limit={limit}")
            except (OSError, http.client.HTTPException) as error:
                trouble = f"no broker answers: {getattr(error, 'strerror', None) or error}"
                continue
            try:
                data = json.loads(body)
            except ValueError:
                raise LogError(f"{self.url}: this is not a Surecast broker") from None
            if status in (200, 410, 416):
                return status, data
            trouble = str(data.get("error", status))
            if status == http.client.UNAUTHORIZED:
                trouble = (
                    "it wants the administrator's token (option token, or --token-file), or a user who may read the log"
                )
            if status < 500:
                break
        raise LogError(f"{self.url}: {trouble}")

    def _ask(self, target: str) -> tuple[int, bytes]:
        address = urlsplit(self.url)
        assert address.hostname is not None
        kind: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
        if address.scheme == "https":
            kind = http.client.HTTPSConnection
        connection = kind(address.hostname, address.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", address.path.rstrip("/") + target, headers=self.access.headers())
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def log_at(text: str, access: LogAccess = LogAccess()) -> RemoteLog | None:  # noqa: B008 - frozen
    """Returns the remote log that an input names, by its address or as NAME=ADDRESS; None where it names a file.

    >>> log_at("hub=http://127.0.0.1:9883/").name, log_at("http://127.0.0.1:9883").name, log_at("logs/hub")
    ('hub', '127.0.0.1:9883', None)
    """
    match = _ADDRESS.fullmatch(text)
    return None if match is None else RemoteLog(match[2].rstrip("/"), access, keep_on=True, name=match[1] or "")


def ranges(start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Ranges of at most `size` offsets that together are those from `start` to before `end`.

    >>> ranges(3, 10, 4)
    [(3, 7), (7, 10)]
    """
    return [(first, min(first + size, end)) for first in range(start, end, size)]
