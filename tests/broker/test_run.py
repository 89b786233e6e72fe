"""A broker as a whole: it stops gracefully, reloads on SIGHUP, and loses nothing when it is killed."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from tests.patience import PATIENCE_S

from surecast.broker.broker_service import EXIT_STORE_FAILED, BrokerService
from surecast.broker.config import load_config
from surecast.broker.event_log import read_from
from surecast.broker.security import remove_user, set_password
from surecast.broker.service_log import BrokerLog
from surecast.broker.store import StoreError
from surecast.client import Client, ClientError, LostError, RefusedError
from surecast.errors import ConfigurationError
from surecast.protocol.mqtt import V311, Properties, ReasonCode, Will

Start = Callable[..., Any]
Running = Callable[..., AbstractAsyncContextManager[Any]]
LASTING = Properties(session_expiry_s=3600)
needs_mosquitto = pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto-clients is not installed")


def test_a_broker_with_a_port_alone_works_at_once_and_stops_gracefully(start_broker: Start) -> None:
    broker = start_broker()
    assert broker.started["durability"] == "memory"

    async def main() -> None:
        will = Will("wills/ann", b"gone")
        async with Client(port=broker.port, client_id="watch") as watch:
            await watch.subscribe("#", qos=1)
            ann = Client(port=broker.port, client_id="ann", will=will)
            old = Client(port=broker.port, client_id="old", version=V311)
            await ann.connect()
            await old.connect()
            await ann.publish("a", b"1", qos=1)
            assert (await watch.message()).payload == b"1"
            broker.send(signal.SIGTERM)
            with pytest.raises(RefusedError) as caught:
                await ann.message()
            assert caught.value.reason is ReasonCode.SERVER_SHUTTING_DOWN
            with pytest.raises(LostError):  # MQTT 3.1.1 has no word for it
                await old.message()
            await ann.disconnect()
            await old.disconnect()

    asyncio.run(main())
    assert broker.end() == 0
    assert [line["event"] for line in broker.lines][-2:] == ["stopped", "end of log"]
    with pytest.raises(ClientError, match="cannot connect"):
        asyncio.run(Client(port=broker.port).connect())


@needs_mosquitto
def test_kill_9_and_a_new_start_lose_no_acknowledged_message(start_broker: Start, tmp_path: Path) -> None:
    """Foreign clients on both sides: paho keeps a session, mosquitto_pub is acknowledged, the broker is killed."""
    folder = tmp_path / "state"
    broker = start_broker("--folder", folder)
    port = broker.port

    def subscriber(subscribe: bool) -> tuple[paho.Client, threading.Event]:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", clean_session=False)
        done = threading.Event()

        def connected(client: paho.Client, *rest: Any) -> None:
            if subscribe:
                client.subscribe("plant/#", 1)

        client.on_connect = connected  # type: ignore[assignment]
        client.on_subscribe = lambda *rest: done.set()
        client.connect("127.0.0.1", port)
        client.loop_start()
        return client, done

    client, done = subscriber(subscribe=True)
    assert done.wait(PATIENCE_S)
    client.disconnect()
    client.loop_stop()
    for number in range(3):
        command = [
            "mosquitto_pub",
            "-p",
            str(port),
            "-t",
            f"plant/{number}",
            "-q",
            str(1 + number % 2),
            "-m",
            str(number),
        ]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
    subprocess.run(
        ["mosquitto_pub", "-p", str(port), "-t", "kept", "-r", "-q", "1", "-m", "last"], check=True, timeout=PATIENCE_S
    )
    assert broker.end(signal.SIGKILL) == -signal.SIGKILL

    again = start_broker("--folder", folder, port=port)
    assert again.started["sessions"] == 1
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", clean_session=False)
    received: list[bytes] = []
    all_there = threading.Event()

    def message(client: paho.Client, data: Any, found: paho.MQTTMessage) -> None:
        received.append(found.payload)
        if len(received) == 4:
            all_there.set()

    client.on_message = message
    client.on_connect = lambda client, *rest: client.subscribe("kept", 1)  # type: ignore[assignment]
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert all_there.wait(PATIENCE_S)
    client.disconnect()
    client.loop_stop()
    assert received == [b"0", b"1", b"2", b"last"]
    assert again.end() == 0


def test_a_request_that_is_sent_again_after_kill_9_is_published_once(start_broker: Start, tmp_path: Path) -> None:
    folder = tmp_path / "state"

    def request(number: int) -> Properties:
        return Properties(user=(("surecast-request", f"till-7:{number}"),))

    async def before(port: int) -> None:
        async with Client(port=port, client_id="kept", clean_start=False, properties=LASTING) as kept:
            await kept.subscribe("till", qos=2)
        async with Client(port=port) as till:
            for number, qos in ((1, 1), (2, 2)):
                assert await till.publish("till", str(number).encode(), qos, properties=request(number)) == 0
            assert await till.publish("nobody", b"", 1, properties=request(3)) == ReasonCode.NO_MATCHING_SUBSCRIBERS

    async def after(port: int) -> None:
        async with Client(port=port) as till:
            for number, qos in ((2, 2), (1, 1), (4, 1)):
                assert await till.publish("till", str(number).encode(), qos, properties=request(number)) == 0
            assert await till.publish("till", b"", 1, properties=request(3)) == ReasonCode.NO_MATCHING_SUBSCRIBERS
        async with Client(port=port, client_id="kept", clean_start=False, properties=LASTING) as kept:
            messages = [await kept.message() for _ in range(3)]
            assert [message.payload for message in messages] == [b"1", b"2", b"4"]
            assert not any(message.properties for message in messages)

    broker = start_broker("--folder", folder)
    asyncio.run(before(broker.port))
    assert broker.end(signal.SIGKILL) == -signal.SIGKILL
    again = start_broker("--folder", folder)
    asyncio.run(after(again.port))
    assert again.end() == 0


def test_the_wills_of_connected_clients_are_sent_after_kill_9(start_broker: Start, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    broker = start_broker("--folder", folder)

    async def before() -> None:
        async with Client(port=broker.port, client_id="watch", clean_start=False, properties=LASTING) as watch:
            await watch.subscribe("wills/#", qos=1)
        async with AsyncExitStack() as stack:
            for name in ("ann", "bob"):
                will = Will(f"wills/{name}", name.encode(), 1)
                await stack.enter_async_context(Client(port=broker.port, client_id=name, will=will))
            async with Client(port=broker.port, client_id="cid", will=Will("wills/cid", b"", 1)):
                pass
            assert broker.end(signal.SIGKILL) == -signal.SIGKILL

    async def after(port: int) -> list[bytes]:
        async with Client(port=port, client_id="watch", clean_start=False, properties=LASTING) as watch:
            return sorted([(await watch.message()).payload for _ in range(2)])

    asyncio.run(before())
    again = start_broker("--folder", folder)
    assert asyncio.run(after(again.port)) == [b"ann", b"bob"]
    assert again.end() == 0


def test_only_one_broker_in_a_folder(start_broker: Start, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    broker = start_broker("--folder", folder)
    assert int((folder / "broker.pid").read_text(encoding="utf-8")) == broker.process.pid
    config = load_config(None, {"listeners[0].port": 0, "state.folder": folder})
    with pytest.raises(StoreError, match="another broker is using this folder"):
        asyncio.run(BrokerService(config, BrokerLog("error")).run())
    assert broker.end(signal.SIGINT) == 0
    assert not (folder / "broker.pid").exists()
    assert not (folder / "admin.sock").exists()


def test_sighup_reads_users_rules_and_certificates_again(
    start_broker: Start, tmp_path: Path, certificates: Any
) -> None:
    users, acl, crt, key = tmp_path / "users", tmp_path / "acl", tmp_path / "s.crt", tmp_path / "s.key"
    set_password(users, "ann", "secret")
    set_password(users, "bob", "secret")
    acl.write_text("allow all #\n", encoding="utf-8")
    crt.write_bytes(certificates.server.read_bytes())
    key.write_bytes(certificates.server_key.read_bytes())
    tls = f'[{{}}, {{kind: tls, port: 0, certificate: "{crt}", key: "{key}"}}]'
    broker = start_broker("--users", users, "--acl", acl, "--set", f"listeners={tls}", "--set", "listeners[0].port=0")

    async def main() -> None:
        ann = Client(port=broker.port, client_id="ann", username="ann", password=b"secret")
        bob = Client(port=broker.port, client_id="bob", username="bob", password=b"secret")
        for client in (ann, bob):
            await client.connect()
            await client.subscribe("plant/#", qos=1)
        await ann.publish("plant/1", b"before", qos=1)
        assert [(await client.message()).payload for client in (ann, bob)] == [b"before"] * 2

        acl.write_text("deny all plant/#\nallow all other/#\n", encoding="utf-8")
        remove_user(users, "bob")
        broker.send(signal.SIGHUP)
        line = await asyncio.to_thread(broker.wait_for, "reloaded")
        assert (line["subscriptions_ended"], line["clients_disconnected"]) == (2, 1)
        with pytest.raises(RefusedError, match="not authorized"):
            await bob.message()
        with pytest.raises(RefusedError, match="not authorized"):  # what was allowed before is not remembered
            await ann.publish("plant/1", b"after", qos=1)
        await ann.publish("other/1", b"after", qos=1)
        for name in ("bob", "nobody", None):
            with pytest.raises(RefusedError, match="bad user name or password"):
                await Client(port=broker.port, username=name, password=b"secret").connect()
        await bob.disconnect()

        crt.write_text("no certificate", encoding="utf-8")
        acl.write_text("allow all #\n", encoding="utf-8")
        broker.send(signal.SIGHUP)
        line = await asyncio.to_thread(broker.wait_for, "reload failed, all stays as it was")
        assert "s.crt" in line["reason"]
        with pytest.raises(RefusedError):
            await ann.publish("plant/1", b"after", qos=1)
        await ann.disconnect()

    asyncio.run(main())
    assert broker.end() == 0


class FullDisk:
    """A store whose disk is full after some commits."""

    def __init__(self, store: Any, commits: int):
        self._store = store
        self._left = commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, operations: Any) -> None:
        self._left -= 1
        if self._left < 0:
            raise StoreError("state.db: the disk is full")
        self._store.commit(operations)


def test_a_store_that_fails_ends_the_broker_and_nothing_more_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surecast.broker import broker_service
    from surecast.broker.store import MemoryStore

    monkeypatch.setattr(broker_service, "open_store", lambda *given: FullDisk(MemoryStore(), 3))
    config = load_config(None, {"listeners[0].port": 0, "admin_socket": tmp_path / "a.sock"})

    async def main() -> int:
        with (tmp_path / "log").open("w") as stream:
            service = BrokerService(config, BrokerLog("info", "json", stream))
            task = asyncio.create_task(service.run())
            await service.ready.wait()
            port = service.listeners[0].port
            client = Client(port=port, client_id="ann", clean_start=False, properties=LASTING)
            await client.connect()
            await client.subscribe("a", qos=1)
            await client.publish("a", b"1", qos=1)
            with pytest.raises(LostError):
                await client.publish("a", b"2", qos=1)
            await client.disconnect()
            return await task

    assert asyncio.run(main()) == EXIT_STORE_FAILED
    lines = [json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    assert lines[-1]["event"] == "store failed"
    assert "the disk is full" in lines[-1]["reason"]


def test_system_topics_and_the_event_log(running: Running, tmp_path: Path) -> None:
    async def main() -> None:
        flags = {"system_interval": "1s", "event_log.folder": tmp_path / "events", "event_log.alive_interval": "500ms"}
        async with running(flags) as service:
            port = service.listeners[0].port
            async with Client(port=port, client_id="ann") as ann, Client(port=port, client_id="bob") as bob:
                await ann.subscribe("$SYS/broker/clients/connected")
                await ann.subscribe("a/#", qos=1)
                await bob.subscribe("$share/g/a/#")
                timed = Properties(user=(("deadline-ms", "1500"), ("publication-time", "1700000000.5")))
                await bob.publish("a/b", b"12345", qos=1, properties=timed)
                assert (await ann.message()).payload == b"12345"
                system = await ann.message()
                assert (system.topic, system.payload) == ("$SYS/broker/clients/connected", b"2")
                await asyncio.sleep(0)

    asyncio.run(main())
    records = read_from(tmp_path / "events", 0)
    kinds = [record["type"] for record in records]
    assert kinds[0] == "started"
    assert kinds[-1] == "stopped"
    assert "alive" in kinds
    (published,) = [record for record in records if record["type"] == "published"]
    assert (published["client"], published["receivers"], published["bytes"]) == ("bob", 2, 5)
    assert (published["publication_time"], published["deadline_s"]) == (1700000000.5, 1.5)
    delivered = [record for record in records if record["type"] == "delivered"]
    assert {record["client"] for record in delivered} == {"ann", "bob"}
    assert {record["message"] for record in delivered} == {published["message"]}
    reasons = [record["reason"] for record in records if record["type"] == "disconnected"]
    assert reasons == ["client", "client"]


def test_a_slow_client_does_not_keep_the_broker_from_stopping(running: Running) -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with running({"drain": "300ms"}) as service:
            port = service.listeners[0].port
            slow, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(bytes.fromhex("100d00044d515454040200000001 73".replace(" ", "")))
            writer.write(bytes.fromhex("8206000100016100"))
            assert await slow.readexactly(9)
            async with Client(port=port) as client:
                for _ in range(30):
                    await client.publish("a", b"x" * 500_000)
            begun = loop.time()
        took = loop.time() - begun
        writer.close()
        return took

    assert asyncio.run(main()) < 3.0


def test_the_log_is_cut_in_a_flood(tmp_path: Path) -> None:
    now = 100.0
    with (tmp_path / "log").open("w+") as stream:
        log = BrokerLog("info", "text", stream, clock=lambda: now)
        for number in range(1_000):
            log.warning("noise", number=number, text='a "b"\n', nothing=None)
        now = 101.0
        log.info("quiet")
        log.debug("unwanted")
        stream.seek(0)
        lines = stream.read().splitlines()
    assert lines[0].endswith('warning noise number=0 text="a \\"b\\"\\n"')
    assert len(lines) == 202
    assert lines[-2].endswith("log lines left out count=800")


def test_what_cannot_start_says_why(running: Running, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-that-is-long-enough", encoding="utf-8")
    (tmp_path / "token").chmod(0o644)

    async def main() -> None:
        async with running({"http.port": 0, "http.token_file": tmp_path / "token"}):
            pass

    with pytest.raises(ConfigurationError, match="can be read by others; run: chmod 600"):
        asyncio.run(main())
