"""Files with payloads, sessions or secrets are for their owner only, whatever the umask."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.event_log import EventLog
from surecast.broker.group_admin import ask_backup
from surecast.broker.private import make_private, open_file, write_private
from surecast.broker.store import open_store
from surecast.client import Client
from surecast.client.group_client import split_address
from surecast.errors import FileError
from surecast.protocol.mqtt import Properties


@pytest.fixture(params=[0o022, 0o000], ids=["umask 022", "umask 000"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def readable(folder: Path) -> list[str]:
    """Returns what others could read, write or enter in a folder and below it."""
    found = [folder, *folder.rglob("*")]
    assert len(found) > 2, "nothing was written"
    return [f"{path}: {path.lstat().st_mode & 0o777:o}" for path in found if path.lstat().st_mode & 0o077]


async def use(address: str) -> None:
    host, port = split_address(address)
    async with Client(host, port, client_id="reader", properties=Properties(session_expiry_s=600)) as client:
        await client.subscribe("secret/#")
    async with Client(host, port) as client:
        await client.publish("secret/1", b"payload", 1, retain=True)


def test_the_state_of_a_broker_is_for_its_owner_only(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "place" / "broker"
    options = ["--port", "0", "--folder", str(folder / "state"), "--event-log", str(folder / "events")]
    with subprocess.Popen(
        [sys.executable, "-m", "surecast", "broker", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as broker:
        assert broker.stdout is not None
        line = next(line for line in broker.stdout if b"started" in line).decode()
        address = next(part for part in line.split() if "127.0.0.1:" in part).rpartition("=")[2]
        asyncio.run(use(address))
        assert (folder / "state" / "mark").exists()
        assert list((folder / "events").glob("events-*"))
        assert readable(tmp_path / "place") == []
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=PATIENCE_S)
    assert readable(tmp_path / "place") == []


def test_the_state_of_a_group_is_for_its_owner_only(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "group"
    path = write_group(folder, 3, options={"sync": "none", "event_log": {"folder": "events"}})
    with LocalGroup(path) as group:
        group.start()
        group.wait_ready(PATIENCE_S)
        asyncio.run(use(group.addresses[0]))
        asyncio.run(ask_backup(group.spec, folder / "backup"))
        until = time.monotonic() + PATIENCE_S
        while not list(folder.rglob("events-*")) and time.monotonic() < until:
            time.sleep(0.1)
        assert readable(folder) == []
    assert readable(folder) == []


def test_what_others_could_read_is_closed_to_them_or_named(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "state", "os")):
        pass
    with EventLog(tmp_path / "events") as log:
        del log
    for path in (tmp_path / "state", tmp_path / "events", *(tmp_path / "state").iterdir()):
        path.chmod(0o755)
    (tmp_path / "events" / "events-00000000000000000000.jsonl").touch(0o644)
    with closing(open_store(tmp_path / "state", "os")) as store:
        assert store.warnings == ()
    with EventLog(tmp_path / "events") as log:
        assert log.warning == ""
    assert readable(tmp_path / "state") == []
    assert not (tmp_path / "events").stat().st_mode & 0o077
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    (shared / "of somebody else").touch()
    with closing(open_store(shared, "os")) as store:
        assert store.warnings == (f"{shared}: other users can look into this folder; run: chmod 700 {shared}",)
        store.commit([(b"a", b"1")])
    assert shared.stat().st_mode & 0o777 == 0o755  # it is not the broker's to change
    assert not any(path.stat().st_mode & 0o077 for path in shared.iterdir() if path.name != "of somebody else")


def test_files_are_private_from_the_beginning(tmp_path: Path, umask: int) -> None:
    assert make_private(tmp_path / "a" / "b") == ""
    write_private(tmp_path / "a" / "file", "text")
    with open_file(tmp_path / "a" / "log", "ab") as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
    (tmp_path / "a" / "log").chmod(0o644)
    open_file(tmp_path / "a" / "log", "ab").close()
    assert readable(tmp_path / "a") == []
    with pytest.raises(FileError, match="cannot be written"):
        write_private(tmp_path / "none" / "file", "text")
    with pytest.raises(NotADirectoryError):
        make_private(tmp_path / "a" / "file")
