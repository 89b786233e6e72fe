"""Small logs with known contents, and what the tables of them must be, computed in plain Python."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from surecast.broker.event_log import (
    Alive,
    Connected,
    Delivered,
    Dropped,
    EventLog,
    Expired,
    Lost,
    Published,
    Record,
    Started,
    Stopped,
    Subscribed,
    Unsubscribed,
)

START_S = 1_700_000_000.0
DEADLINE_S = 0.5


def broker_records(seed: int, messages: int) -> list[Record]:
    """The incarnation of a broker with two publishers and three subscribers; it crashes once, and is stopped once."""
    rng = np.random.default_rng(seed)
    records: list[Record] = [Started(START_S, f"broker-{seed}")]
    for i in range(3):
        records.append(Connected(START_S + 1 + i, f"s{i}", address="127.0.0.1:5"))
        records.append(Subscribed(START_S + 1.5 + i, f"s{i}", "plant/#", 1))
    records.append(Subscribed(START_S + 5, "s0", "plant/#", 0))  # made again: still one
    time_s = START_S + 10
    for number in range(messages):
        time_s += float(rng.exponential(0.7))
        said = None if number % 3 == 0 else round(time_s - 0.05, 6)
        deadline_s = None if number % 5 == 0 else DEADLINE_S
        common: dict[str, Any] = {"publication_time": said, "deadline_s": deadline_s}
        size = 20 + number % 7
        topic = f"plant/{number % 4}"
        records.append(Published(time_s, f"p{number % 2}", topic, number, 1, size, 3, **common))
        for i in range(3):
            at = time_s + float(rng.exponential(0.3))
            what = rng.random()
            if what < 0.8:
                records.append(Delivered(at, f"s{i}", topic, number, 1, size, i, **common))
            elif what < 0.9:
                records.append(Dropped(at, f"s{i}", topic, number, 1, size, i, "queue full", **common))
            elif what < 0.95:
                records.append(Expired(at, f"s{i}", topic, number, 1, size, i, **common))
        if number == messages // 2:
            records += [Alive(time_s + 2, f"broker-{seed}"), Started(time_s + 60, f"broker-{seed}")]
            time_s += 61
    records.append(Unsubscribed(time_s + 5, "s2", "plant/#", "client"))
    if seed == 2:
        records.append(Lost(time_s + 6, 4, "disk full"))
    records.append(Stopped(time_s + 7, f"broker-{seed}"))
    return records


def write_log(folder: Path, records: list[Record]) -> None:
    with EventLog(folder, segment_bytes=20_000) as log:
        for record in records:
            log.append(record)
            log.flush()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The sound records of a log, read without any of our code."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith('{"offset"')]


def subscriber_qos(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Counts and delays of every subscriber, one message after the other."""
    published = {row["message"]: row for row in rows if row["type"] == "published"}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    delays: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["type"] not in ("delivered", "dropped", "expired"):
            continue
        fate = row["type"]
        if fate == "delivered":
            origin = published[row["message"]]
            delay_s = row["time"] - origin.get("publication_time", origin["time"])
            delays[row["client"]].append(delay_s)
            fate = "on_time" if delay_s <= origin.get("deadline_s", math.inf) + 5e-7 else "late"
        counts[row["client"]][fate] += 1
    answer: dict[str, dict[str, float]] = {}
    for client, found in counts.items():
        ordered = sorted(delays[client])
        answer[client] = {
            **{name: found[name] for name in ("on_time", "late", "dropped", "expired")},
            "messages": found.total(),
            "reliability": found["on_time"] / found.total(),
            "delay_mean_s": sum(ordered) / len(ordered),
            "delay_max_s": ordered[-1],
            # the smallest value that at least this share of all does not exceed
            "delay_p50_s": ordered[math.ceil(0.5 * len(ordered)) - 1],
            "delay_p95_s": ordered[math.ceil(0.95 * len(ordered)) - 1],
        }
    return answer


ZAPS = [
    "2024-01-01,20:16:58,10.0.0.1,MBC2,MBC Action",
    "2024-01-01,20:17:05,10.0.0.1,Volume: 35",
    "2024-01-01,20:17:06,10.0.0.2,Mute: 1",
    "2024-01-01,20:17:07,10.0.0.2,Power: 0",
    "2024-01-01,20:17:05,10.0.0.1,Volume: 35",  # the same again
    "2024-02-30,20:17:05,10.0.0.1,MBC2,MBC3",
    "2024-01-01,24:17:05,10.0.0.1,MBC2,MBC3",
    "2024-01-01,20:17:05,10.0.0.256,MBC2,MBC3",
    "2024-01-01,20:17:05,10.0.0.1,Volume: 101",
    "2024-01-01,20:17:05,10.0.0.1,,MBC3",
    "2024-01-01,20:17:05,10.0.0.1, MBC2,MBC3",
    "2024-01-01,20:17:05,10.0.0.1,MBC2,MBC3,MBC4",
    "2024-1-1,20:17:05,10.0.0.1,MBC2,MBC3",
    "hello",
    "2024-01-01,20:18:00,10.0.0.3,TV Ñandú,Das Erste",
]
BAD_LINES = {
    "{": "not a JSON object with the log's columns",
    '{"time":1.0,"type":"alive","broker":"b"}': "no offset",
    '{"offset":1,"time":1.0,"type":"sung"}': "unknown record type",
    '{"offset":1,"time":1.0,"type":"alive"}': "alive without broker",
    '{"offset":1,"time":1.0,"type":"subscribed","client":"c","filter":"f","qos":3}': "qos is not 0, 1 or 2",
    '{"offset":-1,"time":1.0,"type":"alive","broker":"b"}': "offset below 0",
    '{"offset":"x","time":1.0,"type":"alive","broker":"b"}': "not a JSON object with the log's columns",
}
AVT = ["host-a 2 0 3600 7200 10800", "host-b 1 0 3600 7200", "host-c 1 50 20", "host-d 0"]
