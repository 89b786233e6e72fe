"""The processes of a broker on this machine: which ones listen at a port, and whether one thread does the work."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from surecast.errors import ConfigurationError
from surecast.load import BrokerAccess

__all__ = ["busiest_thread_share", "find_processes", "machine"]

_LISTENS: Final = "0A"


def find_processes(access: BrokerAccess) -> list[int]:
    """Returns the processes that listen at the broker's address; ConfigurationError says why none is known."""
    if not _is_local(access):
        raise ConfigurationError(
            f"{access}: this address is not of this machine, and the processor time of a broker is known only on its "
            "own; run calibrate there"
        )
    sockets = _listening(access.port)
    pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit() and _has(folder, sockets)]
    if not pids:
        raise ConfigurationError(
            f"{access}: no process of this user listens at port {access.port}; name the broker's with --pid"
        )
    return sorted(pids)


def _is_local(access: BrokerAccess) -> bool:
    try:
        with socket.create_connection((access.host, access.port), timeout=access.timeout_s) as client:
            return bool(client.getsockname()[0] == client.getpeername()[0])
    except OSError:
        return True  # whoever connects next says what is wrong


def _listening(port: int) -> set[str]:
    """Returns the sockets that listen at a port, as /proc names them."""
    sockets = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    return sockets


def _has(folder: Path, sockets: set[str]) -> bool:
    try:
        return any(str(each.readlink()) in sockets for each in (folder / "fd").iterdir())
    except OSError:
        return False


def busiest_thread_share(pids: list[int]) -> float:
    """Returns the share of all processor time so far that the busiest thread of a broker has used."""
    times = [0]
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                times.append(int(thread.read_text(encoding="ascii").split()[0]))
            except OSError:
                continue  # the thread has ended
    return max(times) / max(1, sum(times))


def machine() -> dict[str, object]:
    """Returns the machine that this runs on: processor, cores, memory and system."""
    import os
    import platform

    processor, memory = platform.machine(), 0.0
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            memory = float(line.split()[1]) * 1024.0
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{memory / 1e9:.3g}GB",
        "system": f"{platform.system()} {platform.release()}",
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
