"""`surecast pub`: publish messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli import mqtt_options as options
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.protocol.mqtt import Properties

__all__ = ["app", "pub"]

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command("pub", cls=options.MqttCommand, context_settings=options.MQTT_CONTEXT)
def pub(
    topic: Annotated[str, typer.Option("-t", "--topic", help="Topic to publish to.")],
    message: Annotated[str | None, typer.Option("-m", "--message", help="The message.")] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Publish a file.")] = None,
    lines: Annotated[bool, typer.Option("-l", "--stdin-line", help="Publish each line of standard input.")] = False,
    stdin: Annotated[bool, typer.Option("-s", "--stdin-file", help="Publish standard input.")] = False,
    null: Annotated[bool, typer.Option("-n", "--null-message", help="Publish an empty message.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Publish it so many times.")] = 1,
    retain: Annotated[bool, typer.Option("-r", "--retain", help="Retain the message.")] = False,
    qos: options.Qos = 0,
    host: options.Host = "127.0.0.1",
    port: options.Port = None,
    client_id: options.ClientId = "",
    username: options.User = None,
    password: options.Password = None,
    keep_alive: options.KeepAlive = 60,
    keep_session: options.KeepSession = False,
    version: options.Version = "5",
    property: options.Property = None,
    will_topic: options.WillTopic = None,
    will_payload: options.WillPayload = "",
    will_qos: options.WillQos = 0,
    will_retain: options.WillRetain = False,
    cafile: options.Cafile = None,
    cert: options.Cert = None,
    key: options.Key = None,
    insecure: options.Insecure = False,
    tls: options.Tls = False,
    ws: options.Ws = False,
    ws_path: options.WsPath = "/mqtt",
    timeout: options.Timeout = 10.0,
) -> None:
    """Publish messages. At QoS 1 and 2 it ends when the broker has acknowledged them."""
    import asyncio

    sources = [message is not None, file is not None, lines, stdin, null]
    if sum(sources) != 1:
        raise ConfigurationError("say what to publish with one of -m, -f, -l, -s or -n")
    client = options.ClientOptions(
        host, port, client_id, username, password, keep_alive, keep_session, version, will_topic, will_payload,
        will_qos, will_retain, cafile, cert, key, insecure, tls, ws, ws_path, timeout, property or [],
    )  # fmt: skip
    payloads = _lines() if lines else _repeated(_payload(message, file, stdin), repeat)
    publish_properties = options.properties_for("publish", property or [])
    asyncio.run(_publish(client, topic, payloads, qos, retain, publish_properties))


async def _publish(
    settings: options.ClientOptions,
    topic: str,
    payloads: Iterator[bytes],
    qos: int,
    retain: bool,
    properties: Properties,
) -> None:
    import asyncio

    async with settings.client() as client:
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
