"""The homes of sessions: which broker of an overlay has the session of each client, known at all of them.

A second replicated map beside that of retained messages: user and client identifier to the home broker. The broker at
which a client has connected last is the home of its session, if the session outlives the connection; of two brokers
that a partition has kept apart the later one, by their clocks. An entry goes when the session ends.

A client of MQTT 5 that asks for its session at another broker is sent home, by a server reference. One that comes again
within a minute could not get there, or does not know what a server reference is: it is served where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from math import inf
from typing import Final, NamedTuple

from surecast.protocol.broker import BrokerCore, Connection
from surecast.protocol.broker.session import session_key
from surecast.protocol.mqtt import V5, Connect
from surecast.protocol.overlay.event_bodies import BatchedMessage, MessageRun
from surecast.protocol.overlay.overlay_frames import EventBatch
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import HOME_TOPICS
from surecast.protocol.overlay.retained_map import RetainedMap

__all__ = ["SessionHomes"]

_AGAIN_S: Final = 60.0
_SENT_MAX: Final = 10_000
_HOME_QOS: Final = 1
_MICROSECONDS: Final = 1_000_000
_CLEAN: Final = "c"
_IS_NUMBER: Final = re.compile("[0-9]{1,18}").fullmatch


class SessionHomes:
    """Keeps the homes of one broker's sessions, and tells where a client that connects should go instead.

    `address` returns where clients find a broker; nothing if they cannot be sent there.
    """

    def __init__(self, node: OverlayNode, homes: RetainedMap, core: BrokerCore, address: Callable[[str], str]):
        self.sent_home = 0
        """The number of times that clients were sent to another broker."""
        self.came_again = 0
        """The number of times that one that was sent came again, and was served here."""
        self._node = node
        self._homes = homes
        self._core = core
        self._address = address
        self.claimed: dict[str, None] = {}
        """The keys of sessions that are on their way here."""
        self.admitted: dict[str, Connection] = {}
        """By the keys of their sessions, connections that have waited: they count from their CONNECT, not from now."""
        self.moved: Callable[[str, str, bool, float], None] | None = None
        """Is told where a session of this broker is at home now, and whether it began anew there; None where sessions
        do not move."""
        self._sent: dict[str, float] = {}
        self._own: dict[str, tuple[str, int]] = {}
        """By topic, the keys of the broker's own sessions, and when their clients have connected last: an older session
        elsewhere may be one of a client that has a later one here."""

    def __len__(self) -> int:
        """The number of sessions that are known, in the whole overlay."""
        return len(self._homes)

    def home_of(self, key: str) -> str:
        """Returns the broker that has a session, by the session's key; nothing where none is known."""
        entry = self._homes.get(_topic(key))
        read = _read(entry) if entry is not None else _NOBODY
        return read.home if read.key == key else ""

    def known(self) -> dict[str, str]:
        """Returns the homes of all sessions, by the keys of these."""
        entries = [_read(entry) for entry in map(self._homes.get, self._homes.topics()) if entry is not None]
        return {entry.key: entry.home for entry in entries if entry.key}

    def start(self, now: float) -> None:
        """Takes the sessions that are on disk: those whose home is not known are at home here, and those that have
        ended while the broker did not know of the map are at home nowhere."""
        known = self._core.sessions.by_key
        gone = [key for key, home in self.known().items() if home == self._node.name and key not in known]
        self.settle([*gone, *known], now)

    def settle(self, keys: Iterable[str], now: float) -> None:
        """Enters sessions that have begun or were connected to, and takes out those that have ended."""
        for key in keys:
            session, topic, home = self._core.sessions.by_key.get(key), _topic(key), self.home_of(key)
            if key in self.claimed:
                continue
            _, connected = self._own.pop(topic, (key, 0))
            admitted = self.admitted.pop(key, None)
            if session is not None and session.persistent:
                if session.connection is not None and session.connection is not admitted:
                    connected = int(now * _MICROSECONDS)
                elif not connected and home == self._node.name and (entry := self._homes.get(topic)) is not None:
                    connected = _read(entry).connected
                self._own[topic] = key, connected
                if home != self._node.name and (session.connection is not None or not home):
                    self._publish(key, connected, now)
            elif home == self._node.name:
                self._publish(key, connected, now, is_over=True)

    def take_changes(self, now: float) -> None:
        """Answers what has come from other brokers: the broker at which the client has connected last says so again,
        and where the later session has ended, an older one here is the client's again. A session that this broker no
        longer has is at home nowhere."""
        for topic, entry in self._homes.take_changed():
            key, connected = self._own.get(topic, ("", 0))
            if entry is None:
                if key and (key in self._core.sessions.by_key or key in self.claimed):
                    self._publish(key, connected, now)
                continue
            read = _read(entry)
            if read.home == self._node.name:
                if not key and topic == _topic(read.key):
                    self._publish(read.key, 0, now, is_over=True)
            elif key and connected > read.connected:
                self._publish(key, connected, now)
            elif key and self.moved is not None:
                self.moved(key, read.home, read.is_clean, now)

    def claim(self, key: str, now: float, *, is_clean: bool = False) -> None:
        """Says that a session is at home here, before it is: whoever has it sends it, or ends it where it begins
        anew."""
        connected = int(now * _MICROSECONDS)
        self._own[_topic(key)] = key, connected
        self._publish(key, connected, now, is_clean=is_clean)

    def disown(self, key: str) -> None:
        """A session that was on its way here is not asked for any more."""
        self._own.pop(_topic(key), None)

    def connected_at(self, key: str) -> int:
        """Returns when the client of a session of this broker has connected last, in microseconds."""
        return self._own.get(_topic(key), (key, 0))[1]

    def arrived(self, key: str, connected: int, now: float) -> None:
        """A session has come whose client had connected then; a later one may be at home elsewhere."""
        topic = _topic(key)
        own = max(connected, self.connected_at(key))
        self._own[topic] = key, own
        entry = self._homes.get(topic)
        read = _read(entry) if entry is not None else _NOBODY
        if read.home == self._node.name:
            return
        if read.home and read.connected > own and self.moved is not None:
            self.moved(key, read.home, read.is_clean, now)
        else:
            self._publish(key, own, now)

    def elsewhere(self, user: str, connect: Connect, now: float) -> str:
        """Returns where a client should connect instead; nothing if it is right here."""
        if connect.version != V5 or connect.clean_start or not connect.client_id:
            return ""
        key = session_key(user, connect.client_id)
        home = self.home_of(key)
        if not home or home == self._node.name or key in self._core.sessions.by_key:
            return ""
        address = self._address(home)
        if not address or not self._node.is_in_reach(home, _topic(key)):
            return ""
        if self._sent.pop(key, -inf) > now - _AGAIN_S:
            self.came_again += 1
            return ""
        if len(self._sent) >= _SENT_MAX:
            del self._sent[next(iter(self._sent))]
        self._sent[key] = now
        self.sent_home += 1
        return address

    def _publish(self, key: str, connected: int, now: float, *, is_over: bool = False, is_clean: bool = False) -> None:
        began = _CLEAN if is_clean else ""
        payload = b"" if is_over else f"{began}{connected}\0{self._node.name}\0{key}".encode()
        self._node.publish(
            _topic(key), 1, now, qos=_HOME_QOS, body=MessageRun.of([BatchedMessage(True, inf, b"", payload)]),
            is_delivered=True, is_retained=True, deletes=is_over,
        )  # fmt: skip


class _Home(NamedTuple):
    """When a client has connected last, in microseconds, to which broker, the key of its session, and whether this
    began anew then."""

    connected: int
    home: str
    key: str
    is_clean: bool = False


_NOBODY: Final = _Home(0, "", "")


def _topic(key: str) -> str:
    """Returns the topic of a session: names of users and clients may be longer than a topic, and have wildcards."""
    return HOME_TOPICS + blake2b(key.encode(), digest_size=16).hexdigest()


def _read(entry: EventBatch) -> _Home:
    """Returns what an entry says; what a broker has made up is nobody's."""
    body = entry.body
    if not isinstance(body, MessageRun):
        return _NOBODY
    connected, _, rest = body.messages()[-1].payload.decode("utf-8", "replace").partition("\0")
    home, _, key = rest.partition("\0")
    is_clean, connected = connected.startswith(_CLEAN), connected.removeprefix(_CLEAN)
    return _Home(int(connected), home, key, is_clean) if _IS_NUMBER(connected) else _NOBODY
