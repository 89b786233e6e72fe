"""Status, clients, kick, health, metrics and the event log over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import make_certificate
from tests.patience import PATIENCE_S

from surecast.broker.admin_client import AdminError, ask
from surecast.broker.admin_http import _Slots
from surecast.broker.event_log import EventLog, Started
from surecast.broker.security import set_password
from surecast.client import Client, RefusedError
from surecast.protocol.mqtt import Properties, ReasonCode

Running = Callable[..., AbstractAsyncContextManager[Any]]


async def http(address: str, request: str | bytes, headers: str = "") -> tuple[int, str, str]:
    """Status, head and body of one request, by hand."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = request if isinstance(request, bytes) else f"{request} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()
    writer.write(data)
    answer = (await reader.read()).decode("latin-1")
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return (int(head.split(" ")[1]) if head else 0), head, body


def basic(name: str, password: str) -> str:
    return f"Authorization: Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}\r\n"


def test_an_administrator_sees_the_accounts_and_kicks_clients(running: Running, tmp_path: Path) -> None:
    async def main() -> None:
        socket = tmp_path / "admin.sock"
        async with running() as service:
            assert socket.stat().st_mode & 0o777 == 0o600
            port = service.listeners[0].port
            for name, count in (("short", 1), ("long", 3)):
                lasting = Properties(session_expiry_s=600)
                async with Client(port=port, client_id=name, clean_start=False, properties=lasting) as client:
                    await client.subscribe(f"to/{name}", qos=1)
                async with Client(port=port) as client:
                    for _ in range(count):
                        await client.publish(f"to/{name}", b"x", qos=1)
            ann = Client(port=port, client_id="ann")
            await ann.connect()

            status = await asyncio.to_thread(ask, socket, "/status")
            assert status["ready"]
            assert (status["sessions"], status["connected"], status["durability"]) == (3, 1, "memory")
            assert status["accounts"] == {"matched": 4, "delivered": 0, "expired": 0, "dropped": {}, "queued": 4}
            sessions = await asyncio.to_thread(ask, socket, "/sessions", {"limit": 2})
            assert sessions["total"] == 3
            assert [(s["client"], s["waiting"]) for s in sessions["sessions"]] == [("long", 3), ("short", 1)]
            clients = await asyncio.to_thread(ask, socket, "/clients")
            assert [(c["client"], c["version"]) for c in clients["clients"]] == [("ann", "5.0")]

            await asyncio.to_thread(ask, socket, "/kick", {"client": "ann"}, "POST")
            with pytest.raises(RefusedError) as caught:
                await ann.message()
            assert caught.value.reason is ReasonCode.ADMINISTRATIVE_ACTION
            await ann.disconnect()
            await asyncio.to_thread(ask, socket, "/kick", {"client": "long", "end_session": "true"}, "POST")
            accounts = (await asyncio.to_thread(ask, socket, "/status"))["accounts"]
            assert accounts["dropped"] == {"session-ended": 3}
            assert accounts["queued"] == 1
            for client, words in (("nobody", "there is no client nobody"), ("short", "short is not connected")):
                with pytest.raises(AdminError, match=words):
                    await asyncio.to_thread(ask, socket, "/kick", {"client": client}, "POST")
        assert not socket.exists()
        with pytest.raises(AdminError, match="no broker runs here"):
            ask(socket, "/status")

    asyncio.run(main())


def test_of_namesakes_the_administrator_says_whose_client_to_kick(running: Running, tmp_path: Path) -> None:
    """Users with a client of one identifier are connected at the same time; only the one that is named is kicked."""

    async def main() -> None:
        socket = tmp_path / "admin.sock"
        for user in ("ann", "bob"):
            set_password(tmp_path / "users", user, "secret")
        async with running({"security.users": tmp_path / "users"}) as service:
            port = service.listeners[0].port
            ann, bob = (Client(port=port, client_id="till", username=u, password=b"secret") for u in ("ann", "bob"))
            await ann.connect()
            await bob.connect()
            with pytest.raises(AdminError, match=r"till is a client of several users: ann, bob; say which with user="):
                await asyncio.to_thread(ask, socket, "/kick", {"client": "till"}, "POST")
            with pytest.raises(AdminError, match="there is no client till of the user carl"):
                await asyncio.to_thread(ask, socket, "/kick", {"client": "till", "user": "carl"}, "POST")
            await asyncio.to_thread(ask, socket, "/kick", {"client": "till", "user": "bob"}, "POST")
            with pytest.raises(RefusedError) as caught:
                await bob.message()
            assert caught.value.reason is ReasonCode.ADMINISTRATIVE_ACTION
            clients = (await asyncio.to_thread(ask, socket, "/clients"))["clients"]
            assert [(each["user"], each["client"]) for each in clients] == [("ann", "till")]
            await bob.disconnect()
            await ann.disconnect()

    asyncio.run(main())


