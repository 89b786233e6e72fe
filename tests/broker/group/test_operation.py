"""A group from the command line: up, status, backup, down, and a new one that begins with the backup."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.cluster import LocalGroup, stop_replicas, write_group
from surecast.broker.config import load_config
from surecast.broker.security import set_password
from surecast.cli import main
from surecast.client import Client, RefusedError, tls_context
from surecast.client.group_client import GroupClient, split_address
from surecast.errors import ConfigurationError
from surecast.protocol.mqtt import Properties, Will

Run = Callable[..., Any]
SURECAST = str(Path(sys.executable).parent / "surecast")
LASTING = Properties(session_expiry_s=3600)


def surecast(*arguments: str | Path, code: int = 0) -> str:
    """Runs a command in this process; what it said."""
    said = io.StringIO()
    argv, sys.argv = sys.argv, ["surecast", *map(str, arguments)]
    ended: int | str | None = 0
    try:
        with redirect_stdout(said), redirect_stderr(said):
            main()
    except SystemExit as stop:
        ended = stop.code
        if isinstance(ended, str):  # as Python ends with a message
            said.write(ended)
            ended = 1
    finally:
        sys.argv = argv
    assert int(ended or 0) == code, said.getvalue()
    return " ".join(said.getvalue().split())


@contextmanager
def up(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A group that `surecast cluster up` runs, once it takes clients; the command must end well."""
    command = [SURECAST, "cluster", "up", "--port", "0", "--sync", "none", "--folder", str(folder), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        try:
            assert process.poll() is None, said
            yield process
            assert process.wait(PATIENCE_S) == 0
        finally:
            if process.poll() is None:
                process.terminate()


def wait_down(folder: Path, number: int, before: int) -> None:
    """Waits until another process runs a replica."""
    until = time.monotonic() + PATIENCE_S
    file = folder / "data" / str(number) / "broker.pid"
    while not file.exists() or int(file.read_text() or before) == before:
        assert time.monotonic() < until, f"replica {number} was not started again"
        time.sleep(0.05)


def test_a_new_group_begins_with_the_backup_of_one_that_is_gone(tmp_path: Path, run: Run) -> None:
    folder, file = tmp_path / "group", tmp_path / "group.bak"

    async def fill(addresses: list[str]) -> None:
        host, port = split_address(addresses[0])
        async with Client(host, port, client_id="away", clean_start=False, properties=LASTING) as client:
            await client.subscribe("queue/#", qos=2)
        async with GroupClient(addresses, client_id="there", will=Will("wills", b"there is gone", 1)) as client:
            await client.subscribe("wills", "zap/#", qos=1)
            await client.publish("kept", b"retained", qos=1, retain=True)
            for n in range(3):
                await client.publish("queue/a", b"%d" % n, qos=2)
            await client.publish("zap/events/east", b"2024-01-01,20:00:00,10.0.0.1,B,A", qos=1)
            while (await client.message()).topic != "zap/viewers/B":
                pass
            said = await asyncio.to_thread(surecast, "cluster", "backup", folder, file)
            assert "the group local at instance" in said
            await client.publish("queue/a", b"after the backup", qos=2)

    async def look(addresses: list[str]) -> None:
        host, port = split_address(addresses[1])
        async with Client(host, port, client_id="away", clean_start=False, properties=LASTING) as client:
            assert client.connack.session_present
            assert [(await client.message()).payload for _ in range(3)] == [b"0", b"1", b"2"]
            await client.subscribe("kept", "zap/viewers/+")
            kept = {(await client.message()).payload for _ in range(2)}
            assert kept == {b"retained", b"1"}
        async with GroupClient(addresses, client_id="there") as client:
            # It was connected when the backup was made, and its connection ended with the group.
            while (message := await client.message()).topic != "wills":
                pass
            assert message.payload == b"there is gone"
            await client.publish("zap/events/east", b"2024-01-01,20:00:01,10.0.0.2,B,A", qos=1)
            while (message := await client.message()).payload != b"2":
                pass
            assert message.topic == "zap/viewers/B"

    with up(folder, "--zap") as process:
        spec = LocalGroup(folder / "group.yaml").spec
        found = json.loads(surecast("cluster", "status", folder, "--json"))["replicas"]
        assert len({one["leader"] for one in found}) == 1
        run(lambda: fill(spec.mqtt_addresses()))
        assert "equal: replicas 1, 2, 3 have the same state" in surecast("cluster", "verify", folder)
        compared = json.loads(surecast("cluster", "verify", folder, "--json"))
        assert compared["is_equal"]
        assert sorted(compared["hashes"]) == ["1", "2", "3"]
        assert "there is a file already" in surecast("cluster", "backup", folder, file, code=1)
        assert "has had clients already" in surecast("cluster", "restore", folder, file, code=1)
        killed = int((folder / "data" / "2" / "broker.pid").read_text())
        os.kill(killed, signal.SIGKILL)  # it is started again
        wait_down(folder, 2, killed)
        surecast("cluster", "down", folder)
        assert process.wait(PATIENCE_S) == 0
    assert "none was running" in surecast("cluster", "down", folder)
    assert file.stat().st_mode & 0o077 == 0
    shutil.rmtree(folder)
    with up(folder, "--zap") as process:
        assert "restored from" in surecast("cluster", "restore", folder, file)
        run(lambda: look(LocalGroup(folder / "group.yaml").spec.mqtt_addresses()))
        process.send_signal(signal.SIGINT)


def test_wrong_questions_are_answered_clearly(tmp_path: Path) -> None:
    assert "write an odd number; 1 tolerate as many failures" in surecast(
        "cluster", "up", "--replicas", "2", "--folder", tmp_path / "two", code=1
    )
    group = write_group(tmp_path / "one", 1)
    said = surecast("cluster", "up", "-n", "3", "--folder", tmp_path / "one", code=1)
    assert "--replicas 3: this group has 1" in said
    assert "none.yaml" in surecast("cluster", "status", tmp_path / "none.yaml", code=1)
    shown = surecast("cluster", "status", group, code=1)
    assert shown.startswith("The group does NOT work: no replica leads, and 0 of 1 replicas vote; 1 are needed.")
    assert "down:" in shown
    assert "replica 1" in surecast("cluster", "verify", group, code=1)
    assert "has no leader" in surecast("cluster", "backup", group, tmp_path / "b", code=1)
    (tmp_path / "garbage").write_bytes(b"surecast group backup 2\n{}\n")
    assert "cannot be read" in surecast("cluster", "restore", group, tmp_path / "garbage", code=1)
    (tmp_path / "older").write_bytes(b"surecast group backup 1\n{}\n")
    assert "restore it with that one" in surecast("cluster", "restore", group, tmp_path / "older", code=1)
    assert "no backup of a group" in surecast("cluster", "restore", group, group, code=1)
    assert "replica" in surecast("cluster", "replace", "1", "2", group, code=1)
    assert "--group and --id go together" in surecast("broker", "--group", group, code=1)
    assert "has only 1" in surecast("broker", "--group", group, "--id", "7", code=1)


def test_what_an_existing_group_has_otherwise_is_named(tmp_path: Path) -> None:
    """Once, `cluster up --port` in a folder with a group went on with the ports of that group without a word."""
    config = tmp_path / "broker.yaml"
    config.write_text("listeners: [{}, {kind: websocket, port: 0}]\nlimits: {queue_messages: 70, queue_size: 1MiB}\n")
    plain, folder = tmp_path / "plain", tmp_path / "group"
    write_group(plain, 3, port=18_000)
    write_group(folder, 3, port=18_000, options={"sync": "none"}, config=load_config(config))
    asked = ("-n", "5", "-p", "1883", "--sync", "majority", "--variant", "fast", "--zap", "--event-log")
    said = surecast("cluster", "up", "--folder", folder, *asked, "--set", "limits.queue_messages=71", code=1)
    for words in (
        "group.yaml: this folder has a group whose file differs from these options: --replicas 5: this group has 3",
        "--port 1883: replica 1 is at port 18000 (replicas[0].mqtt[0].port)",
        "sync majority: in the file it is none",
        "paxos.variant fast: in the file it is multi",
        "zap ZapSpec(every=1.0, top=10): in the file it is not set",
        "limits.queue_messages 71: in the file it is 70",
        "leave these options out to start that group",
    ):
        assert words in said
    assert "event_log.folder" in said
    said = surecast("cluster", "up", "--folder", plain, "--websocket-port", "0", "--http-port", "9", code=1)
    assert "listeners tcp, websocket: replica 1 has tcp (replicas[0].mqtt)" in said
    assert "http.port 9: replicas[0].http.port is not set" in said
    said = surecast("cluster", "up", "--folder", folder, "-c", config, "--set", "listeners[1].path=/other", code=1)
    assert "listeners[1].path /other: replicas[0].mqtt[1].path is /mqtt" in said
    # What says the same, or nothing, goes on with the group.
    same = {"sync": "none", "limits": {"queue_size": "1048576B"}}
    assert write_group(folder, None, port=None, options=same, config=load_config(config)) == folder / "group.yaml"
    assert write_group(folder, 3, port=0) == folder / "group.yaml"


def test_what_only_a_broker_of_its_own_can_have_is_refused(tmp_path: Path) -> None:
    said = surecast("cluster", "up", "--folder", tmp_path / "g", "--set", "state.folder=here", code=1)
    assert "state cannot be set for a group: a group keeps its state in its own folder" in said
    said = surecast("cluster", "up", "--folder", tmp_path / "g", "-p", "65534", code=1)
    assert "port 65534: 3 replicas need ports after it, and 65535 is the highest" in said
    assert "choose one up to 65533" in said
    assert not (tmp_path / "g").exists()


def test_every_replica_has_the_listeners_users_rules_and_limits_that_are_asked_for(
    tmp_path: Path, run: Run, certificates: Any
) -> None:
    set_password(tmp_path / "users", "ann", "secret")
    (tmp_path / "rules").write_text("deny subscribe home/+/secret\nallow all home/%u/#\n")
    for file in certificates.ca.parent.iterdir():
        shutil.copy(file, tmp_path)
    trust = tls_context(certificates.ca, certificates.client, certificates.client_key)
    (tmp_path / "broker.yaml").write_text(
        "listeners:\n"
        "  - {}\n"
        "  - {kind: websocket, port: 0, limits: {packet_size: 5kB}}\n"
        "  - {kind: tls, port: 0, certificate: server.crt, key: server.key, ca: ca.crt, use_certificate_name: true}\n"
        "limits: {unsent_size: 1MiB, publish_rate: 100/s, session_expiry: 1h}\n"
        "security: {users: users, acl: rules, wildcards: filter}\n"
    )
    folder = tmp_path / "group"

    async def look(replicas: list[dict[str, Any]]) -> None:
        for one in replicas:
            plain, web, secure = (split_address(each["address"])[1] for each in one["listeners"])
            async with Client("localhost", secure, tls=trust, client_id="by certificate") as ann:
                await ann.publish("home/ann/x", b"yes", qos=1)
            with pytest.raises(RefusedError):
                await Client(port=plain, username="ann", password=b"wrong").connect()
            name = f"c{one['replica']}"
            ann = Client(port=web, client_id=name, username="ann", password=b"secret", websocket_path="/mqtt")
            async with ann:
                assert ann.connack.properties.maximum_packet_size == 5_000
                assert ann.connack.properties.receive_maximum == 7
                assert await ann.subscribe("home/ann/#", qos=1) == (1,)
                with pytest.raises(RefusedError):
                    await ann.publish("home/bob/x", b"no", qos=1)
                await ann.publish("home/ann/secret", b"not for subscribers", qos=1)
                await ann.publish("home/ann/x", b"yes", qos=1)
                assert (await ann.message()).payload == b"yes"
            health = await asyncio.to_thread(urllib.request.urlopen, f"http://{one['http']}/healthz")
            assert health.status == 200

    options = ("-c", str(tmp_path / "broker.yaml"), "--http-port", "0", "--set", "limits.receive_maximum=7")
    with up(folder, *options) as process:
        found = json.loads(surecast("cluster", "status", folder, "--json"))["replicas"]
        assert sorted(one["role"] for one in found) == ["leads", "votes", "votes"]
        assert [[each["kind"] for each in one["listeners"]] for one in found] == [["tcp", "websocket", "tls"]] * 3
        run(lambda: look(found))
        assert str(found[2]["listeners"][1]["address"]) in (shown := surecast("cluster", "status", folder))
        assert shown.startswith("The group works: replica ")
        process.send_signal(signal.SIGINT)


def test_a_process_that_took_the_number_of_a_dead_replica_is_left_alone(tmp_path: Path) -> None:
    group = write_group(tmp_path, 1)
    folder = tmp_path / "data" / "1"
    with subprocess.Popen(["sleep", "60"]) as other:
        (folder / "broker.pid").write_text(f"{other.pid}\n")
        assert stop_replicas(group) == []
        assert other.poll() is None
        other.kill()


def test_an_even_group_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="odd"):
        write_group(tmp_path, 4)


def test_up_goes_on_without_a_lost_replica_so_that_it_can_be_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "group"
    with up(folder):
        assert "all replicas run already" in surecast("cluster", "up", "--folder", folder, code=1)
        started = time.monotonic()
        said = surecast("cluster", "replace", "3", "4", folder, code=1)
        assert "replica 4 is not in the group's file; add {id: 4, joins: true" in said
        assert "replica 9 is not a member" in surecast("cluster", "replace", "9", "4", folder, code=1)
        assert "replica 2 is a member already" in surecast("cluster", "replace", "3", "2", folder, code=1)
        assert time.monotonic() - started < 110  # it does not wait for what cannot come
        surecast("cluster", "down", folder)
    shutil.rmtree(folder / "data" / "2")
    with up(folder) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "replica 2 ended with code 3; it stays down" in line
        assert f"surecast cluster repair 2 {folder / 'group.yaml'}" in line
        surecast("cluster", "down", folder)
