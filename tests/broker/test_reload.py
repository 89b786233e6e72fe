"""SIGHUP with a changed configuration file, and limits of listeners and clients, over real sockets."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.config import load_config
from surecast.broker.config_models import BrokerConfig
from surecast.broker.reload import merge, prepare
from surecast.broker.security import set_password
from surecast.client import Client, RefusedError
from surecast.errors import ConfigurationError
from surecast.protocol.mqtt import Properties

Start = Callable[..., Any]
Running = Callable[..., AbstractAsyncContextManager[Any]]
LASTING = Properties(session_expiry_s=3600)


def loaded(text: str, folder: Path) -> BrokerConfig:
    path = folder / "broker.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_what_is_bound_or_open_stays_and_is_named(tmp_path: Path) -> None:
    old = loaded(
        """
name: old
listeners:
  - {name: a, port: 1001, limits: {inflight: 5}}
  - {port: 1002}
state: {folder: one}
http: {port: 1003}
limits: {topic_levels: 9, queue_messages: 5}
log: {level: info, format: text}
""",
        tmp_path,
    )
    new = loaded(
        """
name: new
listeners:
  - {port: 1004}
  - {name: a, port: 1005, limits: {inflight: 6}, connections_max: 7}
state: {folder: two}
http: {port: 1006}
limits: {topic_levels: 8, queue_messages: 6}
log: {level: error, format: json}
clients: [{client: "x*", limits: {overflow: reject}}]
drain: 9s
""",
        tmp_path,
    )
    merged, waiting = merge(old, new)
    assert waiting == [
        "name",
        "state",
        "listeners[1].port",
        "listeners (tcp-1002 stays open)",
        "listeners[0]",
        "limits.topic_levels",
        "log.format",
        "http.port",
    ]
    assert [(each.label, each.port) for each in merged.listeners] == [("a", 1001), ("tcp-1002", 1002)]
    assert (merged.listeners[0].limits.inflight, merged.listeners[0].connections_max) == (6, 7)
    assert (merged.limits.topic_levels, merged.limits.queue_messages) == (9, 6)
    assert (merged.log.level, merged.log.format) == ("error", "text")
    assert (merged.name, merged.state, merged.clients, merged.drain) == ("old", old.state, new.clients, 9.0)
    assert merge(old, old) == (old, [])


def test_a_listener_that_keeps_its_address_is_checked_with_the_new_users(tmp_path: Path) -> None:
    set_password(tmp_path / "users", "ann", "secret")
    old = loaded("listeners: [{name: a, host: 0.0.0.0}]\nsecurity: {users: users}\n", tmp_path)
    new = loaded("listeners: [{name: a, host: 127.0.0.1}]\n", tmp_path)  # by itself it is safe
    merged, waiting = merge(old, new)
    assert waiting == ["listeners[0].host"]
    with pytest.raises(ConfigurationError, match=r"0\.0\.0\.0 would let anybody in the network connect"):
        prepare(merged)


def test_sighup_reads_the_configuration_file_again(start_broker: Start, tmp_path: Path) -> None:
    file, users = tmp_path / "broker.yaml", tmp_path / "users"
    set_password(users, "ann", "secret")
    file.write_text("listeners: [{port: 0}]\nlimits: {queue_messages: 2}\n", encoding="utf-8")
    broker = start_broker("--config", file)

    def hang_up(event: str) -> dict[str, Any]:
        after = len(broker.lines)
        broker.send(signal.SIGHUP)
        return dict(broker.wait_for(event, after))

    async def main() -> None:
        port = broker.port
        async with Client(port=port, client_id="kept", clean_start=False, properties=LASTING) as kept:
            await kept.subscribe("t", qos=1)
        nobody = Client(port=port, client_id="nobody")
        await nobody.connect()

        for _ in range(4):
            await nobody.publish("t", b"x", qos=1)
        file.write_text(
            "name: renamed\nlisteners: [{port: 0}]\nlimits: {queue_messages: 2}\n"
            "clients: [{client: k*, limits: {queue_messages: 3, overflow: reject}}]\n",
            encoding="utf-8",
        )
        hang_up("reloaded")
        line = await asyncio.to_thread(broker.wait_for, "changes that need a restart are left alone")
        assert line["fields"] == "name"
        await nobody.publish("t", b"x", qos=1)  # there is room for a third
        with pytest.raises(RefusedError, match="quota exceeded"):
            await nobody.publish("t", b"x", qos=1)

        file.write_text("limits: {queue_messages: none}\n", encoding="utf-8")
        line = hang_up("reload failed, all stays as it was")
        assert "broker.yaml:1: limits.queue_messages" in line["reason"]
        with pytest.raises(RefusedError, match="quota exceeded"):
            await nobody.publish("t", b"x", qos=1)

        file.write_text("security: {users: users}\n", encoding="utf-8")
        line = hang_up("reloaded")
        assert line["clients_disconnected"] == 1
        with pytest.raises(RefusedError, match="not authorized"):
            await nobody.message()
        await nobody.disconnect()
        with pytest.raises(RefusedError, match="bad user name or password"):
            await Client(port=port).connect()
        async with Client(port=port, username="ann", password=b"secret") as ann:
            await ann.publish("other", b"x", qos=1)

        file.write_text("log: {level: error}\n", encoding="utf-8")
        broker.send(signal.SIGHUP)
        await asyncio.to_thread(_until, lambda: _connects(port))

    asyncio.run(main())
    count = sum(line["event"] == "connected" for line in broker.lines)
    assert broker.end() == 0
    assert count == sum(line["event"] == "connected" for line in broker.lines)


def _connects(port: int) -> bool:
    async def main() -> bool:
        try:
            async with Client(port=port):
                return True
        except RefusedError:
            return False

    return asyncio.run(main())


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end


def test_limits_of_listeners_and_clients_hold_on_real_connections(running: Running) -> None:
    flags = {
        "listeners": [
            {"name": "plain", "port": 0},
            {"name": "web", "kind": "websocket", "port": 0, "limits": {"queue_messages": 3, "packet_size": "2kB"}},
        ],
        "listeners[0].port": 0,
        "clients": [{"client": "fast*", "limits": {"publish_rate": "100/s", "receive_maximum": 7}}],
    }

    async def main() -> None:
        async with running(flags) as service:
            plain, web = (listener.port for listener in service.listeners)
            for name, port, path in (("p", plain, None), ("w", web, "/mqtt")):
                client = Client(port=port, client_id=name, clean_start=False, properties=LASTING, websocket_path=path)
                await client.connect()
                assert client.connack.properties.maximum_packet_size == (2_000 if name == "w" else 16 << 20)
                await client.subscribe("t", qos=1)
                await client.disconnect()
            fast = Client(port=plain, client_id="fast-1")
            await fast.connect()
            assert fast.connack.properties.receive_maximum == 7
            sessions = service.server.broker.sessions.by_key
            begun = time.monotonic()
            for _ in range(150):
                await fast.publish("t", b"x", qos=1)
            took_s = time.monotonic() - begun
            assert took_s > 0.4  # 100 at once, and 50 at 100/s
            assert sessions["p"].queued == 150
            assert sessions["w"].queued == 3
            await fast.disconnect()

    asyncio.run(main())


def test_a_client_that_is_held_back_hears_why_it_is_disconnected(running: Running) -> None:
    flags = {"limits.publish_rate": "1/s"}

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), running(flags) as service:
            client = Client(port=service.listeners[0].port, client_id="held")
            await client.connect()
            for _ in range(50):
                await client.publish("t", b"x")
            while not service.server._held:
                await asyncio.sleep(0.01)
            service.server.kick("held", end_session=False)
            with pytest.raises(RefusedError, match="administrative action"):
                await client.message()
            await client.disconnect()
            while service.server._held:
                await asyncio.sleep(0.01)

    asyncio.run(main())
