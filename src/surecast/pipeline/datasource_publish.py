"""Rows as publications: each is published with an identity of its own, so that a repeated one counts once.

Spark may write a row more than once: a task that failed is repeated as a whole. The broker remembers the identities of
publications (`surecast-request`), as many as its setting `request_tokens` says, and drops duplicates.

The group client gives each publication an identity of its own. Rows have theirs, and many are in flight at once, so
this module uses the plain client, on an event loop in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from surecast.client import Client, ClientError, RefusedError
from surecast.client.group_client import REQUEST_PROPERTY, split_address
from surecast.client.sync import Background
from surecast.errors import ConfigurationError
from surecast.protocol.mqtt import Properties

__all__ = ["RowPublisher", "request_token"]

COLUMNS: Final = ("topic", "payload", "request")
OPTIONAL: Final = ("qos", "retain")
_AT_ONCE: Final = 200
_ATTEMPTS: Final = 6
_PAUSE_S: Final = 0.2
_TOKEN_CHARACTERS: Final = 64


def request_token(request: str) -> str:
    """Returns an identity in a form that the broker can keep: unchanged, or its digest if it is long or has a colon or
    space.

    >>> request_token("order-7"), len(request_token("x" * 100))
    ('order-7', 64)
    """
    if 0 < len(request) < _TOKEN_CHARACTERS and request.isascii() and request.isprintable() and ":" not in request:
        return request
    return hashlib.sha256(request.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RowPublisher:
    """Publishes rows to the first of some brokers that answers; all are of one group, or there is one."""

    addresses: tuple[tuple[str, int], ...]
    username: str | None = None
    password: str | None = None
    tls: bool = False

    @staticmethod
    def of(options: Mapping[str, str], columns: Sequence[str]) -> RowPublisher:
        """Returns the publisher that the options describe, for rows with these columns; ConfigurationError where
        something is missing or too much.

        >>> RowPublisher.of({"brokers": "b1:1883,b2"}, ["topic", "payload", "request"]).addresses
        (('b1', 1883), ('b2', 1883))
        """
        missing = [name for name in COLUMNS if name not in columns]
        unknown = [name for name in columns if name not in (*COLUMNS, *OPTIONAL)]
        if missing or unknown:
            raise ConfigurationError(
                f"rows to publish have the columns {', '.join(COLUMNS)}, and qos and retain if wanted; "
                + (f"there is no {missing[0]}" if missing else f"there is also {unknown[0]}")
                + "; request is an identity of the row, such as sha2(concat_ws('/', key, version), 256)"
            )
        if not options.get("brokers"):
            raise ConfigurationError('option brokers: name the brokers to publish to, such as "127.0.0.1:1883"')
        addresses = tuple(split_address(text.strip()) for text in options["brokers"].split(","))
        is_tls = options.get("tls", "false").lower() == "true"
        return RowPublisher(addresses, options.get("username"), options.get("password"), is_tls)

    def publish(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Publishes all rows; returns when the broker has taken over every one. How many there were."""
        background = Background()
        try:
            return background.run(self._publish(batches))
        finally:
            background.close()

    async def _publish(self, batches: Iterator[pa.RecordBatch]) -> int:
        count, index, client = 0, 0, None
        try:
            for batch in batches:
                for start in range(0, len(batch), _AT_ONCE):
                    rows = batch.slice(start, _AT_ONCE).to_pylist()
                    client, index = await self._publish_some(rows, client, index)
                    count += len(rows)
        finally:
            if client is not None:
                await client.disconnect()
        return count

    async def _publish_some(self, rows: list[dict[str, Any]], client: Client | None, index: int) -> tuple[Client, int]:
        """Publishes rows, all again after a failure: the broker recognises those it has. Returns the client, and the
        index of its address."""
        trouble: BaseException = ClientError("no broker was asked")
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_PAUSE_S * 2**attempt)
            try:
                client = client or await self._connected(index)
            except ClientError as error:
                trouble, index = error, index + 1
                continue
            calls = [_publish_row(client, row) for row in rows]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            failed = [each for each in answers if isinstance(each, BaseException)]
            if not failed:
                return client, index
            # What the broker refuses, or a row lacks, another attempt does not change.
            trouble = next((each for each in failed if not _may_pass(each)), failed[0])
            with suppress(ClientError):
                await client.disconnect()
            client, index = None, index + 1
            if not _may_pass(trouble):
                break
        raise trouble

    async def _connected(self, index: int) -> Client:
        host, port = self.addresses[index % len(self.addresses)]
        client = Client(
            host,
            port,
            username=self.username,
            password=None if self.password is None else self.password.encode(),
            tls=ssl.create_default_context() if self.tls else None,
        )
        await client.connect()
        return client


async def _publish_row(client: Client, row: Mapping[str, Any]) -> None:
    if row["topic"] is None or row["request"] is None:
        raise ConfigurationError("a row to publish has no topic or no request; both must be given")
    payload = row["payload"]
    data = payload.encode() if isinstance(payload, str) else bytes(payload or b"")
    qos = row.get("qos")
    identity = (REQUEST_PROPERTY, f"{request_token(row['request'])}:0")
    await client.publish(
        row["topic"], data, 1 if qos is None else int(qos), bool(row.get("retain")), Properties(user=(identity,))
    )


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ClientError) and not isinstance(error, RefusedError)
