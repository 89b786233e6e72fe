"""Says which tests cost most: processor time of the test and of the processes that it starts, and time that it waits.

Processor time hardly depends on what else the machine does, so it is what to compare before and after a change. Tests
run one after the other in this process; arguments are those of pytest. All measurements are kept, so that the suite
can be measured in parts, on different days; a test that is measured again replaces its measurement.

    python tools/test_times.py tests/tour tests/broker     measures these, and shows the most expensive
    python tools/test_times.py                             shows what has been measured so far, with the schedule
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "out" / "test-times.json"
SHOWN = 30
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

Cost = tuple[float, float, float]
"""Processor time of this process, processor time of started processes, and duration, all in seconds."""


def main() -> None:
    """Measures the named tests, if there are any; then shows everything that has been measured."""
    costs: dict[str, Cost] = {}
    with suppress(FileNotFoundError):
        costs = {name: tuple(cost) for name, cost in json.loads(KEPT.read_text()).items()}
    code = 0
    if sys.argv[1:]:
        plugin = Costs()
        code = pytest.main(["-q", *sys.argv[1:]], plugins=[plugin])
        costs |= plugin.costs
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(costs, indent=0))
    show(costs)
    sys.exit(code)


class Costs:
    """What each test cost with its fixtures: those of a file are counted with the first test that needs them."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measures set-up, call and tear-down of a test."""
        before = now()
        result = yield
        after = now()
        own_s, started_s, duration_s = (max(0.0, b - a) for a, b in zip(before, after, strict=True))
        self.costs[item.nodeid] = (own_s, started_s, duration_s)
        return result


def now() -> Cost:
    """Returns the processor time of this process, that of the processes it started, and the time."""
    times = os.times()
    alive_s = sum(processor_time(child) for child in children(os.getpid()))
    return times.user + times.system, times.children_user + times.children_system + alive_s, time.monotonic()


def children(process: int) -> list[int]:
    """Returns the processes that a process started and that run; none where the system does not say."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def processor_time(process: int) -> float:
    """Returns the processor time of a process with all that it started, in seconds."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    own_s = sum(map(int, fields[11:15])) * TICK_S
    return own_s + sum(processor_time(child) for child in children(process))


def show(costs: dict[str, Cost]) -> None:
    """Prints the sums, the most expensive tests, those that wait longest, and the schedule of the workers."""
    own_s, started_s, duration_s = (sum(cost[i] for cost in costs.values()) for i in range(3))
    print(f"\n{len(costs)} tests: {own_s + started_s:.0f} s of processor time, {started_s:.0f} s of it in started")
    print(f"processes; {duration_s:.0f} s one after the other")
    print(f"\n{'processor':>9} {'started':>8} {'duration':>8}  most expensive")
    for name, cost in sorted(costs.items(), key=lambda entry: -entry[1][0] - entry[1][1])[:SHOWN]:
        print(f"{cost[0] + cost[1]:8.1f}s {cost[1]:7.1f}s {cost[2]:7.1f}s  {name}")
    print(f"\n{'waiting':>9} {'duration':>8}  wait longest")
    for name, cost in sorted(costs.items(), key=lambda entry: sum(entry[1][:2]) - entry[1][2])[:SHOWN]:
        print(f"{cost[2] - cost[0] - cost[1]:8.1f}s {cost[2]:7.1f}s  {name}")
    folders: dict[str, list[Cost]] = defaultdict(list)
    for name, cost in costs.items():
        folders[folder_of(name)].append(cost)
    print(f"\n{'tests':>6} {'processor':>9} {'started':>8} {'duration':>8}  folder")
    for folder, parts in sorted(folders.items(), key=lambda entry: -sum(sum(part[:2]) for part in entry[1])):
        sums = [sum(part[i] for part in parts) for i in range(3)]
        print(f"{len(parts):6} {sums[0] + sums[1]:8.1f}s {sums[1]:7.1f}s {sums[2]:7.1f}s  {folder}")


def folder_of(test: str) -> str:
    """Returns the folder of a test below `tests`, or what stands for the tests and examples that have none."""
    parts = test.partition("::")[0].split("/")
    if parts[0] == "src":
        return "examples in src"
    return "/".join(parts[:2]) if len(parts) > 2 else "tests/test_*.py"


if __name__ == "__main__":
    main()
