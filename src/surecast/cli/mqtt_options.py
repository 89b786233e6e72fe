"""Options of commands that are MQTT clients, named as those of `mosquitto_pub` and `mosquitto_sub`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.client import Client
    from surecast.load import BrokerAccess
    from surecast.protocol.mqtt import Properties

__all__ = ["MQTT_CONTEXT", "AccessOptions", "ClientOptions", "MqttCommand", "properties_for"]

MQTT_CONTEXT: dict[str, Any] = {"help_option_names": ["--help"]}  # -h is the host
_SEPARATOR = "\x1f"
_FOR_EVER = 0xFFFF_FFFF


class MqttCommand(TyperCommand):
    """A command whose `-D` takes three values, or four for a user property."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Joins the values of each `-D` before the options are read."""
        joined: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            joined.append(word)
            if word == "--":
                joined += rest
                break
            if word in ("-D", "--property"):
                count = 4 if rest[1:2] == ["user-property"] else 3
                joined.append(_SEPARATOR.join(rest[:count]))
                del rest[:count]
        return super().parse_args(ctx, joined)


Qos = Annotated[int, typer.Option("-q", "--qos", min=0, max=2, help="Quality of service.")]


@dataclass(frozen=True, kw_only=True)
class AccessOptions:
    """The options by which a client gets into a broker."""

    username: Annotated[str | None, typer.Option("-u", "--username", help="User name.")] = None
    password: Annotated[
        str | None, typer.Option("-P", "--pw", envvar="SURECAST_PASSWORD", show_envvar=True, help="Password.")
    ] = None
    keep_alive_s: Annotated[
        int, typer.Option("-k", "--keepalive", min=0, max=65_535, help="Keep-alive in seconds.")
    ] = 60
    version: Annotated[str, typer.Option("-V", "--protocol-version", help="MQTT version: 5, 311 or 31.")] = "5"
    cafile: Annotated[Path | None, typer.Option(help="Certificates to trust, PEM; switches TLS on.")] = None
    cert: Annotated[Path | None, typer.Option(help="Certificate of this client, PEM; switches TLS on.")] = None
    key: Annotated[Path | None, typer.Option(help="Private key of that certificate, PEM.")] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not check the host name in the broker's certificate.")
    ] = False
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS; trust the certificates of the system.")] = False
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer of the broker.")
    ] = 10.0

    @property
    def level(self) -> int:
        """Returns the protocol level of the version."""
        from surecast.protocol.mqtt import V5, V31, V311

        levels = {"5": V5, "311": V311, "3.1.1": V311, "31": V31, "3.1": V31}
        version = levels.get(self.version.removeprefix("mqttv"))
        if version is None:
            raise ConfigurationError(f"-V {self.version}: write 5, 311 or 31")
        return version

    def access(self, address: str) -> BrokerAccess:
        """Returns how to reach the broker at HOST:PORT."""
        from surecast.client.group_client import split_address
        from surecast.load import BrokerAccess

        host, port = split_address(address)
        return BrokerAccess(
            host,
            port,
            self.level,
            self.username,
            None if self.password is None else self.password.encode(),
            self.tls,
            self.cafile,
            self.cert,
            self.key,
            self.insecure,
            self.timeout_s,
            self.keep_alive_s,
        )


