"""Run: a replicated broker of three real processes, a leader killed with SIGKILL, and what its clients saw."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from surecast.broker.cluster import LocalGroup, write_group
from surecast.studio.chart import Area, Axis, Chart, Layer, Line, Points, RuleLine, Span
from surecast.studio.page import Cell, Table
from surecast.tour.live_clients import GROUP, TABLET, Live, LiveSettings, drive
from surecast.tour.stage_content import (
    Block,
    CheckedClaim,
    CheckedClaims,
    Key,
    Picture,
    SavedTable,
    StageOutcome,
    Tile,
    TourContext,
    picture,
)
from surecast.zap import Viewers, parse_lines, viewers_topic
from surecast.zap.events import BadLine, Event

__all__ = ["gap_of", "group_options", "live_stage", "lost_of", "verdicts_of"]

_BIN_S: Final = 0.1
_VIEWERS: Final = "zap/viewers/"
_EVENTS: Final = "zap/events/"
_SHOWN: Final = 5
_SINCE: Final = "time since the first event (s)"
_START_S: Final = 90.0
_REST_S: Final = 20.0
_POLL_S: Final = 0.2


def group_options(settings: LiveSettings) -> dict[str, Any]:
    """Returns the options of the tour's group beside its replicas."""
    return {
        "name": GROUP,
        "zap": {"every": "500ms", "top": 10},
        "event_log": {"folder": "events", "alive_interval": "1s"},
        "log": {"level": "warning"},
        "system_interval": "0s",
        "drain": "500ms",
        "clients": [{"client": TABLET, "limits": {"join_probability": settings.join_probability}}],
    }


def live_stage(context: TourContext) -> StageOutcome:
    """Starts the group, lets it be used, kills its leader, and checks what arrived."""
    settings = LiveSettings(duration_s=8.0 if context.quick else 30.0, seed=context.seed)
    folder = context.work / "group"
    context.show("starting three replicas", 0, 0)
    group = LocalGroup(write_group(folder, 3, options=group_options(settings)))
    try:
        with group:
            group.start()
            group.wait_ready(_START_S)
            live = asyncio.run(
                drive(group, settings, lambda done, total: context.show("publishing and listening", done, total))
            )
            context.show("comparing the replicas", 0, 0)
            status = _status_at_rest(group)
    finally:
        group.close()  # once more, if a signal came while it was being closed; no second one is heard
    zap = context.work / "logs" / "zap"
    _keep_logs(folder / "events", zap, live)
    context.live, context.logs = live, zap.parent
    return _outcome(live, status, settings)


def _status_at_rest(group: LocalGroup) -> list[dict[str, Any]]:
    """Returns the status of the replicas once all have applied equally much, or too long has passed."""
    until = time.monotonic() + _REST_S
    while True:
        status = group.status()
        executed = {replica.get("applied") for replica in status}
        if (None not in executed and len(executed) == 1) or time.monotonic() > until:
            return status
        time.sleep(_POLL_S)


def _keep_logs(events: Path, zap: Path, live: Live) -> None:
    """Puts the logs in one place for the pipeline: those of each replica, and of the set-top boxes of each region."""
    zap.mkdir(parents=True)
    events.rename(zap.parent / "replicas")
    for publisher in sorted({message.publisher for message in live.sent}):
        lines = b"\n".join(message.payload for message in live.sent if message.publisher == publisher)
        (zap / f"region-{publisher}.zap").write_bytes(lines + b"\n")


def gap_of(live: Live) -> float:
    """Returns the time from the death of the leader to the first acknowledgement of a message that was sent after it.

    >>> from surecast.tour.live_clients import SentMessage
    >>> sent = [SentMessage(1, 1, b"a", 9.9, 9.9, 10.1), SentMessage(1, 1, b"b", 10.2, 10.2, 10.5)]
    >>> gap_of(Live(began=0.0, killed_at=10.0, sent=sent))
    0.5
    """
    later = [
        message.acknowledged_at
        for message in live.sent
        if message.sent_at > live.killed_at and message.acknowledged_at is not None
    ]
    return round(min(later) - live.killed_at, 6) if later else float("nan")


