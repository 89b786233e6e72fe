"""The links of a node: a session for each neighbour, what waits on them, and the credit that goes back to senders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from surecast.errors import PeerError
from surecast.protocol.broker.broker_settings import Overflow
from surecast.protocol.demand import DemandBucket, DemandFrame, DemandHashes, DemandUpdate, Subscription
from surecast.protocol.link import CONTROL, LinkSession, SessionName
from surecast.protocol.overlay.frame_rules import DETOURS
from surecast.protocol.overlay.frame_sizes import frame_bytes
from surecast.protocol.overlay.overlay_frames import (
    Detoured,
    Events,
    Frame,
    LinkStates,
    MapBucket,
    MapEntries,
    MapForget,
    MapSums,
    Written,
)
from surecast.protocol.overlay.overlay_plan import MEMBERS, TREES_MAX, OverlayPlan

__all__ = ["NodeLinks", "NodeSettings", "Written"]

_STUCK_TIMES: Final = 8


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Limits and times of a node.

    `resume_s`: how long what is on a link is kept while the link is down; 0 gives it up at once.
    `refresh_s`: time between two comparisons of demand on a link that stays up, and between two times that a home
    broker sends its subscriptions where they are refreshed from end to end.
    `timeout_s`: age at which a subscription that was not refreshed from end to end is taken out.
    `retransmission_interval_s`: time between two transmissions of an event in custody; 0 sends it at every link-up.
    `grace_s`: how long a broker that was just started waits to hear of all links before it lets neighbours forget.
    `reconnect_s`: how long a neighbour that others reach again has to come up here, before events go around to it.
    `ack_wait_s`: how long a neighbour may take to acknowledge an event, before events in custody go around it as well;
    longer where it has always taken long, and 0 for ever.
    `window_bytes`: credit of each link and tree. `queue_bytes_max`: what may wait on a link for one tree.
    `custody_events_max`, `custody_bytes_max`: events of one tree in custody for one neighbour, and the bytes of their
    messages; beyond either no more are taken that it wants.
    `retained_max`, `retained_bytes_max`: topics that have a retained message, and their bytes; a home broker refuses
    more. As many deletions are remembered.
    `homes_max`: sessions whose homes are known, in the whole overlay; 0 where nobody asks for them.
    `moves`: sessions move to the broker at which their client connects; it waits `move_wait_s` for a broker from which
    nothing comes, and the old broker takes messages for `move_linger_s` more.
    `hold_max_s`: how long publishers wait for a link that is full; then `overflow` says what is dropped, as for a
    session.
    """

    resume_s: float = 30.0
    refresh_s: float = 60.0
    timeout_s: float = 180.0
    retransmission_interval_s: float = 0.0
    grace_s: float = 5.0
    reconnect_s: float = 0.0
    ack_wait_s: float = 0.0
    window_bytes: int = 4 << 20
    queue_bytes_max: int = 16 << 20
    custody_events_max: int = 100_000
    custody_bytes_max: int = 256 << 20
    retained_max: int = 1_000_000
    retained_bytes_max: int = 1 << 30
    homes_max: int = 0
    moves: bool = False
    move_wait_s: float = 5.0
    move_linger_s: float = 5.0
    hold_max_s: float = inf
    overflow: Overflow = "drop-new"


_KINDS: Final[dict[type, str]] = {
    DemandUpdate: "demand-updates",
    DemandHashes: "demand-hashes",
    DemandBucket: "demand-hashes",
    Subscription: "subscriptions",
    LinkStates: "link-states",
    Detoured: "detours",
    MapSums: "retained",
    MapBucket: "retained",
    MapEntries: "retained",
    MapForget: "retained",
}


