"""The accounts of a run: what the raw records should have become, counted a second time, against what tables hold.

The clean tables leave out what comes again by the state of their streams. Here the same is counted from the raw records
alone, all at once and by other keys, so that a record that was lost on the way is not taken for one seen before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["QUARANTINE", "Counted", "count_raw", "differences"]

QUARANTINE: Final = "quarantine"


@dataclass(frozen=True, slots=True)
class Counted:
    """Raw records that belong in one table, and how many of them are different ones."""

    records: int
    different: int


def count_raw(raw: DataFrame) -> dict[str, Counted]:
    """Returns, by table, how many records the raw records should become; each record in the quarantine counts."""
    from pyspark.sql import functions as F  # noqa: N812

    from surecast.pipeline.formats import BROKER
    from surecast.pipeline.records import INTERVAL_SOURCES, ZAP_SOURCES, zap_event

    source, text = F.col("source"), F.col("text")
    is_zap, is_trace = source.isin(*ZAP_SOURCES), source.isin("viewing", *INTERVAL_SOURCES)
    table = F.when(F.col("problem").isNotNull(), F.lit(QUARANTINE)).when(source == BROKER, F.lit("broker_events"))
    table = table.when(is_zap, F.lit("zap_events")).when(source == "viewing", F.lit("viewing_sessions"))
    table = table.when(is_trace, F.lit("availability")).otherwise(F.concat(F.lit("no table for "), source))
    # An event of a box is known by what it says, a record of a broker by its line and log, of a trace by its place too.
    is_event = is_zap & F.col("problem").isNull()
    content = F.when(is_event, F.to_json(zap_event(source, text))).otherwise(text)
    key = (F.when(~is_event, F.col("log")), F.when(is_trace, F.col("position")), content)
    keyed = raw.select(table.alias("table"), F.struct(F.xxhash64(*key), F.hash(*key)).alias("key"))
    counts = keyed.groupBy("table").agg(F.count("*").alias("records"), F.count_distinct("key").alias("different"))
    return {row["table"]: Counted(row["records"], row["different"]) for row in counts.collect()}


def differences(raw: Mapping[str, Counted], held: Mapping[str, int]) -> list[str]:
    """Returns texts that say which tables do not hold what they should; `held` is records by table.

    >>> differences({"zap_events": Counted(5, 4), "quarantine": Counted(1, 1)}, {"zap_events": 4, "quarantine": 1})
    []
    >>> differences({"zap_events": Counted(5, 4)}, {"zap_events": 3, "availability": 2})
    ['availability has 2 records in place of 0', 'zap_events has 3 records in place of 4']
    """
    texts = []
    for name in sorted({*raw, *held}):
        counted = raw.get(name, Counted(0, 0))
        wanted = counted.records if name == QUARANTINE else counted.different
        if held.get(name, 0) != wanted:
            texts.append(f"{name} has {held.get(name, 0)} records in place of {wanted}")
    return texts
