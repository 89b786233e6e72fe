"""Access to a broker, and connections to it that a generator drives itself, without an event loop's delays."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from surecast.errors import SurecastError, connection_problem
from surecast.protocol.mqtt import (
    NO_PROPERTIES,
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    PacketError,
    Properties,
    Puback,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    encode,
)

__all__ = ["BrokerAccess", "BrokerConnection", "LoadError", "would_block"]

T = TypeVar("T", Connack, Suback, Puback)

_FAILURE: Final = 0x80
_FILTERS_MAX: Final = 100
"""Filters in one SUBSCRIBE: brokers refuse very many."""


class LoadError(SurecastError):
    """A broker cannot be measured: it cannot be reached, refuses, or ends connections; the message says which."""


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """The address of a broker and the credentials of its clients. TLS is used with `tls`, or with any of its files."""

    host: str
    port: int
    version: int = V5
    username: str | None = None
    password: bytes | None = None
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    timeout_s: float = 10.0
    keep_alive_s: int = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_encrypted(self) -> bool:
        """Returns whether connections use TLS."""
        return self.tls or self.ca is not None or self.certificate is not None

    def connect_packet(self, client_id: str, clean: bool = True, session_s: int = 0) -> bytes:
        """Returns the bytes of CONNECT; with MQTT 5, the session lives `session_s` longer than its connection."""
        properties = Properties(session_expiry_s=session_s) if session_s and self.version == V5 else NO_PROPERTIES
        packet = Connect(
            client_id, clean, self.keep_alive_s, self.username, self.password, None, properties, self.version
        )
        return encode(packet, self.version)

    def dial(self) -> socket.socket:
        """Returns a connection of TCP, or of TLS."""
        try:
            client = socket.create_connection((self.host, self.port), timeout=self.timeout_s)
        except socket.gaierror as error:
            raise LoadError(f"{self.host}: no such host: {error.strerror}") from None
        except TimeoutError:
            raise LoadError(f"{self}: no answer within {self.timeout_s:g} s") from None
        except OSError as error:
            raise LoadError(f"{self}: cannot connect: {connection_problem(error, str(self))}") from None
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.is_encrypted:
            return client
        try:
            return self.tls_context().wrap_socket(client, server_hostname=self.host)
        except ssl.SSLCertVerificationError as error:
            raise LoadError(f"{self}: the broker's certificate is not trusted: {error.verify_message}") from None
        except OSError as error:
            reason = getattr(error, "reason", None) or error
            raise LoadError(f"{self}: TLS failed: {reason}; does it speak TLS at this port?") from None

    def tls_context(self) -> ssl.SSLContext:
        """Returns the settings of TLS."""
        from surecast.client import tls_context

        return tls_context(self.ca, self.certificate, self.key, self.insecure)


class BrokerConnection:
    """A connection that the broker has accepted. It blocks until `run_free`; what it reads and writes is bytes."""

    def __init__(self, access: BrokerAccess, client_id: str, clean: bool = True, session_s: int = 0):
        self.name = client_id
        self.access = access
        self.socket = access.dial()
        self._decoder = PacketDecoder(version=access.version, side="client")
        self._waiting: list[Packet] = []
        try:
            self.socket.sendall(access.connect_packet(client_id, clean, session_s))
            self.connack = self._expect(Connack, "CONNECT")
        except BaseException:
            self.socket.close()
            raise
        if self.connack.reason >= _FAILURE:
            self.socket.close()
            raise LoadError(self.refusal())

    def refusal(self) -> str:
        """Returns why the broker did not accept the connection."""
        words = self.connack.reason.name.lower().replace("_", " ")
        hint = "; try -V 311" if self.connack.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION else ""
        return f"{self.access}: the broker refused the client {self.name}: {words}{hint}"

    def subscribe(self, filters: Sequence[str], qos: int) -> None:
        """Subscribes and waits for the answers; LoadError if one is refused, or granted at less than this QoS."""
        for at in range(0, len(filters), _FILTERS_MAX):
            some = filters[at : at + _FILTERS_MAX]
            request = Subscribe(1, tuple(SubscriptionRequest(text, qos) for text in some))
            self.socket.sendall(encode(request, self.access.version))
            answer = self._expect(Suback, f"the subscription of {self.name} to {some[0]}")
            for text, reason in zip(some, answer.reasons, strict=False):
                if reason >= _FAILURE:
                    words = reason.name.lower().replace("_", " ")
                    raise LoadError(f"{self.access}: the broker refused the subscription to {text}: {words}")
                if reason < qos:
                    raise LoadError(f"{self.access}: the broker grants QoS {int(reason)} to {text}, not {qos}")

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        """Publishes at QoS 0, or at QoS 1 and waits for the acknowledgement."""
        packet = Publish(topic, payload, min(qos, 1), retain, packet_id=7 if qos else 0)
        self.socket.sendall(encode(packet, self.access.version))
        if qos:
            self._expect(Puback, f"the publication to {topic}")

    def run_free(self) -> None:
        """Reads and writes do not wait any more from now on."""
        self.socket.setblocking(False)

    def close(self) -> None:
        """Says goodbye and closes. What the broker may still send is taken, so that it hears of an orderly end."""
        with suppress(OSError):
            self.socket.settimeout(0.5)
            self.socket.sendall(encode(Disconnect(), self.access.version))
            self.socket.shutdown(socket.SHUT_WR)
        self.socket.close()

    def ended(self, data: bytes = b"") -> LoadError:
        """Returns the error that says why the broker ended the connection, as far as it told."""
        reasons = []
        with suppress(PacketError):
            reasons = [each for each in self._decoder.feed(data) if isinstance(each, Disconnect)]
        told = f": {reasons[0].reason.name.lower().replace('_', ' ')}" if reasons else ""
        return LoadError(f"{self.access}: the broker ended the connection of {self.name}{told}")

    def _expect(self, kind: type[T], request: str) -> T:
        """Returns the next packet of a kind; what comes before it, such as retained messages, is left aside."""
        until = time.monotonic() + self.access.timeout_s
        older = (
            "; a broker of MQTT 3.1.1 answers so, try -V 311" if self.access.version == V5 and kind is Connack else ""
        )
        while True:
            for at, packet in enumerate(self._waiting):
                if isinstance(packet, kind):
                    del self._waiting[: at + 1]
                    return packet
            self.socket.settimeout(max(0.01, until - time.monotonic()))
            try:
                data = self.socket.recv(1 << 16)
                self._waiting = self._decoder.feed(data)
            except TimeoutError:
                raise LoadError(f"{self.access}: no answer to {request} within {self.access.timeout_s:g} s") from None
            except PacketError as error:
                raise LoadError(f"{self.access}: its answer is not understood: {error}{older}") from None
            except OSError as error:
                why = connection_problem(error, str(self.access))
                raise LoadError(f"{self.access}: the connection of {self.name} broke: {why}") from None
            if not data:
                raise LoadError(f"{self.access}: the broker closed the connection and did not answer {request}{older}")
            for packet in self._waiting:
                if isinstance(packet, Disconnect):
                    words = packet.reason.name.lower().replace("_", " ")
                    raise LoadError(f"{self.access}: the broker ended the connection of {self.name}: {words}")


def would_block(error: OSError) -> bool:
    """Returns whether an error says only that a socket, or TLS on it, has nothing to read or no room to write."""
    return isinstance(error, BlockingIOError | ssl.SSLWantReadError | ssl.SSLWantWriteError)
