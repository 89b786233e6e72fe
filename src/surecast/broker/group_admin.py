"""The administration of a replicated broker beyond its replicas: who may ask, and backups of its state.

admin     B              asks for a backup;  replica  B  JSON: error, or bytes, and then parts of it, each behind D
admin     I  JSON: bytes and then parts of a backup, each behind D;  replica  I  JSON: error, or nothing
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from surecast import __version__
from surecast.broker.group_server import GroupServer
from surecast.broker.private import write_private
from surecast.broker.replica import ClientPort, GroupSpec
from surecast.broker.replica.accepted_connection import AcceptedConnection
from surecast.broker.replica.addresses import Address
from surecast.broker.replica.administer import ask_status
from surecast.broker.replica.client_link import ReplicaLink
from surecast.broker.replica.frames import frame
from surecast.broker.replica.handshake import Hello
from surecast.broker.replica.snapshot_files import SnapshotFile, SnapshotFiles
from surecast.errors import ConfigurationError, OverloadError, PeerError, SurecastError
from surecast.protocol.group import GroupMachine, Item
from surecast.protocol.group.backup import Backup, pack_backup, parts_of, read_backup
from surecast.protocol.group.commands import pack
from surecast.protocol.paxos import Answer

__all__ = ["AdminPort", "ask_backup", "ask_restore"]

_BACKUP: Final = b"B"
_RESTORE: Final = b"I"
_DATA: Final = b"D"
_PART_BYTES: Final = 1 << 20
_UNSENT_BYTES: Final = 8 << 20
_BACKUP_BYTES_MAX: Final = 4 << 30
_LOG_S: Final = 10.0
_RESTORE_S: Final = 120.0
_POLL_S: Final = 0.02


class AdminPort(ClientPort):
    """The port of a replica for administrators. What clients want they ask by MQTT."""

    def __init__(self, server: GroupServer):
        super().__init__(server.node)
        self._broker = server
        self._arriving: dict[AcceptedConnection, tuple[int, bytearray]] = {}

    def refusal_reason(self, hello: Hello) -> str | None:
        """Only those who have the group's secret may come here: a command of theirs could be anything."""
        if hello.role != "admin":
            return "this group is a broker: it takes its clients by MQTT, and only administrators here"
        return super().refusal_reason(hello)

    def left(self, connection: AcceptedConnection) -> None:
        """An administrator is gone, and with it what it had not sent to the end."""
        self._arriving.pop(connection, None)
        super().left(connection)

    def received(self, connection: AcceptedConnection, frames: list[bytes]) -> None:
        """An administrator asks."""
        for content in frames:
            kind = content[:1]
            if kind == _BACKUP:
                self._begin(connection, _BACKUP, lambda: self._back_up(connection))
            elif kind == _RESTORE:
                self._arriving[connection] = (_size(content), bytearray())
            elif kind == _DATA and connection in self._arriving:
                self._take_part(connection, content)
            elif kind == b"Q":
                raise PeerError("administrator: a broker takes no requests here")
            else:
                super().received(connection, [content])

    def _take_part(self, connection: AcceptedConnection, content: bytes) -> None:
        size, arrived = self._arriving[connection]
        arrived += memoryview(content)[1:]
        if len(arrived) >= size:
            del self._arriving[connection]
            self._begin(connection, _RESTORE, lambda: self._restore(connection, bytes(arrived)))

    def _begin(self, connection: AcceptedConnection, kind: bytes, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            try:
                await work()
            except SurecastError as error:
                self._answer(connection, kind, {"error": str(error)})

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _back_up(self, connection: AcceptedConnection) -> None:
        await self._be_up_to_date()
        node, machine = self.node, self._broker.machine
        about = Backup(
            node.group,
            node.id,
            node.replica.applied,
            node.replica.hash.hex(),
            machine.time_us,
            f"surecast {__version__}",
        )
        data = await asyncio.to_thread(pack_backup, about, await _copied(machine))
        self._answer(connection, _BACKUP, {"bytes": len(data)})
        for at in range(0, len(data), _PART_BYTES):
            connection.write(frame(_DATA + data[at : at + _PART_BYTES]))
            while connection.unsent_bytes > _UNSENT_BYTES:
                await asyncio.sleep(_POLL_S)

    async def _be_up_to_date(self) -> None:
        """Waits until all that was acknowledged before now is applied here, by a command that does nothing."""
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        nothing, _ = pack(self.node.id, 0, 0, [])  # of an incarnation that is over

        def answered(_: list[Answer]) -> None:
            if not done.done():
                done.set_result(None)

        self.node.submit([(secrets.randbits(63) | 1, 1, nothing)], answered)
        try:
            async with asyncio.timeout(_LOG_S):
                await done
        except TimeoutError:
            raise OverloadError(f"replica {self.node.id}: no majority answered within {_LOG_S:g} s") from None

    async def _restore(self, connection: AcceptedConnection, data: bytes) -> None:
        _, state = read_backup(data)
        digest = hashlib.sha256(state).digest()
        server = self._broker
        for part in parts_of(state):
            server.front_end.control(Item.RESTORE, 0, part)
        server.turn()
        try:
            async with asyncio.timeout(_RESTORE_S):
                while server.machine.backup.digest != digest or not server.machine.backup.outcome:
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise OverloadError(
                f"replica {self.node.id}: the backup was not taken within {_RESTORE_S:g} s; is there a majority?"
            ) from None
        outcome, detail = server.machine.backup.outcome, server.machine.backup.detail
        if outcome[:1] != b"+":
            raise ConfigurationError(outcome[1:].decode() + (f": {detail}" if detail else ""))
        self._answer(connection, _RESTORE, {})


def _size(content: bytes) -> int:
    try:
        size = int(json.loads(content[1:])["bytes"])
    except (ValueError, KeyError, TypeError) as error:
        raise PeerError(f"administrator: a backup is announced with its size: {error!r}") from None
    if not 0 < size <= _BACKUP_BYTES_MAX:
        raise PeerError(f"administrator: a backup of {size} bytes; it may have 1 to {_BACKUP_BYTES_MAX}")
    return size


async def _copied(machine: GroupMachine) -> bytes:
    """Returns the state as it is now, written by a process of its own: it may take long, and this replica goes on."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[SnapshotFile | str] = loop.create_future()
    files = SnapshotFiles(None, syncs=False)
    try:
        files.begin(loop, 0, machine.snapshot_pieces(), ended.set_result)
        kept = await ended
    except OSError as error:
        raise OverloadError(f"backup: no other process can be started to write it: {error.strerror}") from error
    finally:
        files.stop()
    if isinstance(kept, str):
        raise OverloadError(f"backup: it could not be written: {kept}")
    return await asyncio.to_thread(kept.read, 0, kept.reference.size)


async def ask_backup(group: GroupSpec, file: Path) -> Backup:
    """Writes the state of a running group to a new file; what the backup says of itself.

    All that was acknowledged before is in it. ConfigurationError says why there is none.
    """
    if file.exists():
        raise ConfigurationError(f"{file}: there is a file already; name another one")

    async def talk(link: ReplicaLink) -> bytes:
        link.write(frame(_BACKUP))
        size, parts = int(_fields(await link.receive())["bytes"]), bytearray()
        while len(parts) < size:
            parts += memoryview(await link.receive())[1:]
        return bytes(parts)

    data = await _ask_one(group, talk, _LOG_S + 60.0)
    about, _ = read_backup(data, "the replica's answer")
    write_private(file, data)
    return about


async def ask_restore(group: GroupSpec, file: Path) -> Backup:
    """Has a new group, which runs and has had no clients, begin with a backup; what the backup says of itself."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from None
    about, _ = read_backup(data, str(file))

    async def talk(link: ReplicaLink) -> bytes:
        link.write(frame(_RESTORE + json.dumps({"bytes": len(data)}).encode()))
        for at in range(0, len(data), _PART_BYTES):
            link.write(frame(_DATA + data[at : at + _PART_BYTES]))
        _fields(await link.receive())
        return b""

    await _ask_one(group, talk, _RESTORE_S + 10.0)
    return about


async def _ask_one(group: GroupSpec, talk: Callable[[ReplicaLink], Awaitable[bytes]], timeout_s: float) -> bytes:
    """Talks to the leader, or to another replica that knows one."""
    found = [one for one in await ask_status(group) if one.get("leader")]
    if not found:
        raise ConfigurationError(f"the group {group.name} has no leader; see surecast cluster status")
    number = min(found, key=lambda one: not one["leads"])["replica"]
    address: Address | None = group.client_address(group.replica(number))
    assert address is not None, "it answered there"
    try:
        hello = Hello("admin", group.name, 1, 0, secrets.token_hex(16))
        link, _ = await ReplicaLink.open(address, hello, group.read_secret())
        try:
            async with asyncio.timeout(timeout_s):
                return await talk(link)
        finally:
            link.close()
    except (OSError, PeerError) as error:
        raise ConfigurationError(f"replica {number}: {error or 'no answer'}") from None


def _fields(content: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(content[1:])
    if "error" in fields:
        raise ConfigurationError(str(fields["error"]))
    return fields