def test_over_the_network_the_token_is_asked_for(running: Running, tmp_path: Path) -> None:
    async def main() -> None:
        token_file = tmp_path / "token"
        async with running({"http.port": 0, "http.token_file": token_file}) as service:
            (address,) = service.http_addresses
            assert token_file.stat().st_mode & 0o777 == 0o600
            token = token_file.read_text(encoding="utf-8").strip()
            assert (await http(address, "GET /healthz"))[0] == 200
            assert (await http(address, "GET /readyz"))[::2] == (200, "ready\n")
            assert (await http(address, "HEAD /readyz"))[::2] == (200, "")
            for path in ("/status", "/clients", "/sessions", "/log"):
                for headers in ("", "Authorization: Bearer wrong\r\n", "Authorization: Bearer \r\n", basic("a", "b")):
                    status, head, _ = await http(address, f"GET {path}", headers)
                    assert status == 401
                    assert "WWW-Authenticate" in head
            assert (await http(address, "POST /kick?client=x"))[0] == 401
            url = f"http://{address}"
            assert (await asyncio.to_thread(ask, url, "/status", None, "GET", token))["name"] == "surecast"
            with pytest.raises(AdminError, match="show the token"):
                await asyncio.to_thread(ask, url, "/status")
            with pytest.raises(AdminError, match="no event log"):
                await asyncio.to_thread(ask, url, "/log", None, "GET", token)

    asyncio.run(main())


def test_over_tls_with_a_certificate_that_can_be_renewed(running: Running, tmp_path: Path, certificates: Any) -> None:
    crt, key, token = tmp_path / "h.crt", tmp_path / "h.key", tmp_path / "token"
    crt.write_bytes(certificates.server.read_bytes())
    key.write_bytes(certificates.server_key.read_bytes())
    flags = {"http.port": 0, "http.certificate": crt, "http.key": key, "http.token_file": token}

    def asked(address: str, trusted: Path) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=str(trusted))
        with urllib.request.urlopen(f"https://{address}/readyz", context=context, timeout=PATIENCE_S) as answer:
            return {"status": answer.status}

    async def main() -> None:
        async with running(flags) as service:
            address = service.http_addresses[0]
            assert (await asyncio.to_thread(asked, address, certificates.ca))["status"] == 200
            assert (await http(address, "GET /readyz"))[0] == 0  # not without TLS
            with pytest.raises(AdminError, match="certificate"):  # nobody has said that this authority is to be trusted
                await asyncio.to_thread(ask, f"https://{address}", "/status", token=token.read_text().strip())
            make_certificate(tmp_path, "other", None, "other")
            make_certificate(tmp_path, "new", "other", "localhost", "subjectAltName=IP:127.0.0.1\n")
            crt.write_bytes((tmp_path / "new.crt").read_bytes())
            key.write_bytes((tmp_path / "new.key").read_bytes())
            service.reload()
            assert (await asyncio.to_thread(asked, address, tmp_path / "other.crt"))["status"] == 200
            key.write_text("no key", encoding="utf-8")
            service.reload()
            assert (await asyncio.to_thread(asked, address, tmp_path / "other.crt"))["status"] == 200

    asyncio.run(main())
    assert "reload failed" in (tmp_path / "broker.log").read_text()


