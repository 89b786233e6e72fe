"""A group of replicas as real processes, for tools and tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surecast.broker.free_ports import free_ports
from surecast.broker.replica import load_group
from surecast.broker.replica.administer import ask_status
from surecast.broker.replica.founding import found_replica, new_founding

STORE = "surecast.protocol.paxos:ExampleStore"


class Group:
    """Replicas 1 to `founders`, and further ones that may join. Nothing runs until it is started."""

    def __init__(
        self,
        folder: Path,
        founders: int = 3,
        joiners: int = 0,
        sync: str = "majority",
        paxos: dict[str, Any] | None = None,
        handler: str = STORE,
    ):
        self.folder = folder
        self.handler = handler
        self.numbers = list(range(1, founders + joiners + 1))
        ports = free_ports(2 * len(self.numbers))
        replicas = [
            {
                "id": number,
                "peer": f"127.0.0.1:{ports[2 * number - 2]}",
                "client": f"127.0.0.1:{ports[2 * number - 1]}",
                "joins": number > founders,
            }
            for number in self.numbers
        ]
        self.path = folder / "group.yaml"
        content = {"name": "test", "founding": new_founding(), "secret": "a secret for tests only", "sync": sync}
        self.path.write_text(json.dumps({**content, "replicas": replicas, "paxos": paxos or {}}))
        self.spec = load_group(self.path)
        self.founders = self.numbers[:founders]
        for number in self.founders:
            found_replica(self.spec, number)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def addresses(self) -> list[str]:
        """Returns the addresses at which clients ask the founders."""
        return [one.client for one in self.spec.replicas if one.client is not None and not one.joins]

    def start(self, numbers: Sequence[int]) -> None:
        """Starts replicas; their log goes to a file each."""
        for number in numbers:
            options = ["--group", str(self.path), "--id", str(number), "--handler", self.handler]
            command = [sys.executable, "-m", "surecast.broker.replica", *options]
            with (self.folder / f"{number}.log").open("ab") as log:
                self.processes[number] = subprocess.Popen(command, stderr=log)

    def signal(self, number: int, which: signal.Signals) -> None:
        """Sends a signal to a replica; SIGKILL and SIGTERM are waited for."""
        process = self.processes[number]
        process.send_signal(which)
        if which in (signal.SIGKILL, signal.SIGTERM):
            process.wait(timeout=60)
            del self.processes[number]

    def end(self) -> None:
        """Kills whatever runs."""
        for number in list(self.processes):
            self.signal(number, signal.SIGKILL)

    def log(self) -> str:
        """All that the replicas logged."""
        return "".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))

    def cpu_s(self) -> float:
        """Processor time that the running replicas have taken."""
        total = 0
        for process in self.processes.values():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / 100

    def memory_bytes(self, number: int) -> int:
        """Memory that a running replica has taken at most."""
        text = Path(f"/proc/{self.processes[number].pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) * 1024

    async def status(self, state: bool = False) -> dict[int, dict[str, Any]]:
        """The status of every replica that answers, with a digest of its state where wanted."""
        with contextlib.suppress(OSError):
            return {one["replica"]: one for one in await ask_status(self.spec, state) if "error" not in one}
        return {}

    async def wait_leader(self, timeout_s: float = 60.0) -> int:
        """Waits until one of the replicas leads; which."""
        ends = time.monotonic() + timeout_s
        while time.monotonic() < ends:
            leading = [number for number, one in (await self.status()).items() if one["leads"]]
            if len(leading) == 1:
                return leading[0]
            await asyncio.sleep(0.05)
        raise AssertionError(f"nobody leads after {timeout_s:g} s\n{self.log()}")

    async def wait_equal(self, numbers: Sequence[int], timeout_s: float = 60.0) -> dict[int, dict[str, Any]]:
        """Waits until replicas have applied the same; fails where they applied equally much, but not the same."""
        ends = time.monotonic() + timeout_s
        while time.monotonic() < ends:
            found = await self.status(state=True)
            states = {(one["applied"], one["hash"], one["state"]) for number, one in found.items() if number in numbers}
            assert len({applied for applied, _, _ in states}) == len(states), f"different: {states}"
            if set(numbers) <= found.keys() and len(states) == 1 and all(found[one]["voting"] for one in numbers):
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"not equal after {timeout_s:g} s: {found}\n{self.log()}")