def verdicts_of(live: Live, status: Sequence[dict[str, Any]]) -> tuple[CheckedClaim, ...]:
    """Returns the verdicts on the run, checked on what the clients received and on the status of the replicas."""
    names = [name for name in live.arrived if name != TABLET]
    acknowledged = [item.payload for item in live.sent if item.acknowledged_at is not None]
    events = {name: _events(live, name) for name in names}
    lost = lost_of(live)
    orders = {tuple(dict.fromkeys(events[name])) for name in names}
    whole = {tuple(_deduplicated(live, name)) for name in names}
    twice = sum(len(events[name]) - len(set(events[name])) for name in names)
    answered = [item for item in status if "hash" in item]
    states = {(item["applied"], item["hash"]) for item in answered}
    positions = {position for position, _ in states}
    wrong, channels = _wrong_counts(live, names)
    return (
        CheckedClaim(
            not any(lost.values()),
            "Nothing that was acknowledged is lost.",
            f"{len(acknowledged):,} of {len(live.sent):,} messages were acknowledged; missing at the subscribers: "
            f"{', '.join(map(str, lost.values()))}.",
        ),
        CheckedClaim(
            len(orders) == 1,
            "All subscribers got the events of all publishers in the same order.",
            f"{len(names)} subscribers, {len(next(iter(orders))):,} messages each, in "
            f"{'one order' if len(orders) == 1 else f'{len(orders)} different orders'}.",
        ),
        CheckedClaim(
            len(whole) == 1,
            "Events and statistics together have one order, too.",
            f"{len(next(iter(whole))):,} messages in each sequence; {twice} event messages came twice.",
        ),
        CheckedClaim(
            not wrong,
            "The statistics are right.",
            f"The viewers of {channels} channels were counted again from the events; {wrong} differ from what the "
            "broker published last.",
        ),
        CheckedClaim(
            # Replicas that are not equally far cannot be compared; equally far and different is an error.
            None if len(states) == len(positions) > 1 or len(answered) < len(status) else len(states) == 1,
            "All replicas executed the same log, the one that was killed among them.",
            f"{len(answered)} replicas answered, with "
            f"{'one position' if len(positions) == 1 else f'{len(positions)} positions'} in the log and "
            f"{'one running hash' if len(states) == 1 else f'{len(states)} running hashes'} of it.",
        ),
    )


def lost_of(live: Live) -> dict[str, int]:
    """Returns, for each subscriber, the number of acknowledged messages that it did not get."""
    acknowledged = [message.payload for message in live.sent if message.acknowledged_at is not None]
    missing = {}
    for name in live.arrived:
        if name != TABLET:
            received = set(_events(live, name))
            missing[name] = sum(payload not in received for payload in acknowledged)
    return missing


def _events(live: Live, name: str) -> list[bytes]:
    return [message.payload for message in live.arrived[name] if message.topic.startswith(_EVENTS)]


def _deduplicated(live: Live, name: str) -> list[tuple[str, bytes]]:
    """Returns the sequence without messages that were delivered again after a reconnection.

    At QoS 1 the last messages of one connection may be delivered again at the beginning of the next.
    """
    sequence: list[tuple[str, bytes]] = []
    arrived = live.arrived[name]
    position = 0
    while position < len(arrived):
        end = position
        while end < len(arrived) and arrived[end].again:
            end += 1
        again = [(message.topic, message.payload) for message in arrived[position:end]]
        repeated = next((n for n in range(len(again), 0, -1) if sequence[-n:] == again[:n]), 0)
        sequence += again[repeated:]
        if end < len(arrived):
            sequence.append((arrived[end].topic, arrived[end].payload))
        position = end + 1
    return sequence


def _wrong_counts(live: Live, names: Sequence[str]) -> tuple[int, int]:
    """Returns the number of channels whose last published figure differs from a plain count of all events; and of all
    channels."""
    viewers = Viewers()
    for payload in dict.fromkeys(_events(live, names[0])):
        parsed = parse_lines(payload.split(b"\n"), "events")
        good: list[Event] = [event for event in parsed if not isinstance(event, BadLine)]
        viewers.execute(good)
    wrong = 0
    for name in names:
        last = {
            message.topic: int(message.payload) for message in live.arrived[name] if message.topic.startswith(_VIEWERS)
        }
        for channel in viewers.channels:
            wrong += last.get(viewers_topic(channel), 0) != viewers.num_viewers(channel)
    return wrong, len(viewers.channels)


