"""`surecast sub`: subscribe and print what arrives."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.mqtt_options import MQTT_CONTEXT, ClientOptions, MqttCommand, Qos
from surecast.cli.options import takes_groups
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.client import ReceivedMessage

__all__ = ["app", "formatted", "sub"]

_TIMED_OUT = 27

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command("sub", cls=MqttCommand, context_settings=MQTT_CONTEXT)
@takes_groups
def sub(
    connection: ClientOptions,
    topics: Annotated[list[str], typer.Option("-t", "--topic", help="Topic filter. May be repeated.")],
    filter: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Content filter, such as 'price > 30'. May be repeated; all must match."),
    ] = None,
    count: Annotated[int | None, typer.Option("-C", "--count", min=1, help="Exit after so many messages.")] = None,
    wait: Annotated[float | None, typer.Option("-W", "--wait", min=0.0, help="Exit after so many seconds.")] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print the topic before the payload.")] = False,
    format: Annotated[
        str | None,
        typer.Option(
            "-F",
            "--format",
            help="What to print: %t topic, %p payload, %x in hexadecimal, %l length, %q QoS, %r retain flag, %P user "
            "properties, %C content type, %U time, %j JSON, %J JSON with a JSON payload, %% a percent sign.",
        ),
    ] = None,
    no_newline: Annotated[
        bool, typer.Option("-N", "--no-newline", help="Print no line end after each message.")
    ] = False,
    no_retained: Annotated[bool, typer.Option("-R", "--no-retained", help="Leave out retained messages.")] = False,
    no_local: Annotated[
        bool, typer.Option("--no-local", help="Leave out messages that this client publishes.")
    ] = False,
    end_when_subscribed: Annotated[
        bool, typer.Option("-E", "--end-when-subscribed", help="Exit once subscribed; with -c this creates a session.")
    ] = False,
    qos: Qos = 0,
) -> None:
    """Subscribe, and print the messages that arrive. Exits with 27 if -W ends it."""
    import asyncio
    from dataclasses import replace

    from surecast.protocol.mqtt import SubscriptionRequest

    subscribe_properties = connection.properties_for("subscribe")
    if filter and connection.version not in ("5", "mqttv5"):
        raise ConfigurationError("--filter: content filters travel in properties of MQTT 5; leave out -V")
    subscribe_properties = replace(
        subscribe_properties, user=(*subscribe_properties.user, *(("filter", text) for text in filter or []))
    )
    shown = ("%t %p" if verbose else "%p") if format is None else format
    end = "" if no_newline else "\n"
    wanted = [SubscriptionRequest(topic, qos, no_local) for topic in topics]

    async def run() -> bool:
        left = 0 if end_when_subscribed else count
        try:
            async with connection.client() as connected, asyncio.timeout(wait):
                await connected.subscribe(*wanted, properties=subscribe_properties)
                while left != 0:
                    message = await connected.message()
                    if no_retained and message.retain:
                        continue
                    sys.stdout.buffer.write(formatted(shown, message) + end.encode())
                    sys.stdout.buffer.flush()
                    left = None if left is None else left - 1
        except TimeoutError:
            return False
        return True

    try:
        if not asyncio.run(run()):
            raise typer.Exit(_TIMED_OUT)
    except BrokenPipeError:
        # The reader of the output has closed it; nothing can be flushed any more.
        sys.stdout = None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def formatted(format: str, message: ReceivedMessage) -> bytes:
    """Returns a message as text by a format.

    >>> from surecast.client import ReceivedMessage
    >>> formatted("%t: %p (%q, %r, 100%%)", ReceivedMessage("a/b", b"21.5", 1))
    b'a/b: 21.5 (1, 0, 100%)'
    """
    parts = re.split(r"(%.)", format)
    return b"".join(_part(part, message) if part.startswith("%") else part.encode() for part in parts)


def _part(code: str, message: ReceivedMessage) -> bytes:
    if code == "%p":
        return message.payload
    texts: dict[str, Any] = {
        "%t": message.topic,
        "%q": message.qos,
        "%r": int(message.retain),
        "%l": len(message.payload),
        "%C": message.properties.content_type or "",
        "%%": "%",
    }
    if code in texts:
        return str(texts[code]).encode()
    if code == "%x":
        return message.payload.hex().encode()
    if code == "%P":
        return " ".join(f"{name}:{value}" for name, value in message.properties.user).encode()
    if code == "%U":
        return f"{datetime.now(UTC).timestamp():.6f}".encode()
    if code in ("%j", "%J"):
        return json.dumps(_as_json(message, code == "%J"), ensure_ascii=False).encode("utf-8", "backslashreplace")
    raise ConfigurationError(f"-F: {code} is not known; see surecast sub --help")


def _as_json(message: ReceivedMessage, parsed: bool) -> dict[str, Any]:
    payload: Any = message.payload.decode("utf-8", "backslashreplace")
    if parsed:
        try:
            payload = json.loads(message.payload)
        except ValueError:
            payload = None
    data: dict[str, Any] = {
        "tst": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
        "payload": payload,
    }
    properties = message.properties
    shown = {
        "content-type": properties.content_type,
        "message-expiry-interval": properties.message_expiry_s,
        "response-topic": properties.response_topic,
        "user-properties": [{name: value} for name, value in properties.user] or None,
    }
    if present := {name: value for name, value in shown.items() if value is not None}:
        data["properties"] = present
    return data
