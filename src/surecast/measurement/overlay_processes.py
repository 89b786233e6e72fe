"""The brokers of an overlay as processes of a run: killed or frozen, and links cut by their gates.

A broker that is killed forgets its counts, so they are read just before. What happened on links while a broker was
frozen stays in it, and is read at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from surecast.broker.admin_client import AdminError
from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.errors import OverloadError
from surecast.measurement.measurement_plan import RunPlan
from surecast.measurement.processes import POLL_S, READY_S, STOP_S, Processes

__all__ = ["BrokerCounts", "DemandSums", "LinkChange", "OverlayProcesses", "differing_links"]

_LINK_CHANGE: Final = re.compile(r"link to (?P<neighbour>.+?) is (?P<state>up|down)[,:]")

DemandSums: TypeAlias = dict[tuple[str, str, int], tuple[str, str | None]]
"""By broker, neighbour and tree: the sums over what it holds of the neighbour, and over what it has announced to it."""


def differing_links(sums: DemandSums) -> list[str]:
    """Returns the links over which one end holds something else than the other has announced.

    >>> differing_links({("a", "b", 0): ("0", "7"), ("b", "a", 0): ("7", "0")})
    []
    >>> differing_links({("a", "b", 0): ("0", "7"), ("b", "a", 0): ("5", "0")})
    ['a to b on tree 0']
    """
    return [
        f"{broker} to {neighbour} on tree {tree}"
        for (broker, neighbour, tree), (_, announced) in sums.items()
        if announced is not None and sums[neighbour, broker, tree][0] != announced
    ]


@dataclass
class BrokerCounts:
    """The counts of one broker over all its incarnations. `hops` has the fate of events by neighbour and name."""

    published: int = 0
    received: int = 0
    delivered: int = 0
    expired: int = 0
    processor_s: float = 0.0
    table_entries: int | None = None
    hops: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, answer: Mapping[str, Any]) -> None:
        """Adds the accounts of one incarnation."""
        for name in ("published", "received", "delivered", "expired"):
            setattr(self, name, getattr(self, name) + int(answer[name]))
        for hop in answer["hops"]:
            counts = self.hops.setdefault(hop["neighbour"], Counter())
            for name in ("offered", "acknowledged", "lost", "detoured", "on_link"):
                counts[name] += int(hop[name])
            for reason, number in hop["dropped"].items():
                counts[f"dropped: {reason}"] += int(number)
            counts["notification"] += int(hop["sent"].get("events", 0))
            counts["control"] += int(hop["sent"].get("demand-updates", 0))


class LinkChange(NamedTuple):
    """A broker has found its link to a neighbour up or down, in real time."""

    broker: str
    neighbour: str
    time_s: float
    is_up: bool


def _read_changes(broker: str, log: Path) -> Iterator[LinkChange]:
    """Yields the changes of links in the log of a broker; its last line may be cut by a kill."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, KeyError, TypeError):
            record = json.loads(line)
            words = _LINK_CHANGE.match(record["text"])
            if words is not None:
                moment = datetime.fromisoformat(record["time"]).timestamp()
                yield LinkChange(broker, words["neighbour"], moment, words["state"] == "up")