def _outcome(live: Live, status: Sequence[dict[str, Any]], settings: LiveSettings) -> StageOutcome:
    verdicts = verdicts_of(live, status)
    gap_s = gap_of(live)
    acknowledged = [item for item in live.sent if item.acknowledged_at is not None]
    waits_s = np.array([(item.acknowledged_at or 0.0) - item.sent_at for item in acknowledged])
    deliveries = sum(len(item) for item in live.arrived.values())
    events = sum(item.events for item in live.sent)
    held = "all checks hold" if all(item.holds for item in verdicts) else "a check does not hold: see below"
    lead = (
        f"Three broker processes took {events:,} set-top-box events in {len(live.sent):,} messages from "
        f"{settings.publishers} publishers. {settings.kill_after * settings.duration_s:.0f} s into it the leader, "
        f"replica {live.killed}, was killed with SIGKILL. After {gap_s:.2f} s the others, led by replica "
        f"{live.leader_after}, went on; {held}."
    )
    tiles = (
        Tile("without an answer", f"{1000 * gap_s:.0f} ms", "from the leader's death to the next acknowledgement"),
        Tile("acknowledged and lost", f"{max(lost_of(live).values())}", f"of {len(acknowledged):,} messages"),
        Tile("messages delivered", f"{deliveries:,}", f"to {len(live.arrived)} subscribers"),
        Tile("acknowledged after", f"{1000 * float(np.median(waits_s)):.1f} ms", "median, this machine as it is now"),
    )
    blocks: tuple[Block, ...] = (
        _gap_picture(live, gap_s),
        CheckedClaims("Checked on what arrived", verdicts),
        _wait_picture(live),
        _viewers_picture(live),
        _top_table(live),
    )
    key: Key = {
        "messages": len(live.sent),
        "events": events,
        "acknowledged": len(acknowledged),
        "gap_s": gap_s,
        "killed_replica": live.killed,
        "nothing_acknowledged_lost": verdicts[0].holds,
        "same_order": verdicts[1].holds,
        "statistics_right": verdicts[3].holds,
        "replicas_equal": verdicts[4].holds,
        "acknowledged_median_s": float(np.median(waits_s)),
    }
    return StageOutcome(lead, tiles, blocks, key)


