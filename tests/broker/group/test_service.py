"""What clients find at a group: one broker, whichever replica they go to. One group serves all tests here."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.group.raw import Raw
from tests.patience import PATIENCE_S

from surecast.broker.admin_client import ask
from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.config import admin_socket_path
from surecast.broker.event_log_reader import read_from
from surecast.broker.group_config import config_of
from surecast.client import Client, RefusedError
from surecast.client.group_client import GroupClient, split_address
from surecast.client.replicated import dial
from surecast.client.sync import SyncGroupClient
from surecast.protocol.mqtt import (
    V5,
    V31,
    V311,
    Connack,
    Disconnect,
    Properties,
    Puback,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
)

Run = Callable[..., Any]
SURECAST = Path(sys.executable).parent / "surecast"
RULES = ["allow all open/#", "allow publish secret/# user=ann", "allow subscribe secret/# user=ann"]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGroup]:
    """A group with users, access rules and an event log."""
    folder = tmp_path_factory.mktemp("service")
    subprocess.run([SURECAST, "passwd", folder / "users", "ann"], input="pw\n", text=True, check=True)
    options = {
        "sync": "none",
        "security": {"users": "users", "rules": RULES},
        "event_log": {"folder": "events"},
    }
    path = write_group(folder, 3, options=options)
    path.write_text(path.read_text().replace("- name: mqtt", "- name: mqtt\n    anonymous: true"))
    with LocalGroup(path) as group:
        group.start()
        group.wait_ready(PATIENCE_S)
        yield group


def at(group: LocalGroup, number: int, name: str = "", **options: Any) -> Client:
    host, port = split_address(group.addresses[number - 1])
    return Client(host, port, client_id=name, **options)


LASTING = Properties(session_expiry_s=300)


def test_a_session_moves_from_replica_to_replica(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        async with at(group, 1, "mover", clean_start=False, properties=LASTING) as first:
            await first.subscribe("open/moves", qos=2)
        async with at(group, 2) as publisher:
            for n in range(5):
                await publisher.publish("open/moves", b"%d" % n, qos=n % 2 + 1)
        async with at(group, 3, "mover", clean_start=False, properties=LASTING) as second:
            assert second.connack.session_present
            assert [(await second.message()).payload for _ in range(5)] == [b"%d" % n for n in range(5)]

    run(main)


def test_a_second_connection_takes_the_session_over_at_another_replica(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        async with await Raw.open(group.addresses[0]) as first, await Raw.open(group.addresses[1]) as second:
            assert (await first.connect("twin", properties=LASTING)).reason is ReasonCode.SUCCESS
            assert (await second.connect("twin", clean_start=False)).session_present
            assert (await first.get(Disconnect)).reason is ReasonCode.SESSION_TAKEN_OVER

    run(main)


def test_a_client_of_mqtt_31_moves_too(group: LocalGroup, run: Run) -> None:
    """Its session, its flags and its CONNACK are those of its version at every replica."""

    async def main() -> None:
        for number in (0, 1, 2):
            async with await Raw.open(group.addresses[number], V31) as old, at(group, 3 - number) as new:
                assert await old.connect("old31", clean_start=False) == Connack(False)
                if number == 0:
                    old.send(Subscribe(1, (SubscriptionRequest("secret/31", 1), SubscriptionRequest("open/31", 1))))
                    assert (await old.get(Suback)).reasons == (1, 1)
                await new.publish("open/31", b"%d" % number, qos=1)
                message = await old.get(Publish)
                assert message.payload == b"%d" % number
                old.send(Puback(message.packet_id))
                old.send(Disconnect())
                await old.rest()

    run(main)


def test_a_retained_message_is_at_all_replicas(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        async with at(group, 1) as client:
            await client.publish("open/kept", b"value", qos=1, retain=True)
        for number in (1, 2, 3):
            async with at(group, number, version=V311 if number == 3 else V5) as client:
                await client.subscribe("open/kept")
                message = await client.message()
                assert (message.payload, message.retain) == (b"value", True)

    run(main)


def test_users_and_access_rules_hold_everywhere(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        for number in (1, 2, 3):
            with pytest.raises(RefusedError) as refused:
                await at(group, number, username="ann", password=b"wrong").connect()
            assert refused.value.reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD
            async with at(group, number) as nobody:
                with pytest.raises(RefusedError, match="not authorized"):
                    await nobody.publish("secret/a", b"", qos=1)
                with pytest.raises(RefusedError, match="not authorized"):
                    await nobody.subscribe("secret/#")
        ann: dict[str, Any] = {"username": "ann", "password": b"pw"}
        async with at(group, 1, **ann) as one, at(group, 2, **ann) as other:
            await one.subscribe("secret/#", qos=1)
            await other.publish("secret/a", b"for ann", qos=1)
            assert (await one.message()).payload == b"for ann"

    run(main)


def test_an_administrator_kicks_a_client_of_another_replica(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        async with await Raw.open(group.addresses[2]) as client:
            await client.connect("kicked")
            socket = admin_socket_path(config_of(group.spec, 1))
            await asyncio.to_thread(ask, socket, "/kick", {"client": "kicked"}, "POST")
            assert (await client.get(Disconnect)).reason is ReasonCode.ADMINISTRATIVE_ACTION

    run(main)


def test_the_port_of_administrators_takes_no_clients(group: LocalGroup, run: Run) -> None:
    address = group.spec.replica(1).client
    assert address is not None

    async def main() -> None:
        with pytest.raises(Exception, match="only administrators"):
            await dial([address], timeout_s=5)

    run(main)


def test_the_clients_of_this_library(group: LocalGroup, run: Run) -> None:
    with SyncGroupClient(group.addresses) as client:
        assert client.subscribe("open/sync/+", qos=2)
        client.publish("open/sync/a", b"1", qos=2)
        assert client.message(PATIENCE_S).payload == b"1"
        client.unsubscribe("open/sync/+")
        with pytest.raises(RefusedError, match="not authorized"):
            client.publish("secret/a", b"")

    async def main() -> None:
        async with GroupClient(group.addresses) as one, one.subscription("open/it/#") as messages:
            await one.publish("open/it/b", b"2")
            async for message in messages:
                assert message.payload == b"2"
                break

    run(main)


def test_the_wills_of_a_killed_replicas_clients_are_sent(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        async with at(group, 1) as watcher, await Raw.open(group.addresses[1]) as doomed:
            await watcher.subscribe("open/wills", qos=1)
            await doomed.connect("doomed", will=Will("open/wills", b"gone", 1))
            group.kill(2)
            message = await asyncio.wait_for(watcher.message(), PATIENCE_S)
            assert (message.topic, message.payload) == ("open/wills", b"gone")
        group.start(2)
        await asyncio.to_thread(group.wait_ready)

    run(main)


def test_a_replica_that_is_stopped_sends_its_clients_to_the_others(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        others = {group.addresses[0], group.addresses[1]}
        async with await Raw.open(group.addresses[2]) as new, await Raw.open(group.addresses[2], V311) as old:
            assert (await new.connect("new", properties=LASTING)).reason is ReasonCode.SUCCESS
            assert (await old.connect("old", clean_start=False)).reason is ReasonCode.SUCCESS
            group.processes[3].send_signal(signal.SIGTERM)
            goodbye = await new.get(Disconnect)
            assert goodbye.reason is ReasonCode.USE_ANOTHER_SERVER
            reference = goodbye.properties.server_reference
            assert reference is not None
            assert set(reference.split()) == others
            assert not await old.rest()
        assert await asyncio.to_thread(group.processes[3].wait, 20) == 0
        for name, version in (("new", V5), ("old", V311)):
            async with at(group, 1, name, version=version, clean_start=False, properties=LASTING) as again:
                assert again.connack.session_present
        group.start(3)
        await asyncio.to_thread(group.wait_ready)

    run(main)


def test_every_replica_logs_the_same_events(group: LocalGroup, run: Run) -> None:
    async def main() -> None:
        async with at(group, 1) as one, at(group, 2) as other:
            await one.subscribe("open/log", qos=1)
            for n in range(20):
                await other.publish("open/log", b"%d" % n, qos=1)
                await one.message()
        until = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            logs = [_events(group.path.parent / "events" / str(number)) for number in group.numbers]
            if len(logs[0]) == 40 and logs[0] == logs[1] == logs[2]:
                break
            assert asyncio.get_running_loop().time() < until, logs
            await asyncio.sleep(0.1)

    run(main)


def test_the_log_of_a_replica_names_its_group(group: LocalGroup) -> None:
    for number in group.numbers:
        first = read_from(group.path.parent / "events" / str(number), 0, limit=1)[0]
        told = {name: first.get(name) for name in ("type", "broker", "group", "replica", "replicas")}
        name = group.spec.name
        assert told == {
            "type": "started",
            "broker": f"{name}-{number}",
            "group": name,
            "replica": number,
            "replicas": 3,
        }


def _events(folder: Path) -> list[tuple[str, Any]]:
    """What was published to a topic, and delivered."""
    found: list[tuple[str, Any]] = []
    offset = 0
    while records := read_from(folder, offset):
        offset = records[-1]["offset"] + 1
        mine = [one for one in records if one.get("topic") == "open/log" and one["type"] in ("published", "delivered")]
        found += [(one["type"], one["message"]) for one in mine]
    return sorted(found)