class OverlayProcesses(Processes):
    """One process for each broker of an overlay, numbered in the order of the scenario."""

    def __init__(self, plan: RunPlan, folder: Path):
        super().__init__(len(plan.system.overlay.brokers))
        self.names = [broker.name for broker in plan.system.overlay.brokers]
        path = folder / "overlay.yaml"
        assert plan.overlay is not None
        write_overlay(path, plan.system.name, plan.overlay, options=plan.overlay_options())
        self._overlay = LocalOverlay(path)
        self.addresses = [self._overlay.file.mqtt_address(name) for name in self.names]
        self.logs = folder / "events"
        self.log_folders = [self.logs / name for name in self.names]
        self._states = [self._overlay.file.folder(name) for name in self.names]
        self.suspect_s = self._overlay.file.suspect
        self.counts = {name: BrokerCounts() for name in self.names}
        self._cut: dict[tuple[str, str], None] = {}
        self.gate_changes: list[tuple[tuple[str, str], float, bool]] = []
        """When a link was cut (True) or opened again, by its ends and in real time."""
        self._frozen: dict[int, None] = {}

    def addresses_for(self, home: int, rotate: int = 0) -> list[str]:
        """Returns where the clients of a home broker connect."""
        return [self.addresses[home]]

    def begin(self, number: int) -> None:
        """Starts a broker."""
        self._overlay.start(self.names[number - 1])

    def kill(self, number: int) -> float:
        """Kills a broker; what it has counted is read before."""
        name = self.names[number - 1]
        runs = name in self._overlay.processes and self._overlay.processes[name].poll() is None
        if runs:
            self._count(name)
        now = time.time()
        if runs:
            self._overlay.kill(name)
        return now

    def freeze(self, number: int) -> None:
        """Stops a broker without ending it: it says and hears nothing, and still seems to take connections."""
        self._overlay.processes[self.names[number - 1]].send_signal(signal.SIGSTOP)
        self._frozen[number] = None

    def thaw(self, number: int) -> None:
        """Lets a broker that was frozen go on."""
        self._overlay.processes[self.names[number - 1]].send_signal(signal.SIGCONT)
        self._frozen.pop(number, None)

    def died(self, number: int) -> str | None:
        """Returns the last output of a broker that has ended."""
        name = self.names[number - 1]
        return self._overlay.last_words(name) if name in self._overlay.ended() else None

    async def leader(self) -> int:
        """Returns 0: no broker of an overlay leads."""
        return 0

    async def is_whole(self) -> bool:
        """Returns whether all links are up."""
        answers = await asyncio.to_thread(self._overlay.ask_all, "/links")
        return all(link["is_up"] for answer in answers.values() for link in answer.get("links", [{"is_up": False}]))

    async def wait_ready(self, number: int, timeout_s: float = READY_S) -> float:
        """Waits until a broker takes clients; the links that are cut are cut at its end, too."""
        took_s = await super().wait_ready(number, timeout_s)
        name = self.names[number - 1]
        for link in [link for link in self._cut if name in link]:
            await asyncio.to_thread(self._gate, name, link, True)
        return took_s

    async def wait_for_demand(self) -> None:
        """Waits until what subscribers want has come to all brokers: over each link, what one end has announced is what
        the other end holds, twice in a row.

        SUBACK says that a subscription holds at its own broker. What is published before brokers further away have
        heard of it is not for that subscriber, and would look lost. Brokers are asked one after the other; as nobody
        subscribes meanwhile, sums that are the same twice were so at one moment between.
        """
        begun = time.monotonic()
        before: DemandSums | None = None
        while True:
            sums = await asyncio.to_thread(self.demand_sums)
            differing = differing_links(sums)
            if not differing and sums == before:
                return
            before = sums
            if time.monotonic() - begun > READY_S:
                what = f"differ over {differing[0]}" if differing else "went on changing"
                raise OverloadError(f"subscriptions did not reach all brokers within {READY_S:g} s: tables {what}")
            await asyncio.sleep(POLL_S)

    def demand_sums(self) -> DemandSums:
        """Returns the sums of hashes over what each broker holds of, and has announced to, each neighbour."""
        return {
            (name, route["neighbour"], int(route["tree"])): (route["held_sum"], route["announced_sum"])
            for name in self.names
            for route in self._overlay.ask(name, "/routes")["routes"]
        }

    def set_cut(self, a: str, b: str, cut: bool) -> None:
        """Cuts a link, or opens it again, at both ends that answer; the others follow when they are up."""
        link = (a, b)
        self.gate_changes.append((link, time.time(), cut))
        if cut:
            self._cut[link] = None
        else:
            self._cut.pop(link, None)
        for name in link:
            if self.names.index(name) + 1 not in self._frozen:
                self._gate(name, link, cut)

    def link_changes(self) -> list[LinkChange]:
        """Returns when links came up and went down, as the logs of the brokers at their ends have it, in order."""
        changes = [change for name in self.names for change in _read_changes(name, self._overlay.log_file(name))]
        return sorted(changes, key=lambda change: change.time_s)

    def heal(self) -> None:
        """Ends all faults but processes that have ended: the run is over."""
        for number in list(self._frozen):
            self.thaw(number)
        self._cut.clear()
        for link in self._overlay.file.plan.links:
            for name in link:
                self._gate(name, link, False)

    def in_transit(self) -> int:
        """Returns the number of events that are on links or on disk for a neighbour."""
        answers = self._overlay.ask_all("/accounts").values()
        hops = [hop for answer in answers for hop in answer.get("hops", [])]
        return sum(int(hop["on_link"]) + int(hop["in_custody"]) for hop in hops)

    def table_entries(self) -> dict[str, int]:
        """Returns how many filters of its neighbours each broker that answers holds."""
        answers = self._overlay.ask_all("/routes")
        return {
            name: sum(int(route["count"]) for route in answer["routes"])
            for name, answer in answers.items()
            if "routes" in answer
        }

    def messages(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Returns how many events and changes of demand each broker that runs has sent to each neighbour since it was
        started: the messages of the *capacity* paper."""
        counts = {name: BrokerCounts() for name in self.names}
        for name, own in counts.items():
            own.add(self._overlay.ask(name, "/accounts"))
        return {
            (name, neighbour): (hop["notification"], hop["control"])
            for name, own in counts.items()
            for neighbour, hop in own.hops.items()
        }

    def finish_counts(self) -> None:
        """Reads what all brokers have counted, at the end of the run."""
        entries = self.table_entries()
        for name in self.names:
            self._count(name)
            self.counts[name].table_entries = entries.get(name)

    def close(self) -> None:
        """Stops all brokers."""
        for number in list(self._frozen):
            self.thaw(number)
        self._overlay.close(STOP_S)

    def _gate(self, name: str, link: tuple[str, str], cut: bool) -> None:
        neighbour = link[1] if link[0] == name else link[0]
        with suppress(AdminError):  # it does not run
            self._overlay.ask(name, "/gate", {"neighbour": neighbour, "cut": str(cut).lower()}, "POST")

    def _count(self, name: str) -> None:
        counts = self.counts[name]
        with suppress(AdminError):
            counts.add(self._overlay.ask(name, "/accounts"))
        counts.processor_s += _processor_s(self._overlay.processes[name].pid)


def _processor_s(process: int) -> float:
    """Returns the processor time of a process; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