@dataclass(frozen=True, kw_only=True)
class ClientOptions(AccessOptions):
    """The options of a connection to a broker."""

    host: Annotated[str, typer.Option("-h", "--host", help="Host of the broker.")] = "127.0.0.1"
    port: Annotated[
        int | None,
        typer.Option("-p", "--port", help="Port; by default 1883, 8883 with TLS, 8083 with --ws, 8084 with both."),
    ] = None
    client_id: Annotated[str, typer.Option("-i", "--id", help="Client identifier; by default the broker's.")] = ""
    keep_session: Annotated[
        bool, typer.Option("-c", "--disable-clean-session", help="Keep the session on the broker; needs -i.")
    ] = False
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "-D",
            "--property",
            metavar="PACKET NAME VALUE",
            help="An MQTT 5 property, such as -D publish content-type text/plain, or -D publish user-property NAME "
            "VALUE. May be repeated.",
        ),
    ] = None
    will_topic: Annotated[str | None, typer.Option(help="Topic of the will.")] = None
    will_payload: Annotated[str, typer.Option(help="Payload of the will.")] = ""
    will_qos: Annotated[int, typer.Option(min=0, max=2, help="QoS of the will.")] = 0
    will_retain: Annotated[bool, typer.Option("--will-retain", help="Retain the will.")] = False
    ws: Annotated[bool, typer.Option("--ws", help="Use WebSocket.")] = False
    ws_path: Annotated[str, typer.Option(help="Path of the WebSocket.")] = "/mqtt"

    def properties_for(self, packet: str) -> Properties:
        """Returns the MQTT properties of one kind of packet."""
        return properties_for(packet, self.properties or [])

    def client(self) -> Client:
        """Returns a client that is not connected yet."""
        import secrets
        from dataclasses import replace

        from surecast.client import Client, tls_context
        from surecast.protocol.mqtt import V5, V31, Will

        version = self.level
        if self.properties and version != V5:
            raise ConfigurationError(f"-D: properties are of MQTT 5 only; leave out -V {self.version}")
        if self.keep_session and not self.client_id:
            raise ConfigurationError("-c: a session that is kept needs a client identifier; name one with -i")
        secure = self.tls or self.cafile is not None or self.cert is not None
        port = self.port or {(0, 0): 1883, (1, 0): 8883, (0, 1): 8083, (1, 1): 8084}[secure, self.ws]
        connect = self.properties_for("connect")
        if self.keep_session and version == V5 and connect.session_expiry_s is None:
            connect = replace(connect, session_expiry_s=_FOR_EVER)
        will = None
        if self.will_topic is not None:
            will = Will(
                self.will_topic,
                self.will_payload.encode(),
                self.will_qos,
                self.will_retain,
                self.properties_for("will"),
            )
        return Client(
            self.host,
            port,
            # MQTT 3.1 has no clients without an identifier.
            client_id=self.client_id or (f"surecast-{secrets.token_hex(6)}" if version == V31 else ""),
            username=self.username,
            password=None if self.password is None else self.password.encode(),
            keep_alive_s=self.keep_alive_s,
            clean_start=not self.keep_session,
            will=will,
            properties=connect,
            version=version,
            tls=tls_context(self.cafile, self.cert, self.key, self.insecure) if secure else None,
            websocket_path=self.ws_path if self.ws else None,
            timeout_s=self.timeout_s,
        )


_NAMES = {
    "payload-format-indicator": ("payload_format", int, ("publish", "will")),
    "message-expiry-interval": ("message_expiry_s", int, ("publish", "will")),
    "content-type": ("content_type", str, ("publish", "will")),
    "response-topic": ("response_topic", str, ("publish", "will")),
    "correlation-data": ("correlation_data", str.encode, ("publish", "will")),
    "topic-alias": ("topic_alias", int, ("publish",)),
    "will-delay-interval": ("will_delay_s", int, ("will",)),
    "session-expiry-interval": ("session_expiry_s", int, ("connect",)),
    "receive-maximum": ("receive_maximum", int, ("connect",)),
    "maximum-packet-size": ("maximum_packet_size", int, ("connect",)),
    "topic-alias-maximum": ("topic_alias_maximum", int, ("connect",)),
    "subscription-identifier": ("subscription_ids", lambda text: (int(text),), ("subscribe",)),
}
_PACKETS = ("connect", "publish", "subscribe", "will")


def properties_for(packet: str, texts: list[str]) -> Properties:
    """Returns the properties of one kind of packet among those of the command line.

    >>> properties_for("publish", ["publish\\x1fcontent-type\\x1ftext/plain", "publish\\x1fuser-property\\x1fa\\x1f1"])
    Properties(content_type='text/plain', user=(('a', '1'),))
    """
    from surecast.protocol.mqtt import Properties

    values: dict[str, Any] = {}
    user: list[tuple[str, str]] = []
    for text in texts:
        where, name, *rest = [*text.split(_SEPARATOR), "", ""][: max(2, text.count(_SEPARATOR) + 1)]
        where = where.lower()
        if where not in _PACKETS:
            raise ConfigurationError(f"-D {where}: write one of {', '.join(_PACKETS)}, a property's name and its value")
        if name == "user-property" and len(rest) == 2:
            user += [(rest[0], rest[1])] if where == packet else []
            continue
        definition = _NAMES.get(name)
        if definition is None or where not in definition[2] or len(rest) != 1:
            allowed = ", ".join(sorted([n for n, (_, _, places) in _NAMES.items() if where in places]))
            raise ConfigurationError(f"-D {where} {name}: write {allowed} with a value, or user-property NAME VALUE")
        if where == packet:
            try:
                values[definition[0]] = definition[1](rest[0])  # type: ignore[operator]
            except ValueError:
                raise ConfigurationError(f"-D {where} {name} {rest[0]}: write a whole number") from None
    return Properties(**values, user=tuple(user))
