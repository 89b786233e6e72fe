"""Statistics of viewers computed event by event in plain Python, to hold against those of Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from surecast.zap.event_table import EventTable, join_tables
from surecast.zap.events import ChannelChange, Event
from surecast.zap.generator import Generator
from surecast.zap.traffic import Traffic

START_S = 1_704_135_600  # 2024-01-01 19:00
Change = tuple[int, str, str | None, str | None, int | None]


@dataclass(frozen=True)
class Stop:
    box: str
    channel: str
    start_s: int
    end_s: int
    is_open: bool


def evening(boxes: int = 60, duration_s: int = 3 * 3600, seed: int = 5, start_s: int = START_S) -> EventTable:
    """What some boxes log, without what the table of events leaves out: the same event of a box in one second."""
    traffic = Traffic(boxes=boxes, channels=12, on_mean_s=2400.0, on_per_day=30.0)
    generator = Generator(traffic, start_s, seed=seed, announce=True)
    return join_tables([batch.events for batch in generator.batches(duration_s)])


def changes_of(events: Iterable[Event]) -> list[Change]:
    """Time, box, from, to and since of every change, one event after the other."""
    channel: dict[str, str] = {}
    now: dict[str, str | None] = {}
    since: dict[str, int] = {}
    found: list[Change] = []
    for event in events:
        if isinstance(event, ChannelChange):
            channel[event.box] = event.to_channel
            after: str | None = event.to_channel
        elif event.kind == "power" and event.box in channel:
            after = channel[event.box] if event.value else None
        else:
            continue
        if after != now.get(event.box):
            found.append((event.time_s, event.box, now.get(event.box), after, since.get(event.box)))
            now[event.box], since[event.box] = after, event.time_s
    return found


def stops_of(changes: list[Change]) -> list[Stop]:
    """Every stay of a box on a channel."""
    at: dict[str, tuple[str, int]] = {}
    found = []
    for time_s, box, before, after, _ in changes:
        if before is not None:
            channel, start_s = at.pop(box)
            assert channel == before
            found.append(Stop(box, channel, start_s, time_s, False))
        if after is not None:
            at[box] = after, time_s
    end_s = changes[-1][0]
    return found + [Stop(box, channel, start_s, end_s, True) for box, (channel, start_s) in at.items()]


def reach_of(
    stops: list[Stop], slots: list[tuple[str, int, int]], reach_s: int
) -> dict[tuple[str, int, int], tuple[int, int, int, int]]:
    """For each slot: boxes reached, boxes, seconds viewed, and seconds viewed on all channels meanwhile."""
    answer = {}
    for channel, start_s, end_s in slots:
        seen: Counter[str] = Counter()
        everybody = 0
        for stop in stops:
            met_s = max(0, min(stop.end_s, end_s) - max(stop.start_s, start_s))
            everybody += met_s
            if stop.channel == channel and met_s:
                seen[stop.box] += met_s
        reached = sum(value >= reach_s for value in seen.values())
        answer[channel, start_s, end_s] = reached, len(seen), seen.total(), everybody
    return answer


def viewers_by_second(changes: list[Change], end_s: int) -> dict[int, Counter[str]]:
    """Viewers of every channel after every second, from the first change on."""
    by_second: dict[int, list[Change]] = defaultdict(list)
    for change in changes:
        by_second[change[0]].append(change)
    now: Counter[str] = Counter()
    answer = {}
    for second in range(changes[0][0], end_s):
        for _, _, before, after, _ in by_second.get(second, ()):
            now[before or ""] -= 1
            now[after or ""] += 1
        answer[second] = Counter({name: count for name, count in now.items() if name and count > 0})
    return answer
