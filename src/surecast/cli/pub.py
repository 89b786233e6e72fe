"""`surecast pub`: publish messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from surecast.cli.mqtt_options import MQTT_CONTEXT, ClientOptions, MqttCommand, Qos
from surecast.cli.options import takes_groups
from surecast.errors import ConfigurationError

__all__ = ["app", "pub"]

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command("pub", cls=MqttCommand, context_settings=MQTT_CONTEXT)
@takes_groups
def pub(
    connection: ClientOptions,
    topic: Annotated[str, typer.Option("-t", "--topic", help="Topic to publish to.")],
    message: Annotated[str | None, typer.Option("-m", "--message", help="The message.")] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Publish a file.")] = None,
    lines: Annotated[bool, typer.Option("-l", "--stdin-line", help="Publish each line of standard input.")] = False,
    stdin: Annotated[bool, typer.Option("-s", "--stdin-file", help="Publish standard input.")] = False,
    null: Annotated[bool, typer.Option("-n", "--null-message", help="Publish an empty message.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Publish the message so many times.")] = 1,
    retain: Annotated[bool, typer.Option("-r", "--retain", help="Retain the message.")] = False,
    qos: Qos = 0,
) -> None:
    """Publish messages. At QoS 1 and 2 the command ends once the broker has acknowledged them."""
    import asyncio

    sources = [message is not None, file is not None, lines, stdin, null]
    if sum(sources) != 1:
        raise ConfigurationError("nothing to publish: give exactly one of -m, -f, -l, -s or -n")
    payloads = _lines() if lines else _repeated(_payload(message, file, stdin), repeat)
    asyncio.run(_publish(connection, topic, payloads, qos, retain))


async def _publish(
    connection: ClientOptions,
    topic: str,
    payloads: Iterator[bytes],
    qos: int,
    retain: bool,
) -> None:
    import asyncio

    properties = connection.properties_for("publish")
    async with connection.client() as client:
        # Lines may take their time to come; the connection is kept alive meanwhile.
        while (payload := await asyncio.to_thread(next, payloads, None)) is not None:
            await client.publish(topic, payload, qos, retain, properties)


def _payload(message: str | None, file: Path | None, stdin: bool) -> bytes:
    if message is not None:
        return message.encode("utf-8", "surrogateescape")
    if stdin:
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes() if file is not None else b""
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from None


def _repeated(payload: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield payload


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.rstrip(b"\r\n")
