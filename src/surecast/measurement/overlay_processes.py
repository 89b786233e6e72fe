"""The brokers of an overlay as processes of a run: killed or frozen, and links cut by their gates.

A broker that is killed forgets its counts, so they are read just before. What happened on links while a broker was
frozen stays in it, and is read at the end. The counts of a group are part of its state: they outlive all its replicas,
and are read at the end too.
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
    """The processes of the brokers of an overlay, in the order of the scenario: one each, or one for each replica."""

    def __init__(self, plan: RunPlan, folder: Path):
        super().__init__(plan)
        self.names = [broker.name for broker in plan.system.overlay.brokers]
        path = folder / "overlay.yaml"
        assert plan.overlay is not None
        groups = dict.fromkeys(self.names, plan.group.replicas) if plan.group.replicas > 1 else {}
        told = plan.group.file_fields if groups else {}
        write_overlay(path, plan.system.name, plan.overlay, options=plan.overlay_options(), groups=groups, told=told)
        self._overlay = overlay = LocalOverlay(path)
        self._are_groups = bool(groups)
        self._processes = overlay.names
        self.addresses = [address for name in self.names for address in overlay.file.mqtt_addresses(name)]
        self.logs = folder / "events"
        replicas = [str(number) for number in range(1, plan.group.replicas + 1)] if groups else [""]
        self.log_folders = [self.logs / name / replica for name in self.names for replica in replicas]
        self._states = [overlay.state_folder(process) for process in self._processes]
        self.suspect_s = self._overlay.file.suspect
        self.counts = {name: BrokerCounts() for name in self.names}
        self._cut: dict[tuple[str, str], None] = {}
        self.gate_changes: list[tuple[tuple[str, str], float, bool]] = []
        """When a link was cut (True) or opened again, by its ends and in real time."""
        self._frozen: dict[int, None] = {}

    def begin(self, number: int) -> None:
        """Starts a process."""
        self._overlay.start(self._processes[number - 1])

    def kill(self, number: int) -> float:
        """Kills a process; what a broker alone has counted is read before."""
        process = self._processes[number - 1]
        runs = self._runs(number)
        if runs:
            self._count(number)
        now = time.time()
        if runs:
            self._overlay.kill(process)
        return now

    def freeze(self, number: int) -> None:
        """Stops a process without ending it: it says and hears nothing, and still seems to take connections."""
        self._overlay.processes[self._processes[number - 1]].send_signal(signal.SIGSTOP)
        self._frozen[number] = None

    def thaw(self, number: int) -> None:
        """Lets a process that was frozen go on."""
        self._overlay.processes[self._processes[number - 1]].send_signal(signal.SIGCONT)
        self._frozen.pop(number, None)

    def died(self, number: int) -> str | None:
        """Returns the last output of a process that has ended."""
        process = self._processes[number - 1]
        return self._overlay.last_words(process) if process in self._overlay.ended() else None

    def _runs(self, number: int) -> bool:
        process = self._overlay.processes.get(self._processes[number - 1])
        return process is not None and process.poll() is None

    async def leader(self, home: int) -> int:
        """Returns the replica that leads a group; 0 if none does that runs."""
        return await asyncio.to_thread(self._leader, home)

    def _leader(self, home: int) -> int:
        for number in self.processes_of[home]:
            if number not in self._frozen and self._runs(number):
                with suppress(AdminError):
                    if self._ask(number, "/links").get("leads", True):
                        return number
        return 0

    def _ask(self, number: int, view: str, query: dict[str, Any] | None = None, method: str = "GET") -> dict[str, Any]:
        """Returns the answer of one process."""
        return self._overlay.ask(self._processes[number - 1], view, query, method)

    async def missing(self) -> str:
        """Returns a broker that does not answer, or a link that is down; empty where there is none."""
        for name, answer in (await asyncio.to_thread(self._overlay.ask_all, "/links")).items():
            if "error" in answer:
                return f"broker {name}: {answer['error']}"
            for link in answer["links"]:
                if not link["is_up"]:
                    return f"the link from {name} to {link['neighbour']} is down: {link['reason']}"
        return ""

    async def wait_ready(self, number: int, timeout_s: float = READY_S) -> float:
        """Waits until a process takes clients; the links that are cut are cut at its end, too."""
        took_s = await super().wait_ready(number, timeout_s)
        name = self.names[self.home_of(number)]
        for link in [link for link in self._cut if name in link]:
            await asyncio.to_thread(self._gate, number, link, True)
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
            try:
                sums = await asyncio.to_thread(self.demand_sums)
            except AdminError:
                sums = {}  # a group has no leader for a moment
            differing = differing_links(sums)
            if sums and not differing and sums == before:
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
        for number in self._ends_of(link):
            if number not in self._frozen:
                self._gate(number, link, cut)

    def _ends_of(self, link: tuple[str, str]) -> list[int]:
        """Returns the processes at both ends of a link: a replica has its end once it leads."""
        return [number for name in link for number in self.processes_of[self.names.index(name)]]

    def link_changes(self) -> list[LinkChange]:
        """Returns when links came up and went down, as the logs of the brokers at their ends have it, in order."""
        changes = [
            change
            for number, process in zip(self.numbers, self._processes, strict=True)
            for change in _read_changes(self.names[self.home_of(number)], self._overlay.log_file(process))
        ]
        return sorted(changes, key=lambda change: change.time_s)

    def heal(self) -> None:
        """Ends all faults but processes that have ended: the run is over."""
        for number in list(self._frozen):
            self.thaw(number)
        self._cut.clear()
        for link in self._overlay.file.plan.links:
            for number in self._ends_of(link):
                self._gate(number, link, False)

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
        for number in self.numbers:
            self._count(number)
        for name in self.names:
            self.counts[name].table_entries = entries.get(name)
            if self._are_groups:
                with suppress(AdminError):
                    self.counts[name].add(self._overlay.ask(name, "/accounts"))

    def close(self) -> None:
        """Stops all brokers."""
        for number in list(self._frozen):
            self.thaw(number)
        self._overlay.close(STOP_S)

    def _gate(self, number: int, link: tuple[str, str], cut: bool) -> None:
        neighbour = link[1] if link[0] == self.names[self.home_of(number)] else link[0]
        with suppress(AdminError):  # it does not run
            self._ask(number, "/gate", {"neighbour": neighbour, "cut": str(cut).lower()}, "POST")

    def _count(self, number: int) -> None:
        counts = self.counts[self.names[self.home_of(number)]]
        if not self._are_groups:
            with suppress(AdminError):
                counts.add(self._ask(number, "/accounts"))
        counts.processor_s += _processor_s(self._overlay.processes[self._processes[number - 1]].pid)


def _processor_s(process: int) -> float:
    """Returns the processor time of a process; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
