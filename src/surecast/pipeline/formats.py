"""The formats of log and trace files that the pipeline can read, and how a file is recognised.

A format says which of two readers cuts a file into records: `lines`, one record for each line, read on from where the
last run stopped; or `document`, one JSON document that holds a list of records. What a record means is decided later,
by Spark (`records.py`); here a file is only recognised, by its name or by its first line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["BROKER", "FORMATS", "UNKNOWN", "ZAP", "Format", "recognise"]

BROKER: Final = "broker"
ZAP: Final = "zap"
UNKNOWN: Final = "unknown"

_ZAP_LINE: Final = re.compile(r"\s*\d{4}[-/.]\d{2}[-/.]\d{2}\s*,\s*\d{2}:\d{2}:\d{2}[^,]*,\s*\d{1,3}(\.\d{1,3}){3}\s*,")


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file. `header` is the first line where the file names its columns; it is no record."""

    name: str
    what: str
    reader: Literal["lines", "document"]
    file_name: str = ""
    """A regular expression that the whole file name matches, without .gz; empty where only the first line tells."""
    header: str = ""
    first_line: Callable[[str], bool] | None = None
    whole_lines_only: bool = False
    """Never read a last line without its end: its writer will cut it off or complete it."""

    def fits(self, file_name: str, first_line: str) -> bool:
        """Returns whether a file of this name that begins with this line is of this format."""
        if self.header:
            return first_line.rstrip("\r\n") == self.header
        if self.file_name and re.fullmatch(self.file_name, file_name):
            return True
        return self.first_line is not None and self.first_line(first_line)


FORMATS: Final[dict[str, Format]] = {
    each.name: each
    for each in (
        Format(
            BROKER, "event log of a broker (JSON Lines)", "lines", r"events-\d{20}\b.*\.jsonl", whole_lines_only=True
        ),
        Format(
            ZAP,
            "ZapViewers log: DATE,TIME,BOX,TO,FROM or DATE,TIME,BOX,STATUS",
            "lines",
            r".*\.zap",
            first_line=lambda line: _ZAP_LINE.match(line) is not None,
        ),
        Format("stb", "set-top-box events, a JSON object with one list", "document", r"events_\d{8}\.json"),
        Format(
            "viewing",
            "viewing sessions (CSV)",
            "lines",
            header="UserID,Channel2,RecordDate2,Duration2",
        ),
        Format(
            "fta",
            "Failure Trace Archive, event_trace table",
            "lines",
            header="event_id\tcomponent_id\tnode_id\tplatform_id\tnode_name\tevent_type\tevent_start_time"
            "\tevent_stop_time\tevent_end_reason",
        ),
        Format("outages", "outages of services (CSV)", "lines", header="start_time,end_time,status,service"),
        Format(
            "lanl",
            "LANL failure records (CSV)",
            "lines",
            header="System,machine type,nodes,procstot,procsinnode,nodenum,nodenumz,node install,node prod,node decom,"
            "fru type,mem,cputype,memtype,num intercon,purpose,Prob Started,Prob Fixed,Down Time,Facilities,Hardware,"
            "Human Error,Network,Undetermined,Software,Same Event",
        ),
        Format("activity", "connected intervals of users", "lines", header="# Format: user_id;start;end"),
        Format(
            "bandwidth",
            "bandwidth samples of a trip, a JSON list",
            "document",
            r"report[._].*\.json|.*bandwidth.*\.json",
        ),
        Format("avt", "availability sessions: NAME COUNT START STOP ...", "lines", r".*\.avt"),
    )
}


def recognise(file_name: str, first_line: str) -> Format | None:
    """Returns the format of a file, None if the pipeline knows none for it.

    >>> recognise("events-00000000000000000000.jsonl", '{"offset":0,').name
    'broker'
    >>> recognise("monday.txt", "2014-05-26,20:15:03,10.0.17.4,NRK1,TV2").name
    'zap'
    >>> recognise("README.md", "# What is here") is None
    True
    """
    plain = file_name.removesuffix(".gz")
    return next((each for each in FORMATS.values() if each.fits(plain, first_line)), None)
