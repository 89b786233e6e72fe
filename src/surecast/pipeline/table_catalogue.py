"""The tables of the pipeline, by name, with what is in each. docs/reference/tables.md lists their columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from surecast.errors import refuse_unknown
from surecast.pipeline.formats import BROKER, ZAP

__all__ = ["CLEAN", "SOURCES", "STATISTICS", "TABLES", "chosen_statistics", "tables_of"]

CLEAN: Final[dict[str, str]] = {
    "broker_events": "what brokers logged, one row for each record",
    "zap_events": "what set-top boxes logged: zaps, power, volume, mute, signs that it is up",
    "viewing_sessions": "who watched which channel, from when and how long",
    "availability": "intervals in which a component or a connection was up, or down, as traces have them",
}
STATISTICS: Final[dict[str, str]] = {
    "input_files": "files read: their records, and how many of them are in the quarantine",
    "subscriber_qos": "on-time reliability and delays of every subscriber",
    "subscriber_losses": "what did not reach a subscriber, by reason",
    "broker_accounts": "what a broker took for its receivers, and what became of it",
    "broker_load": "load and number of subscriptions of a broker over time",
    "broker_uptime": "intervals in which a broker was up, and how each ended",
    "publisher_rates": "rate of every publisher, and how its gaps vary",
    "box_changes": "every time that a set-top box went to another channel, on or off",
    "channel_viewers": "viewers of every channel over time",
    "channel_top": "the most viewed channels over time",
    "channel_flow": "how often boxes went from each channel to each other",
    "channel_stops": "how long boxes stay on a channel: surfing and staying",
    "box_sessions": "every time that a box was on, from when and how long",
    "programme_reach": "boxes that a programme reached, its viewers and its share",
    "box_departures": "days on which a box was unlike its own history",
}
TABLES: Final[dict[str, str]] = {
    "raw_records": "every record of every file, as it was read",
    "quarantine": "records that cannot be used, with file, position and reason",
    **CLEAN,
    **STATISTICS,
}
SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "broker_events": (BROKER,),
    "zap_events": (ZAP, "stb"),
    "viewing_sessions": ("viewing",),
    "availability": ("fta", "outages", "lanl", "activity", "bandwidth", "avt"),
}
"""The formats of the records of each clean table."""
_OF_ALL: Final = ("raw_records", "quarantine", "input_files")
_OF_CHANGES: Final = (
    *("channel_viewers", "channel_top", "channel_flow", "channel_stops", "box_sessions", "programme_reach"),
    "box_departures",
)


_MADE_FROM: Final = {
    **dict.fromkeys(("subscriber_qos", "subscriber_losses", "broker_accounts", "broker_load"), "broker_events"),
    **dict.fromkeys(("broker_uptime", "publisher_rates"), "broker_events"),
    **dict.fromkeys(("box_changes", *_OF_CHANGES), "zap_events"),
}


def tables_of(sources: Collection[str]) -> tuple[str, ...]:
    """Returns the tables that new records of some formats can change.

    >>> tables_of(["avt"])
    ('raw_records', 'quarantine', 'availability', 'input_files')
    >>> "channel_top" in tables_of(["zap", "unknown"]), "subscriber_qos" in tables_of(["zap"])
    (True, False)
    """
    clean = {name for name, formats in SOURCES.items() if {*formats} & {*sources}}
    return tuple(name for name in TABLES if name in _OF_ALL or _MADE_FROM.get(name, name) in clean)


def chosen_statistics(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the statistics that are asked for, with those that they are made from and the list of files.

    >>> chosen_statistics(["channel_top"])
    ('input_files', 'box_changes', 'channel_viewers', 'channel_top')
    """
    refuse_unknown("statistic", names, STATISTICS)
    wanted = {"input_files", *names}
    wanted |= {"channel_viewers"} if "channel_top" in wanted else set()
    wanted |= {"box_changes"} if wanted & {*_OF_CHANGES} else set()
    return tuple(name for name in STATISTICS if name in wanted)
