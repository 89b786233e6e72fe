"""The ways in: TCP, TLS and WebSocket, with their limits, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from surecast.broker.listeners import AddressRates
from surecast.broker.security import set_password
from surecast.client import Client, ClientError, RefusedError, tls_context
from surecast.protocol.mqtt import V5, V311, Connack, Connect, PacketDecoder, Publish, ReasonCode, encode

Running = Callable[..., AbstractAsyncContextManager[Any]]
CONNECT = encode(Connect(), V5)


Raw = Callable[..., Any]


@pytest.fixture
def raw() -> Iterator[Raw]:
    """Sends bytes and returns the socket and what comes back first; nothing if the connection is closed."""
    opened: list[socket.socket] = []

    def exchange(port: int, data: bytes) -> tuple[bytes, socket.socket]:
        sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        opened.append(sock)
        try:
            sock.sendall(data)
            return sock.recv(4096), sock
        except ConnectionError:
            return b"", sock

    async def send(port: int, data: bytes = b"") -> tuple[bytes, socket.socket]:
        return await asyncio.to_thread(exchange, port, data)

    yield send
    for sock in opened:
        sock.close()


def test_both_versions_of_ip(running: Running) -> None:
    async def main() -> None:
        async with running({"listeners[0].host": "localhost"}) as service:
            (listener,) = service.listeners
            for address in listener.addresses:
                host = address.rpartition(":")[0].strip("[]")
                async with Client(host, listener.port) as client:
                    assert await client.publish("a", b"1", qos=1) is ReasonCode.NO_MATCHING_SUBSCRIBERS

    asyncio.run(main())


def test_limits_are_checked_before_anything_is_made(running: Running, raw: Raw) -> None:
    async def main() -> None:
        flags = {"listeners[0].address_connections_max": 2, "listeners[1].port": 0, "listeners[1].name": "fast",
                 "listeners[1].connection_rate_max": "1/h", "limits.connections": 3}  # fmt: skip
        async with running(flags) as service:
            first, second = service.listeners
            answers = [await raw(first.port, CONNECT) for _ in range(3)]
            assert [bool(data) for data, _ in answers] == [True, True, False]
            assert first.connection_limit.turned_away == {"too-many-from-address": 1}
            assert service.server.broker.counters.connections == 2
            kept, _ = await raw(second.port, CONNECT)
            assert kept
            assert (await raw(second.port, CONNECT))[0] == b""
            assert second.connection_limit.turned_away == {"too-many": 1}
            answers[0][1].close()
            while service.server.transports > 2:
                await asyncio.sleep(0.01)
            assert (await raw(second.port, CONNECT))[0] == b""
            assert second.connection_limit.turned_away == {"too-many": 1, "too-fast": 1}
            for _, writer in answers:
                writer.close()
            while first.connection_limit.connections:
                await asyncio.sleep(0.01)
            assert first._by_address == {}

    asyncio.run(main())


def test_an_address_that_connects_too_fast_is_turned_away(running: Running, raw: Raw) -> None:
    """A loop that connects and leaves took a whole processor."""

    async def main() -> None:
        async with running({"listeners[0].address_connection_rate_max": "2/min"}) as service:
            [listener] = service.listeners
            answers = [await raw(listener.port, CONNECT) for _ in range(4)]
            assert [bool(data) for data, _ in answers] == [True, True, False, False]
            assert listener.connection_limit.turned_away == {"address-too-fast": 2}
            assert service.server.broker.counters.connections == 2  # nothing was read of the others

    asyncio.run(main())


def test_addresses_have_rates_of_their_own_and_are_forgotten() -> None:
    rates = AddressRates(rate_per_s=200.0)
    assert all(rates.takes("10.0.0.1", 0.0) for _ in range(12_000))  # ten thousand devices come back together
    assert not rates.takes("10.0.0.1", 0.0)
    assert rates.takes("10.0.0.2", 0.0)
    assert [rates.takes("10.0.0.1", 0.01) for _ in range(3)] == [True, True, False]
    for number in range(10_001):
        rates.takes(f"network-{number}", 0.02)
    assert len(rates._buckets) == 10_000


def test_who_says_nothing_is_closed(running: Running, raw: Raw) -> None:
    async def main() -> None:
        flags = {"limits.connect_timeout": "1s", "listeners[1].kind": "websocket", "listeners[1].port": 0}
        async with running(flags) as service:
            answers = await asyncio.gather(*(raw(listener.port) for listener in service.listeners))
            assert [data for data, _ in answers] == [b"", b""]

    asyncio.run(main())


def test_tls_with_passwords_and_with_certificates(running: Running, certificates: Any, raw: Raw) -> None:
    async def main() -> None:
        flags = {
            "listeners[0].kind": "tls",
            "listeners[0].certificate": certificates.server,
            "listeners[0].key": certificates.server_key,
            "listeners[0].ca": certificates.ca,
            "listeners[0].use_certificate_name": True,
            "listeners[0].require_client_certificate": True,
            "listeners[1].kind": "secure-websocket",
            "listeners[1].port": 0,
            "listeners[1].certificate": certificates.server,
            "listeners[1].key": certificates.server_key,
            "security.rules": ["allow all home/%u/#"],
        }
        async with running(flags) as service:
            tls, websocket = service.listeners
            trust = tls_context(certificates.ca)
            ann = tls_context(certificates.ca, certificates.client, certificates.client_key)
            async with Client("localhost", tls.port, tls=ann, client_id="c1") as client:
                assert [session.user for session in service.server.broker.sessions.named("c1")] == ["ann"]
                await client.subscribe("home/ann/#", qos=1)
                await client.publish("home/ann/door", b"open", qos=1)
                assert (await client.message()).payload == b"open"
                with pytest.raises(RefusedError, match="not authorized"):
                    await client.publish("home/bob/door", qos=1)
                with pytest.raises(RefusedError, match="not authorized"):
                    await client.subscribe("home/#")
            with pytest.raises(ClientError):  # no certificate
                async with Client("localhost", tls.port, tls=trust) as client:
                    pass
            with pytest.raises(ClientError, match="certificate is not trusted"):
                await Client("localhost", tls.port, tls=tls_context()).connect()
            async with Client("localhost", websocket.port, tls=trust, websocket_path="/mqtt") as client:
                with pytest.raises(RefusedError):
                    await client.publish("home/ann/door", qos=1)
            assert service.listeners[0]._context.minimum_version is ssl.TLSVersion.TLSv1_2
            data, _ = await raw(tls.port, CONNECT)  # plain MQTT at a TLS port
            assert not data.startswith(b"\x20")
            while tls.connection_limit.connections:
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_websocket_frames_are_only_a_wrapper(running: Running) -> None:
    async def main() -> None:
        async with running({"listeners[0].kind": "websocket", "limits.packet_size": "1MiB"}) as service:
            url = f"ws://127.0.0.1:{service.listeners[0].port}/mqtt"
            async with open_websocket(url, subprotocols=["mqtt"]) as web:  # type: ignore[list-item]
                assert web.subprotocol == "mqtt"
                decoder = PacketDecoder(version=V311, side="client")
                data = encode(Connect("web", version=V311), V311) + encode(Publish("a", b"x", 1, packet_id=1), V311)
                for at in range(len(data)):  # one byte in each frame
                    await web.send(data[at : at + 1])
                packets: list[Any] = []
                while len(packets) < 2:
                    received = await web.recv()
                    assert isinstance(received, bytes)
                    packets += decoder.feed(received)
                assert packets[0] == Connack()
                await web.send([data[:0], encode(Publish("a", b"y", 1, packet_id=2), V311)])  # in fragments
                assert await web.recv() == bytes.fromhex("40020002")
                await (await web.ping())
            large = "x" * 300_000
            async with Client(port=service.listeners[0].port, websocket_path="/mqtt") as client:
                await client.subscribe("big")
                await client.publish("big", large.encode())
                assert len((await client.message()).payload) == 300_000
            async with open_websocket(url, subprotocols=["mqtt"]) as web:  # type: ignore[list-item]
                await web.send("text")
                with pytest.raises(ConnectionClosed):
                    await web.recv()
                assert web.close_code == 1003
            async with open_websocket(url, subprotocols=["mqtt"], compression=None) as web:  # type: ignore[list-item]
                with suppress(ConnectionClosed):
                    await web.send(b"x" * (100 << 10))  # more than a CONNECT may have
                with pytest.raises(ConnectionClosed):
                    await web.recv()
                assert web.close_code == 1009

    asyncio.run(main())


def test_websocket_asks_for_path_protocol_and_origin(running: Running, raw: Raw) -> None:
    async def main() -> None:
        flags = {"listeners[0].kind": "websocket", "listeners[0].origins": ["https://example.org"]}
        async with running(flags) as service:
            url = f"ws://127.0.0.1:{service.listeners[0].port}"
            mqtt: Any = ["mqtt"]
            for path, options, status in (
                ("/other", {"subprotocols": mqtt, "origin": "https://example.org"}, 404),
                ("/mqtt", {"subprotocols": mqtt, "origin": "https://example.com"}, 403),
                ("/mqtt", {"subprotocols": ["amqp"], "origin": "https://example.org"}, 400),
            ):
                with pytest.raises(InvalidStatus) as caught:
                    await open_websocket(url + path, **options)  # type: ignore[arg-type]
                assert caught.value.response.status_code == status
            async with open_websocket(f"{url}/mqtt?x=1", subprotocols=mqtt, origin="https://example.org"):  # type: ignore[arg-type]
                pass
            data, _ = await raw(service.listeners[0].port, b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n")
            assert data.startswith(b"HTTP/1.1 4")
            assert service.server.broker.counters.connections == 1

    asyncio.run(main())


def test_a_new_certificate_is_for_new_connections(running: Running, certificates: Any, tmp_path: Path) -> None:
    crt, key = tmp_path / "s.crt", tmp_path / "s.key"
    crt.write_bytes(certificates.server.read_bytes())
    key.write_bytes(certificates.server_key.read_bytes())

    async def main() -> None:
        flags = {"listeners[0].kind": "tls", "listeners[0].certificate": crt, "listeners[0].key": key}
        async with running(flags) as service:
            port = service.listeners[0].port
            address = ("127.0.0.1", port)
            before = await asyncio.to_thread(ssl.get_server_certificate, address, timeout=PATIENCE_S)
            async with Client("localhost", port, tls=tls_context(certificates.ca)) as client:
                crt.write_bytes(certificates.client.read_bytes())
                key.write_bytes(certificates.client_key.read_bytes())
                service.reload()
                after = await asyncio.to_thread(ssl.get_server_certificate, address, timeout=PATIENCE_S)
                assert before in certificates.server.read_text(encoding="ascii")
                assert after in certificates.client.read_text(encoding="ascii")
                assert await client.publish("a", qos=1) is ReasonCode.NO_MATCHING_SUBSCRIBERS

    asyncio.run(main())


def test_passwords_are_asked_for_where_they_should_be(running: Running, tmp_path: Path) -> None:
    set_password(tmp_path / "users", "ann", "secret")

    async def main() -> None:
        flags = {"security.users": tmp_path / "users", "security.failures_max": 3, "listeners[1].port": 0,
                 "listeners[1].name": "open", "listeners[1].anonymous": True}  # fmt: skip
        async with running(flags) as service:
            closed, open_one = (listener.port for listener in service.listeners)
            async with Client(port=open_one):
                pass
            async with Client(port=closed, username="ann", password=b"secret", client_id="c"):
                assert [session.user for session in service.server.broker.sessions.named("c")] == ["ann"]
            with pytest.raises(RefusedError, match="bad user name or password"):
                await Client(port=closed).connect()
            for _ in range(3):
                with pytest.raises(RefusedError, match="bad user name or password"):
                    await Client(port=closed, username="ann", password=b"guess").connect()
            async with Client(port=closed, username="ann", password=b"secret", client_id="d"):
                # Wrong passwords lock nobody out.
                assert [session.user for session in service.server.broker.sessions.named("d")] == ["ann"]

    asyncio.run(main())


def test_a_port_that_is_taken_is_named(running: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def main() -> None:
            async with running({"listeners[0].port": port}):
                pass

        with pytest.raises(Exception, match=f"cannot listen at 127.0.0.1, port {port}: Address already in use"):
            asyncio.run(main())


def test_connections_are_logged(running: Running, tmp_path: Path, raw: Raw) -> None:
    async def main() -> None:
        async with running() as service:
            async with Client(port=service.listeners[0].port, client_id="ann"):
                pass
            await raw(service.listeners[0].port, b"GET / HTTP/1.1\r\n\r\n")

    asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "broker.log").read_text(encoding="utf-8").splitlines()]
    events = [line["event"] for line in lines]
    assert [line["client"] for line in lines if line["event"] == "connected"] == ["ann"]
    assert [line["reason"] for line in lines if line["event"] == "disconnected"] == ["disconnected"]
    assert "closed" in events
    assert any(line["level"] == "warning" for line in lines)  # bytes that are no MQTT


def test_a_client_that_does_not_close_keeps_nobody_from_stopping(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the broker's last word a connection waits for its client, but not while the broker stops."""
    monkeypatch.setattr("surecast.broker.tcp._LINGER_S", 1_000)

    async def main() -> None:
        async with running({"drain": "1000s"}) as service:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.listeners[0].port)
            writer.write(b"\0\0")
            assert await reader.read() == b""  # the broker has ended its side
            assert service.server.transports == 1
        writer.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
