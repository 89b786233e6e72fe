"""The meaning of a record of each format: columns of the clean tables, and the reason why a record is unusable.

Every function takes columns of the raw table and returns columns: Spark's own functions throughout. For any record
either its `problem` is NULL and its values are whole, or it says in words what is wrong, and the record goes to the
quarantine.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from surecast.event_log_records import COLUMNS, RECORD_TYPES, SPARK_SCHEMA, required_columns
from surecast.pipeline.formats import BROKER, ZAP
from surecast.pipeline.table_catalogue import SOURCES

__all__ = [
    "EVENT_COLUMNS",
    "INTERVAL_SOURCES",
    "ZAP_SOURCES",
    "broker_event",
    "intervals",
    "judged",
    "viewing_session",
    "zap_event",
]

EVENT_COLUMNS: Final = tuple(COLUMNS)

ZAP_SOURCES: Final = SOURCES["zap_events"]
INTERVAL_SOURCES: Final = SOURCES["availability"]
ON_KBPS: Final = 30.0
"""A connection with less bandwidth than this is off: no message of use gets through."""
CHANNEL_BYTES_MAX: Final = 40

RAW_COLUMNS: Final = ("source", "log", "file", "position", "bytes", "text", "problem")
_MANY: Final = 1 << 30
_CORRUPT: Final = "_corrupt"
_OCTET: Final = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_ADDRESS: Final = rf"^{_OCTET}(\.{_OCTET}){{3}}$"
_STATUS: Final = r"^(Volume: (100|[1-9]?[0-9])|(Mute|Power): [01])$"
_UNFIT: Final = "[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]"
_STB_CODES: Final = ("ELWS", "SSTART", "SSTAND", "SALIVE")
_NUMBER: Final = r"^-?[0-9]+([.][0-9]*)?([eE][-+]?[0-9]+)?$"


def judged(raw: DataFrame) -> DataFrame:
    """Returns the raw records with the reason why one cannot be used as their `problem`; NULL if it can.

    What is parsed stands in columns of its own for a step, so that each text is parsed once.
    """
    source, text = F.col("source"), F.col("text")
    parsed = raw.select(
        *RAW_COLUMNS,
        F.when(source == BROKER, broker_event(text)).alias("event"),
        F.when(source == ZAP, F.split(text, ",")).alias("fields"),
        F.when(source == "stb", _stb(text)).alias("stb"),
        F.when(source == "viewing", viewing_session(text)).alias("session"),
        intervals(source, text).alias("intervals"),
    )
    problem = F.when(F.col("problem").isNotNull(), F.col("problem"))
    problem = problem.when(source == BROKER, _broker_problem(F.col("event")))
    problem = problem.when(source == ZAP, _zap_problem(F.col("fields")))
    problem = problem.when(source == "stb", _stb_problem(F.col("stb")))
    problem = problem.when(source == "viewing", _viewing_problem(F.col("session")))
    problem = problem.when(source.isin(*INTERVAL_SOURCES), _interval_problem(F.col("intervals"), source, text))
    return parsed.select(*[name for name in RAW_COLUMNS if name != "problem"], problem.alias("problem"))


def broker_event(text: Column) -> Column:
    """Returns the columns of docs/logs.md, and `_corrupt` where the line is no such object."""
    options = {"columnNameOfCorruptRecord": _CORRUPT, "allowNonNumericNumbers": "false"}
    return F.from_json(text, f"{SPARK_SCHEMA}, {_CORRUPT} STRING", options)


def _broker_problem(event: Column) -> Column:
    named = event["type"]
    answer = F.when(event.isNull() | event[_CORRUPT].isNotNull(), F.lit("not a JSON object with the log's columns"))
    for name in ("offset", "time", "type"):
        answer = answer.when(event[name].isNull(), F.lit(f"no {name}"))
    answer = answer.when(~named.isin(*RECORD_TYPES), F.lit("unknown record type"))
    for name in EVENT_COLUMNS:
        kinds = [kind for kind in RECORD_TYPES if name in required_columns(kind)]
        if kinds:
            problem = F.concat(named, F.lit(f" without {name}"))
            answer = answer.when(event[name].isNull() & named.isin(*kinds), problem)
    for name, column in COLUMNS.items():
        if column.allowed:
            *first, last = map(str, column.allowed)
            problem = F.lit(f"{name} is not {', '.join(first)} or {last}")
            answer = answer.when(~event[name].isin(*column.allowed), problem)
        if column.minimum is not None:
            answer = answer.when(event[name] < column.minimum, F.lit(f"{name} below {column.minimum}"))
    return answer


def zap_event(source: Column, text: Column) -> Column:
    """Returns a struct of time, box, kind, value, to_channel, from_channel; for sound records only.

    `kind` is zap, volume, mute, power or alive; `value` the volume, or 1 and 0 for on and off.
    """
    fields = F.split(text, ",")
    status = F.split(F.get(fields, F.lit(3)), ": ")
    is_zap = F.size(fields) == 5
    line = F.struct(
        _zap_time(fields).alias("time"),
        F.get(fields, F.lit(2)).alias("box"),
        F.when(is_zap, F.lit("zap")).otherwise(F.lower(F.get(status, F.lit(0)))).alias("kind"),
        F.when(~is_zap, F.get(status, F.lit(1)).try_cast("int")).alias("value"),
        F.when(is_zap, F.get(fields, F.lit(3))).alias("to_channel"),
        F.get(fields, F.lit(4)).alias("from_channel"),
    )
    stb = _stb(text)
    code = stb["code"]
    kind = F.when(code == "ELWS", F.lit("zap")).when(code == "SALIVE", F.lit("alive")).otherwise(F.lit("power"))
    box = F.struct(
        _stb_time(stb).alias("time"),
        stb["mac"].alias("box"),
        kind.alias("kind"),
        F.when(code == "SSTART", F.lit(1)).when(code == "SSTAND", F.lit(0)).alias("value"),
        stb["chname"].alias("to_channel"),
        F.lit(None).cast("string").alias("from_channel"),
    )
    return F.when(source == ZAP, line).otherwise(box)


def viewing_session(text: Column) -> Column:
    """Returns a struct of user, channel, start, duration_s; for sound records only."""
    row = _viewing(text)
    return F.struct(
        row["user"].alias("user"),
        row["channel"].alias("channel"),
        F.try_to_timestamp(row["start"], F.lit("yyyy/MM/dd HH:mm")).alias("start"),
        _clock_s(row["duration"]).alias("duration_s"),
    )


def intervals(source: Column, text: Column) -> Column:
    """Returns an array of structs of component, up, start_s, end_s: what the trace observed, with its gaps left as
    gaps.

    For sound records only. Times are seconds since 1970, or since the trace began, as the trace has them.
    """
    answer = F.when(source == "avt", _avt_intervals(text))
    for name in INTERVAL_SOURCES:
        if name != "avt":
            answer = answer.when(source == name, F.array(_interval_of(name, text)))
    return answer


def _zap_time(fields: Column) -> Column:
    both = F.concat_ws(" ", F.get(fields, F.lit(0)), F.get(fields, F.lit(1)))
    return F.try_to_timestamp(both, F.lit("yyyy-MM-dd HH:mm:ss"))


def _zap_problem(fields: Column) -> Column:
    count = F.size(fields)
    answer = F.when(~count.isin(4, 5), F.lit("not 4 or 5 fields"))
    answer = answer.when(_zap_time(fields).isNull(), F.lit("no date and time"))
    answer = answer.when(~F.rlike(F.get(fields, F.lit(2)), F.lit(_ADDRESS)), F.lit("no IPv4 address"))
    answer = answer.when((count == 4) & ~F.rlike(F.get(fields, F.lit(3)), F.lit(_STATUS)), F.lit("unknown status"))
    for index in (3, 4):
        answer = answer.when((count == 5) & _is_bad_channel(F.get(fields, F.lit(index))), F.lit("no channel name"))
    return answer


def _is_bad_channel(name: Column) -> Column:
    size = F.octet_length(name)
    return (size == 0) | (size > CHANNEL_BYTES_MAX) | (F.trim(name) != name) | F.rlike(name, F.lit(_UNFIT))


def _stb(text: Column) -> Column:
    return F.from_json(text, "mac STRING, eventdate STRING, eventtime STRING, chname STRING, code STRING")


def _stb_time(row: Column) -> Column:
    return F.try_to_timestamp(F.concat_ws(" ", row["eventdate"], row["eventtime"]), F.lit("yyyy-MM-dd HH:mm:ss"))


def _stb_problem(row: Column) -> Column:
    answer = F.when(row.isNull() | row["mac"].isNull(), F.lit("no box"))
    answer = answer.when(_stb_time(row).isNull(), F.lit("no date and time"))
    answer = answer.when(row["code"].isNull() | ~row["code"].isin(*_STB_CODES), F.lit("unknown event code"))
    return answer.when((row["code"] == "ELWS") & row["chname"].isNull(), F.lit("no channel name"))


def _viewing(text: Column) -> Column:
    return F.from_csv(text, F.lit("user STRING, channel STRING, start STRING, duration STRING"))


def _viewing_problem(row: Column) -> Column:
    answer = F.when(row["user"].isNull() | row["channel"].isNull(), F.lit("no user or no channel"))
    answer = answer.when(row["start"].isNull(), F.lit("no date and time"))
    return answer.when(row["duration_s"].isNull(), F.lit("no duration"))


def _clock_s(text: Column) -> Column:
    """Returns seconds of HH:MM:SS."""
    parts = [F.get(F.split(text, ":"), F.lit(i)).try_cast("int") for i in range(3)]
    return F.when(F.rlike(text, F.lit("^[0-9]+:[0-5][0-9]:[0-5][0-9]$")), parts[0] * 3600 + parts[1] * 60 + parts[2])


def _interval(component: Column, up: Column, start_s: Column, end_s: Column) -> Column:
    return F.struct(
        component.cast("string").alias("component"),
        up.alias("up"),
        start_s.cast("double").alias("start_s"),
        end_s.cast("double").alias("end_s"),
    )


def _fields(text: Column, separator: str, *positions: int) -> list[Column]:
    parts = F.split(text, separator)
    return [F.get(parts, F.lit(position)) for position in positions]


def _number(text: Column) -> Column:
    return F.when(F.rlike(F.trim(text), F.lit(_NUMBER)), text.try_cast("double"))


def _avt_intervals(text: Column) -> Column:
    parts = F.split(F.trim(text), r"\s+")
    numbers = F.transform(F.slice(parts, 3, _MANY), _number)
    starts = F.filter(numbers, lambda _, i: i % 2 == 0)
    ends = F.filter(numbers, lambda _, i: i % 2 == 1)
    return F.zip_with(starts, ends, lambda start, end: _interval(F.get(parts, F.lit(0)), F.lit(True), start, end))


def _interval_of(name: str, text: Column) -> Column:
    if name == "fta":
        node, kind, start, end = _fields(text, "\t", 4, 5, 6, 7)
        return _interval(node, F.when(kind == "1", True).when(kind == "0", False), _number(start), _number(end))
    if name == "outages":
        start, end, severity, service = _fields(text, ",", 0, 1, 2, 3)
        # Severity 0 is a notice, during which the service was up.
        return _interval(service, _number(severity) <= 0, _number(start), _number(end))
    if name == "activity":
        user, start, end = _fields(text, ";", 0, 1, 2)
        return _interval(user, F.lit(True), _number(start), _number(end))
    if name == "bandwidth":
        row = F.from_json(text, "start_ms DOUBLE, duration_ms DOUBLE, bandwidth_kbps DOUBLE")
        start_s = row["start_ms"] / 1000
        end_s = start_s + row["duration_ms"] / 1000
        return _interval(F.lit("connection"), row["bandwidth_kbps"] >= ON_KBPS, start_s, end_s)
    row = F.from_csv(text, F.lit(", ".join(f"c{i} STRING" for i in range(26))))
    seconds = [F.unix_timestamp(F.try_to_timestamp(row[name], F.lit("M/d/yyyy H:mm"))) for name in ("c16", "c17")]
    return _interval(F.concat_ws("/", row["c0"], row["c6"]), F.lit(False), *seconds)


def _interval_problem(sessions: Column, source: Column, text: Column) -> Column:
    count = _number(F.get(F.split(F.trim(text), r"\s+"), F.lit(1)))
    is_whole = F.coalesce(F.size(sessions) == count, F.lit(False))
    answer = F.when((source == "avt") & ~is_whole, F.lit("not the number of sessions that it says"))
    answer = answer.when(F.size(sessions) == 0, F.lit("no session"))

    def lacks(each: Column) -> Column:
        columns = [each[part].isNull() for part in ("component", "up", "start_s", "end_s")]
        return reduce(lambda a, b: a | b, columns)

    answer = answer.when(F.exists(sessions, lacks), F.lit("no component, state, start or end"))
    return answer.when(F.exists(sessions, lambda each: each["end_s"] < each["start_s"]), F.lit("ends before it starts"))
