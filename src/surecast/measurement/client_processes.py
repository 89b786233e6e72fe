"""Clients of a run in processes of their own: started, told what to do, and asked what they have seen.

Requests and answers are frames on the pipes of a process: a length, and a pickle. Both ends are the same program of
the same user.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import struct
import sys
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any, Final, Protocol, cast

import uvloop

from surecast.errors import OverloadError, SurecastError
from surecast.measurement.client_share import ClientShare, Share, ShareResult

__all__ = ["ClientProcess", "Clients", "main", "open_clients"]

_LENGTH: Final = struct.Struct(">I")
_CLOSE_S: Final = 5.0
_WORDS_MAX: Final = 2_000


class Clients(Protocol):
    """The clients of a share, in this process or another one."""

    share: Share

    async def failed(self) -> None:
        """Waits until something fails that should not, and raises it."""

    async def subscribe(self) -> None:
        """Opens the sessions of all subscribers."""

    async def connect(self) -> None:
        """Connects all publishers."""

    async def begin(self, began: float) -> None:
        """Starts to publish."""

    async def move(self, home: int, address: str) -> None:
        """Sends the publishers of a home broker to another of its replicas."""

    async def settle(self) -> None:
        """Publishes no more, and waits for what is underway."""

    async def hurry(self) -> None:
        """Lets all subscribers take what waits for them."""

    async def last_at(self) -> float:
        """Returns when the last message has come."""

    async def result(self) -> ShareResult:
        """Returns what has been seen until now."""

    async def close(self) -> None:
        """Ends all clients."""


async def open_clients(shares: list[Share]) -> list[Clients]:
    """Returns the clients of all shares: of a single one in this process, else each in a process of its own."""
    if len(shares) == 1:
        return [ClientShare(shares[0])]
    processes = [ClientProcess(share) for share in shares]
    try:
        await asyncio.gather(*(process.start() for process in processes))
    except BaseException:
        await asyncio.gather(*(process.close() for process in processes))
        raise
    return cast(list[Clients], processes)


class ClientProcess:
    """A process with the clients of a share. Its methods are those of the share, and end with its process: then all
    that wait for it get an error that names it."""

    def __init__(self, share: Share):
        self.share = share
        self._process: asyncio.subprocess.Process | None = None
        self._words = TemporaryFile()  # noqa: SIM115 - closed with the process
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._failure: asyncio.Future[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def process_id(self) -> int:
        """The system's number of the process; 0 before it is started."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Starts the process, and waits until it has its share."""
        self._failure = asyncio.get_running_loop().create_future()
        self._failure.add_done_callback(lambda failure: failure.cancelled() or failure.exception())
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", "from surecast.measurement.client_processes import main; main()"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,  # a Ctrl-C at the terminal is for the run, which then stops it
        )
        self._reading = asyncio.create_task(self._read())
        await self._ask("open", self.share)

    async def _ask(self, name: str, *arguments: Any) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._failure is not None
        if self._failure.done():
            self._failure.result()
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        data = pickle.dumps((number, name, arguments))
        with suppress(ConnectionError):  # it has ended, and the answer says so
            self._process.stdin.write(_LENGTH.pack(len(data)) + data)
            await self._process.stdin.drain()
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def _read(self) -> None:
        """Takes the answers until the process ends; from then on everything fails."""
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._failure is not None
        stream = self._process.stdout
        with suppress(asyncio.IncompleteReadError):
            while True:
                (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
                number, value, error = pickle.loads(await stream.readexactly(length))
                if number is None:
                    self._fail(error)
                    continue
                answer = self._waiting.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(value) if error is None else answer.set_exception(error)
        code = await self._process.wait()
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - _WORDS_MAX))
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        who = f"client process {self.share.number + 1} of {self.share.count} (process {self.process_id})"
        self._fail(OverloadError(f"{who} {how}" + (f": {lines[-1]}" if lines else "") + "; the run has failed"))

    def _fail(self, error: BaseException) -> None:
        assert self._failure is not None
        if not self._failure.done():
            self._failure.set_exception(error)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)

    async def failed(self) -> None:
        """Waits until something fails that should not, and raises it."""
        assert self._failure is not None
        await asyncio.shield(self._failure)

    async def subscribe(self) -> None:
        """Opens the sessions of all subscribers."""
        await self._ask("subscribe")

    async def connect(self) -> None:
        """Connects all publishers."""
        await self._ask("connect")

    async def begin(self, began: float) -> None:
        """Starts to publish, and lets subscribers come and go."""
        await self._ask("begin", began)

    async def move(self, home: int, address: str) -> None:
        """Sends the publishers of a home broker to another of its replicas."""
        await self._ask("move", home, address)

    async def settle(self) -> None:
        """Publishes no more, and waits for what is underway."""
        await self._ask("settle")

    async def hurry(self) -> None:
        """Lets all subscribers stay connected and take what waits for them."""
        await self._ask("hurry")

    async def last_at(self) -> float:
        """Returns when the last message has come."""
        return float(await self._ask("last_at"))

    async def result(self) -> ShareResult:
        """Returns what has been seen until now."""
        return cast(ShareResult, await self._ask("result"))

    async def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None and process.stdin is not None:
            process.stdin.close()  # which ends its clients
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._words.close()


def main() -> None:
    """Runs the clients of a share, in a process that was started for it."""
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())


async def _serve() -> None:
    """Does what the process that has started this one asks for, until it ends or closes the pipe."""
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=1 << 30)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin.buffer)
    answers = sys.stdout.buffer
    clients: ClientShare | None = None
    tasks: set[asyncio.Task[None]] = set()

    def answer(number: int | None, value: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, (SurecastError, TimeoutError)):
            error = OverloadError(f"{type(error).__name__}: {error}")
        data = pickle.dumps((number, value, error))
        answers.write(_LENGTH.pack(len(data)) + data)
        answers.flush()

    async def do(number: int | None, work: Any) -> None:
        try:
            value = await work
        except Exception as error:
            answer(number, None, error)
        else:
            answer(number, value, None)

    try:
        with suppress(asyncio.IncompleteReadError):
            while True:
                (length,) = _LENGTH.unpack(await requests.readexactly(_LENGTH.size))
                number, name, arguments = pickle.loads(await requests.readexactly(length))
                if name == "open":
                    clients = ClientShare(*arguments)
                    tasks.add(asyncio.create_task(do(None, clients.failed())))
                    answer(number, None, None)
                    continue
                tasks.add(task := asyncio.create_task(do(number, getattr(clients, name)(*arguments))))
                task.add_done_callback(tasks.discard)
    finally:
        for task in tasks:
            task.cancel()
        if clients is not None:
            await clients.close()
