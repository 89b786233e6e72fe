"""ZapViewers inside a replicated broker: it hears the events of set-top boxes and publishes viewer figures.

    zap/events/<publisher>   in:  lines of events, one or many in a message
    zap/viewers/<channel>    out: the number of viewers, retained
    zap/top/<n>              out: the n most viewed channels as JSON, retained; for the lengths that are configured, and
                             for those that somebody subscribes to
    zap/errors               out: the number of lines so far that were no events, retained

Every replica executes the same messages at the same log times, so all publish the same. Figures that changed are
published at most once per `every_s` of log time. In a topic the characters ``/ + # % $`` of a
channel's name are written as ``%2F`` and so on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.codec import I64, REST, TEXT, U8, U32, U64, Layout, pairs, sized
from surecast.zap.events import BadLine, Event, parse_lines
from surecast.zap.viewers import Viewers

__all__ = ["ZapViewers", "viewers_topic"]

Publication = tuple[str, bytes, bool]
TOP_MAX = 1000
LISTS_MAX: Final = 20
"""The most lists of lengths that only subscribers ask for; more wait until one of these has no subscriber."""
_TOP: Final = "zap/top/"
_NEVER = -1
_VERSION: Final = 2
_UNFIT = re.compile(r"[/+#%$]")
_LENGTH = re.compile(r"[1-9][0-9]{0,3}")


class _State(NamedTuple):
    version: int
    bad_lines: int
    sent_bad: int
    sent_us: int
    sent: dict[str, int]
    sent_top: dict[int, bytes]
    viewers: bytes


_STATE: Final = Layout(
    "snapshot of ZapViewers",
    _State,
    version=U8,
    bad_lines=U64,
    sent_bad=U64,
    sent_us=I64,
    sent=pairs(TEXT, U64, is_sorted=True),
    sent_top=pairs(U32, sized(), is_sorted=True),
    viewers=REST,
)


class ZapViewers:
    """The application. `top` are the lengths of the top lists that it always publishes.

    A list of another length, up to 1000, is published while somebody subscribes to it by its topic; when nobody does
    any more, its retained message is removed. Subscriptions to wildcards get the lists that there are.

    >>> zap = ZapViewers(top=(2,))
    >>> lines = b"2024-01-01,20:00:00,10.0.0.1,Canal+,A\\n2024-01-01,20:00:00,10.0.0.2,B,A\\nhello\\n"
    >>> for publication in zap.published("zap/events/p1", lines, 1_000_000): print(*publication)
    zap/viewers/B b'1' True
    zap/viewers/Canal%2B b'1' True
    zap/top/2 b'[{"channel":"B","viewers":1},{"channel":"Canal+","viewers":1}]' True
    zap/errors b'1' True
    """

    name = "zap"
    topics: tuple[str, ...] = ("zap/events/#",)
    watched: str = _TOP

    def __init__(
        self,
        top: tuple[int, ...] = (10,),
        every_s: float = 1.0,
        boxes_max: int = 8_000_000,
        channels_max: int = 10_000,
    ):
        if not all(1 <= n <= TOP_MAX for n in top) or len(set(top)) != len(top):
            raise ConfigurationError(f"top {top}: write lengths from 1 to {TOP_MAX}, each once")
        if not 0.0 <= every_s <= 86_400.0:
            raise ConfigurationError(f"every_s {every_s:g}: write seconds from 0 to 86400")
        self.top, self.every_us = tuple(sorted(top)), round(every_s * 1e6)
        self.viewers = Viewers(boxes_max, channels_max)
        self.bad_lines = 0
        self._changed: set[str] = set()
        self._sent: dict[str, int] = {}
        self._sent_top: dict[int, bytes] = {}
        self._sent_bad = 0
        self._sent_us = _NEVER
        self._asked: set[int] = set()
        self._asked_anew = False

    def subscribed(self, topic_filter: str, is_held: bool) -> None:
        """Hears that somebody subscribes to a list, or nobody does any more."""
        text = topic_filter.removeprefix(_TOP)
        if not _LENGTH.fullmatch(text) or int(text) > TOP_MAX:
            return
        self._asked_anew = True
        if is_held:
            self._asked.add(int(text))
        else:
            self._asked.discard(int(text))

    def published(self, topic: str, payload: bytes, time_us: int) -> Iterable[Publication]:
        """Takes a message of events in, and says what to publish."""
        good: list[Event] = []
        for event in parse_lines(payload.split(b"\n"), topic):
            if isinstance(event, BadLine):
                self.bad_lines += 1
            else:
                good.append(event)
        self._changed |= self.viewers.execute(good)
        return self.tick(time_us)

    def tick(self, time_us: int) -> list[Publication]:
        """Returns the publications due at this log time: every figure that differs from the one published last."""
        pending = bool(self._changed) or self._sent_bad != self.bad_lines or self._asked_anew
        if not pending or (self._sent_us != _NEVER and time_us < self._sent_us + self.every_us):
            return []
        publications: list[Publication] = []
        for channel in sorted(self._changed):
            count = self.viewers.num_viewers(channel)
            if self._sent.get(channel, 0) != count:
                self._sent[channel] = count
                publications.append((viewers_topic(channel), b"%d" % count, True))
        self._changed.clear()
        publications += self._lists(is_changed=bool(publications))
        if self._sent_bad != self.bad_lines:
            self._sent_bad = self.bad_lines
            publications.append(("zap/errors", b"%d" % self.bad_lines, True))
        if publications:
            self._sent_us = time_us
        return publications

    def _lists(self, is_changed: bool) -> list[Publication]:
        """Returns the lists to publish: those that changed, those that are asked for now, and an empty message for each
        that nobody asks for any more."""
        self._asked_anew = False
        lengths = self._lengths()
        publications: list[Publication] = []
        for n in sorted(self._sent_top.keys() - lengths):
            del self._sent_top[n]
            publications.append((f"{_TOP}{n}", b"", True))
        for n in sorted(lengths):
            if is_changed or (n in self._asked and n not in self._sent_top):
                listed = _top_list(self.viewers, n)
                if self._sent_top.get(n) != listed:
                    self._sent_top[n] = listed
                    publications.append((f"{_TOP}{n}", listed, True))
        return publications

    def _lengths(self) -> set[int]:
        """Returns the lengths of the lists to keep up: those that are configured, then those already published, then
        the shortest that wait."""
        asked = self._asked - set(self.top)
        held = asked & self._sent_top.keys()
        waiting = sorted(asked - held)[: LISTS_MAX - len(held)]
        return {*self.top, *held, *waiting}

    def snapshot(self) -> bytes:
        """Returns the whole state. Equal states give equal bytes."""
        return _STATE.encode(
            _State(
                _VERSION,
                self.bad_lines,
                self._sent_bad,
                self._sent_us,
                self._sent,
                self._sent_top,
                self.viewers.snapshot(),
            )
        )

    def restore(self, state: bytes) -> None:
        """Replaces the state by that of a snapshot; empty bytes are the initial state.

        Nobody is subscribed then: the broker says afterwards who is.
        """
        fresh = ZapViewers(self.top, self.every_us / 1e6, self.viewers.boxes_max, self.viewers.channels_max)
        if state:
            fresh._read(state)
        self.__dict__.update(fresh.__dict__)

    def _read(self, state: bytes) -> None:
        version, self.bad_lines, self._sent_bad, self._sent_us, self._sent, self._sent_top, viewers = _STATE.decode(
            state
        )
        if version != _VERSION:
            raise PeerError(f"the snapshot of ZapViewers has version {version}; {_VERSION} was expected")
        self.viewers.restore(viewers)
        # subscriptions may have changed since: the next tick compares them with the lists that were published
        self._asked_anew = True
        # a number that changed and changed back is not published, so it need not be remembered
        names = self.viewers.channels
        self._changed = {name for name in names if self.viewers.num_viewers(name) != self._sent.get(name, 0)}


def viewers_topic(channel: str) -> str:
    """Returns the topic with the viewers of a channel.

    >>> viewers_topic("Canal+ 4/7")
    'zap/viewers/Canal%2B 4%2F7'
    """
    return "zap/viewers/" + _UNFIT.sub(lambda match: f"%{ord(match[0]):02X}", channel)


def _top_list(viewers: Viewers, n: int) -> bytes:
    listed = [{"channel": entry.channel, "viewers": entry.viewers} for entry in viewers.compute_top_list(n)]
    return json.dumps(listed, ensure_ascii=False, separators=(",", ":")).encode()