class NodeLinks:
    """All links of one broker, up or down."""

    def __init__(self, name: str, plan: OverlayPlan, incarnation: int, settings: NodeSettings):
        self.sessions: dict[str, LinkSession[Frame]] = {
            hop: LinkSession(incarnation, settings.window_bytes) for hop in plan.neighbours(name)
        }
        self.sent: dict[str, Counter[str]] = {hop: Counter() for hop in self.sessions}
        """The frames besides events that were put on each link, and the acknowledgements, by kind."""
        self.unwritten: dict[str, None] = {}
        """The neighbours for which frames were put on a link since `output` was last called for them."""
        self.down_since: dict[str, float] = {}
        """The links that are down and may still be resumed."""
        self._settings = settings
        self._neighbours = [plan.tree_neighbours(tree, name) for tree in range(len(plan.trees))]
        self.stuck: dict[str, None] = {}
        """The neighbours that acknowledge nothing, and whose connections must end."""
        self._progress: dict[str, tuple[SessionName, int]] = {}

    def is_up(self, hop: str) -> bool:
        """Returns whether there is a connection to a neighbour."""
        return self.sessions[hop].is_connected

    @property
    def trees(self) -> int:
        """The number of trees."""
        return len(self._neighbours)

    def up(self) -> list[str]:
        """Returns the neighbours to which there is a connection."""
        return [hop for hop, session in self.sessions.items() if session.is_connected]

    def trees_of(self, neighbour: str) -> list[int]:
        """Returns the trees that use the link to a neighbour."""
        return [tree for tree, neighbours in enumerate(self._neighbours) if neighbour in neighbours]

    def put(self, to: str, lane: int, frame: Frame) -> None:
        """Puts a frame on a link, on the lane of a tree or the one for control."""
        self.sessions[to].put(lane, frame_bytes(frame), frame)
        self.unwritten[to] = None
        if not isinstance(frame, Events):
            self.sent[to][_kind(frame)] += 1
        if lane == CONTROL and self.sessions[to].waiting(CONTROL) > _STUCK_TIMES * self._settings.queue_bytes_max:
            self.stuck[to] = None  # a neighbour that asks for all demand again and again must not fill the memory

    def put_events(self, to: str, tree: int, size: int, frame: Frame) -> bool:
        """Puts a frame whose size is known on a link; returns whether its queue takes it."""
        self.unwritten[to] = None
        return self.sessions[to].put_unless_full(tree, size, frame, self._settings.queue_bytes_max)

    def put_control(self, to: str, frame: Frame) -> bool:
        """Puts a frame for control on a link that is up or may be resumed; returns whether its queue is too long."""
        session = self.sessions[to]
        if session.is_connected or to in self.down_since:
            self.put(to, CONTROL, frame)
        return to in self.down_since and self.is_overfull(to)

    def is_overfull(self, neighbour: str) -> bool:
        """Returns whether more waits on a link for control than should."""
        return self.sessions[neighbour].waiting(CONTROL) > self._settings.queue_bytes_max

    def find_stuck(self) -> None:
        """Notes the neighbours that have acknowledged nothing from the last call to this one, while too much waited."""
        for hop, session in self.sessions.items():
            progress = (session.sending, session.number_acked)
            if not session.is_connected or not self.is_overfull(hop):
                self._progress.pop(hop, None)
            elif self._progress.get(hop) == progress:
                self.stuck[hop] = None
            else:
                self._progress[hop] = progress

    def put_detour(self, to: str, frame: Detoured) -> bool:
        """Puts detoured events on a link; returns whether it takes them. A detour leaves the tree: it never waits."""
        session = self.sessions[to]
        takes = session.is_connected and session.credit(DETOURS) > 0
        if takes:
            self.put(to, DETOURS, frame)
        return takes

    def is_congested(self, tree: int, source: str, is_full: Callable[[str], bool]) -> bool:
        """Returns whether events from a source may have to wait here. A source waits for other links only, never for
        its own: on a tree no circle of brokers can then wait for each other."""
        high = self._settings.window_bytes
        return any(
            is_full(hop) or (self.sessions[hop].is_connected and self.sessions[hop].waiting(tree) > high)
            for hop in self._neighbours[tree]
            if hop != source
        )

    def congested(self, tree: int, is_full: Callable[[str, int], bool]) -> list[str]:
        """Returns the neighbours on a tree for which events may have to wait here."""
        high = self._settings.window_bytes
        return [
            hop
            for hop in self._neighbours[tree]
            if is_full(hop, tree) or (self.sessions[hop].is_connected and self.sessions[hop].waiting(tree) > high)
        ]

    def output(self, neighbour: str, congested: Callable[[int, str], bool], acknowledges: bool = True) -> list[Written]:
        """Returns what to write to a neighbour now, with the credit of what has gone on; PeerError as in the node."""
        session = self.sessions[neighbour]
        self.unwritten.pop(neighbour, None)
        if neighbour in self.stuck:
            raise PeerError(
                f"{neighbour} acknowledges nothing: {session.waiting(CONTROL)} bytes for control wait for it"
            )
        for tree, size in session.unreleased() if session.has_unreleased else ():
            if tree == DETOURS or not congested(tree, neighbour):
                session.release(tree, size)
        written: list[Written] = [*session.ready()]
        if acknowledges or written or session.owes_credit:
            ack = session.ack()
            if ack is not None:
                self.sent[neighbour]["acks"] += 1
                written.append(ack)
        return written

    def next_timer(self) -> float:
        """Returns when the first link that is down can be resumed no longer."""
        return min(self.down_since.values()) + self._settings.resume_s if self.down_since else inf


def _kind(frame: Frame) -> str:
    """The name under which a frame is counted."""
    if isinstance(frame, DemandFrame) and frame.tree >= MEMBERS:
        return "members"
    if isinstance(frame, DemandUpdate) and frame.tree >= TREES_MAX:
        return "advertisements"
    return _KINDS.get(type(frame), "others")
