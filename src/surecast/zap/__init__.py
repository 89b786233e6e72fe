"""ZapViewers: which channels set-top boxes are tuned in on, counted in a replicated broker.

Events and their text, a generator of traffic, files, conversion of real logs and comparison; the viewers of
each channel as a state machine, and the application that a broker runs. Fitting is in `surecast.zap.fit`, which needs
SciPy and is slow to import.
"""

from surecast.zap.convert import Converted, apply_retention, convert
from surecast.zap.event_files import EventWriter, Payload, payloads, read_table, read_tables
from surecast.zap.event_table import EventTable, join_tables
from surecast.zap.events import BadLine, ChannelChange, Event, LineError, Status, parse_line, parse_lines
from surecast.zap.generator import Batch, Generator
from surecast.zap.log_comparison import LogComparison, compare_logs, gaps_s, rank_shares
from surecast.zap.traffic import Traffic, load_traffic, save_traffic
from surecast.zap.viewers import ChannelViewers, Viewers
from surecast.zap.viewers_application import ZapViewers, viewers_topic

__all__ = [
    "BadLine",
    "Batch",
    "ChannelChange",
    "ChannelViewers",
    "Converted",
    "Event",
    "EventTable",
    "EventWriter",
    "Generator",
    "LineError",
    "LogComparison",
    "Payload",
    "Status",
    "Traffic",
    "Viewers",
    "ZapViewers",
    "apply_retention",
    "compare_logs",
    "convert",
    "gaps_s",
    "join_tables",
    "load_traffic",
    "parse_line",
    "parse_lines",
    "payloads",
    "rank_shares",
    "read_table",
    "read_tables",
    "save_traffic",
    "viewers_topic",
]