def test_bad_requests_are_refused(running: Running) -> None:
    async def main() -> None:
        async with running({"http.port": 0}) as service:
            (address,) = service.http_addresses
            for request, status in (
                (b"nonsense\r\n\r\n", 400),
                (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
                (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
                (b"GET / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 400),
                (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
                (b"GET /none HTTP/1.1\r\n\r\n", 404),
                (b"DELETE /status HTTP/1.1\r\n\r\n", 405),
                (b"GET /kick HTTP/1.1\r\n\r\n", 405),
            ):
                assert (await http(address, request))[0] == status, request[:40]

    asyncio.run(main())


def test_the_event_log_by_offset_has_no_gaps(running: Running, tmp_path: Path) -> None:
    folder, users = tmp_path / "events", tmp_path / "users"
    with EventLog(folder, segment_bytes=200) as log:  # an old log, of which the first segments are gone
        for number in range(10):
            log.append(Started(float(number), "old"))
            log.flush()
    removed = sorted(folder.glob("events-*"))[:2]
    for segment in removed:
        segment.unlink()
    first = int(sorted(folder.glob("events-*"))[0].stem.removeprefix("events-"))
    set_password(users, "reader", "secret")
    set_password(users, "other", "secret")

    async def main() -> None:
        flags = {"http.port": 0, "http.log_readers": ["reader"], "security.users": users, "event_log.folder": folder}
        async with running(flags) as service:
            (address,) = service.http_addresses
            reader = basic("reader", "secret")
            for headers in ("", basic("other", "secret"), basic("reader", "wrong"), basic("nobody", "secret")):
                assert (await http(address, "GET /log", headers))[0] == 401
            status, _, body = await http(address, "GET /log?offset=0", reader)
            assert (status, json.loads(body)["first_available"]) == (410, first)
            offset, seen = first, []
            while True:
                status, _, body = await http(address, f"GET /log?offset={offset}&limit=3", reader)
                assert status == 200
                data = json.loads(body)
                seen += [record["offset"] for record in data["records"]]
                offset = data["next_offset"]
                if not data["records"]:
                    break
            assert seen == list(range(first, 11))  # ten old ones, and `started`
            status, _, body = await http(address, "GET /log?offset=999", reader)
            assert (status, json.loads(body)["next_offset"]) == (416, 11)
            assert (await http(address, "GET /log?offset=-1", reader))[0] == 400
            status, _, body = await http(address, "GET /status", reader)  # a reader is no administrator
            assert (status, "at the local socket only" in body) == (403, True)  # and there is no token

    asyncio.run(main())


def test_two_brokers_do_not_share_a_socket(running: Running) -> None:
    async def main() -> None:
        async with running(), running():
            pass

    with pytest.raises(Exception, match="another broker answers here"):
        asyncio.run(main())


def test_silent_connections_keep_nobody_out(running: Running, tmp_path: Path) -> None:
    """64 of them switched off health, metrics and the local socket for all others."""

    async def main() -> None:
        async with running({"http.port": 0}) as service:
            address = service.http_addresses[0]
            host, port = address.split(":")
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
            local = [await asyncio.open_unix_connection(str(tmp_path / "admin.sock")) for _ in range(100)]
            for path in ("/healthz", "/readyz"):
                assert (await http(address, f"GET {path}"))[0] == 200
            assert (await asyncio.to_thread(ask, tmp_path / "admin.sock", "/status"))["ready"]
            turned_away = await figure(address, 'surecast_http_turned_away_total{reason="silent"}')
            assert turned_away >= 200 - 32 + 100 - 64
            for _, writer in (*silent, *local):
                writer.close()

    asyncio.run(main())


async def figure(address: str, name: str) -> float:
    """One figure of the metrics."""
    _, _, body = await http(address, "GET /metrics")
    return next(float(line.rpartition(" ")[2]) for line in body.splitlines() if line.startswith(name))


def test_who_is_being_answered_is_not_sent_away() -> None:
    class Writer:
        def __init__(self) -> None:
            self.transport = self
            self.is_aborted = False

        def abort(self) -> None:
            self.is_aborted = True

    counts: Counter[str] = Counter()
    places = _Slots(counts)
    asking = [Writer() for _ in range(64)]
    for number, writer in enumerate(asking):
        assert places.enter(writer, f"10.0.0.{number}")  # type: ignore[arg-type]
        places.ask(writer)  # type: ignore[arg-type]
    assert not places.enter(Writer(), "10.0.1.1")  # type: ignore[arg-type]
    assert not any(writer.is_aborted for writer in asking)
    assert counts == {"busy": 1}
    places.leave(asking[0])  # type: ignore[arg-type]
    silent = Writer()
    assert places.enter(silent, "10.0.1.1")  # type: ignore[arg-type]
    assert places.enter(Writer(), "10.0.1.2")  # type: ignore[arg-type]
    assert silent.is_aborted