def _counts(times: Sequence[float], began: float, edges: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Any:
    counts, _ = np.histogram(np.array(times) - began, edges)
    return counts / _BIN_S


def _gap_picture(live: Live, gap_s: float) -> Picture:
    """Returns the picture of deliveries and acknowledgements over time, around the death of the leader."""
    kill = live.killed_at - live.began
    edges = np.arange(max(0.0, kill - 3.0), min(kill + 5.0, live.ended - live.began) + _BIN_S, _BIN_S)
    middle = (edges[:-1] + edges[1:]) / 2.0
    series = {
        name: _counts([message.at for message in arrived if message.topic.startswith(_EVENTS)], live.began, edges)
        for name, arrived in live.arrived.items()
        if name != TABLET
    }
    acknowledged = _counts(
        [message.acknowledged_at for message in live.sent if message.acknowledged_at is not None], live.began, edges
    )
    zero = np.zeros(len(middle))
    layers: list[Layer] = [
        Area("acknowledged to publishers", middle, zero, acknowledged),
        *(Line(name, middle, values, width_px=1.8) for name, values in series.items()),
    ]
    rules = [RuleLine(f"replica {live.killed}, the leader, is killed", kill, colour="accent")]
    if live.back_at is not None and live.back_at - live.began < edges[-1]:
        rules.append(RuleLine("it is back", live.back_at - live.began, colour=2))
    chart = Chart(
        layers,
        title="The death of a leader, seen by its clients",
        x=Axis(_SINCE),
        y=Axis("messages (1/s)", from_zero=True),
        rules=rules,
        spans=[Span(kill, kill + (gap_s if np.isfinite(gap_s) else 0.0))],
        about=f"messages per second around the death of the leader; a gap of {gap_s:.2f} s.",
        caption=(
            f"Each line is a subscriber. The shaded {1000 * gap_s:.0f} ms are the time in which nobody got an answer: "
            "the others notice that the leader is silent, elect a new one, and clients of the dead process connect "
            "elsewhere. The peak after it is what had waited."
        ),
        ratio=0.0,
        height_px_min=440,
    )
    header = ("seconds", *series, "acknowledged")
    rows = [
        [float(second), *(float(v[i]) for v in series.values()), float(acknowledged[i])]
        for i, second in enumerate(middle)
    ]
    return picture(chart, header, rows, "gap")


def _wait_picture(live: Live) -> Picture:
    """Returns the picture of the time that each message waited for its acknowledgement."""
    acknowledged = sorted(
        (message for message in live.sent if message.acknowledged_at is not None), key=lambda message: message.sent_at
    )
    x = [message.sent_at - live.began for message in acknowledged]
    y = [1000.0 * ((message.acknowledged_at or 0.0) - message.sent_at) for message in acknowledged]
    layers: list[Layer] = []
    for publisher in sorted({message.publisher for message in acknowledged}):
        chosen = [i for i, message in enumerate(acknowledged) if message.publisher == publisher]
        label = f"region {publisher}"
        layers.append(Points(label, [x[i] for i in chosen], [y[i] for i in chosen], size_px=5.0, edge_px=0.5))
    chart = Chart(
        layers,
        title="Every acknowledgement",
        x=Axis(_SINCE),
        y=Axis("wait for the acknowledgement (ms)", log=True),
        rules=[RuleLine("leader killed", live.killed_at - live.began, colour="accent")],
        about=f"scatter plot of the acknowledgement times of {len(acknowledged)} messages over time.",
        caption=(
            "Each dot is a message. Its acknowledgement means that a majority of the replicas has it on disk. "
            "Messages that were under way when the leader died were sent again, and counted once."
        ),
        ratio=0.0,
        height_px_min=400,
    )
    rows = [[message.publisher, a, b, message.events] for message, a, b in zip(acknowledged, x, y, strict=True)]
    return picture(chart, ("region", "sent at s", "wait in ms", "events"), rows, "waits")


def _viewers_picture(live: Live) -> Picture:
    """Returns the picture of the most viewed channels as a subscriber received them."""
    name = next(iter(live.arrived))
    arrived = [message for message in live.arrived[name] if message.topic.startswith(_VIEWERS)]
    last = {message.topic: int(message.payload) for message in arrived}
    top = [topic for topic, _ in Counter(last).most_common(_SHOWN)]
    layers: list[Layer] = []
    rows: list[list[Cell]] = []
    for topic in top:
        channel = topic.removeprefix(_VIEWERS)
        counts = [(message.at - live.began, int(message.payload)) for message in arrived if message.topic == topic]
        counts.append((live.ended - live.began, counts[-1][1]))
        layers.append(Line(channel, [second for second, _ in counts], [count for _, count in counts], stepped=True))
        rows += [[channel, second, count] for second, count in counts]
    chart = Chart(
        layers,
        title="The most viewed channels, live",
        x=Axis(_SINCE),
        y=Axis("viewers (boxes)", from_zero=True, whole=True),
        rules=[RuleLine("leader killed", live.killed_at - live.began, colour="accent")],
        caption=(
            f"What {name} was told on zap/viewers/#: the broker counts the viewers of each channel inside its "
            "replicated state, so the count goes on where it was when the leader dies. The evening runs 200 times as "
            "fast as the clock."
        ),
        ratio=0.0,
    )
    return picture(chart, ("channel", "seconds", "viewers"), rows, "viewers")


def _top_table(live: Live) -> SavedTable:
    """Returns the table of the last top list that arrived."""
    import json

    name = next(iter(live.arrived))
    lists = [entry.payload for entry in live.arrived[name] if entry.topic.startswith("zap/top/")]
    listed = json.loads(lists[-1]) if lists else []
    rows: list[list[Cell]] = [[rank, entry["channel"], entry["viewers"]] for rank, entry in enumerate(listed, start=1)]
    return SavedTable(Table(("rank", "channel", "viewers"), rows, "The last message on zap/top/10"), "top", folded=True)
