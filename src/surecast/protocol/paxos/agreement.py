"""Agreement on effects between replicas: the running hash over them is compared, by log position.

The log makes the inputs of all replicas equal. What they make of them may still differ: by a fault of the memory, of
the interpreter, or of the program. Each replica remembers its hash of effects at *checkpoints* of the log, and tells
the others of one with every heartbeat. Since the hash runs, replicas that are equal at an instance were equal at all
before it, and once they differ they do so for ever.

Whoever differs from a majority discards its state and takes that of the majority; its promises and votes are sound,
because inputs are agreed on, and stay. Where no majority agrees, nobody is right by default: all raise an alarm, and
none passes its state on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Checkpoint

__all__ = ["Agreement"]

_REPORTS_MAX: Final = 8
_PATIENCE: Final = 20
"""Heartbeats to wait for the word of a replica that may be down, before those that differ say that nobody decides."""


class Agreement:
    """The comparison of one replica with the others. `alarm` says what is wrong; it is empty where nothing is.

    `compared` is the last instance at which a majority was found equal, and nobody else was heard. `notices` are lines
    for a log that nobody has taken yet. `discard` is called with the replicas of a majority that this one differs from.
    """

    def __init__(self, node: Node, discard: Callable[[frozenset[int]], None]):
        self._node = node
        self._discard = discard
        self._reports: dict[int, dict[int, bytes]] = {}  # of each other replica: effects by instance
        self._wanted = 0  # the instance that the leader told of, so that all tell of the same
        self._pending: set[int] = set()  # instances of which somebody told something new
        self._waiting: set[int] = set()  # those at which the word of another may decide
        self._undecided = 0  # for how many heartbeats nobody has had a majority
        self._alarm_slot = 0
        self._apart: frozenset[int] = frozenset()  # whom the alarm is about
        self._replay_alarm = ""
        self._alarm = ""
        self.compared = 0
        self.notices: list[str] = []

    @property
    def alarm(self) -> str:
        """Returns what is wrong; empty where nothing is known to be."""
        return "; ".join(text for text in (self._alarm, self._replay_alarm) if text)

    @property
    def is_doubtful(self) -> bool:
        """Returns whether another replica differs, and no majority says that this one is right."""
        if self._waiting:
            return True
        own = self._node.id
        # Where all others that differ are being replaced, this one was said to be right: who joins needs its state.
        members = self._node.membership.configurations[-1].ids
        return own in self._apart and self._apart.intersection(members) != {own}

    def tick(self) -> None:
        """Tells the others of a checkpoint, and compares what they told of instances that are reached by now."""
        node = self._node
        checkpoints = node.machine.checkpoints
        if node.blank or not checkpoints:
            return
        is_wanted = self._wanted in checkpoints and node.leader_id != node.id
        slot = self._wanted if is_wanted else next(reversed(checkpoints))
        for other in node.others():
            node.send(other, Checkpoint(slot, checkpoints[slot]))
        self._waiting.clear()
        for told in sorted(told for told in self._pending if told <= node.applied):
            self._pending.discard(told)
            if not node.blank:
                self._judge(told)
        if self._waiting:
            self._undecided += 1
            self._pending |= self._waiting

    def on_checkpoint(self, sender: int, message: Checkpoint) -> None:
        """Remembers what another replica tells, the last few."""
        if sender == self._node.leader_id:
            self._wanted = message.slot
        reports = self._reports.setdefault(sender, {})
        if reports.get(message.slot) == message.effects:
            return
        reports[message.slot] = message.effects
        self._pending.add(message.slot)
        while len(reports) > _REPORTS_MAX:
            oldest = min(reports)
            del reports[oldest]
            self._pending.discard(oldest)

    def replayed(self, slot: int, before: bytes) -> None:
        """The own log was applied again; before the start it had led to these effects."""
        effects = self._node.machine.effects
        if before and before != effects:
            self._replay_alarm = (
                f"replica {self._node.id} applied its log again up to instance {slot}, with other effects "
                f"({effects.hex()[:8]} instead of {before.hex()[:8]}): what it said before may be wrong"
            )
            self.notices.append(self._replay_alarm)

    def restored(self) -> None:
        """The state was replaced by that of another replica: what was told before does not concern it."""
        self._alarm = self._replay_alarm = ""
        self._alarm_slot, self._apart = 0, frozenset()

    def _judge(self, slot: int) -> None:
        """Compares the effects that are known of an instance."""
        node = self._node
        own = node.machine.checkpoints.get(slot)
        if own is None:
            return
        members = node.membership.ids()
        effects = {one: reports[slot] for one, reports in self._reports.items() if slot in reports and one in members}
        effects[node.id] = own
        (most, count), *others = Counter(effects.values()).most_common()
        if not others:
            if count > len(members) // 2:
                self._undecided = 0
                self.compared = max(self.compared, slot)
                if slot > self._alarm_slot and self._apart.intersection(members) <= effects.keys():
                    if self._alarm:
                        self.notices.append(f"the replicas are equal again at instance {slot}")
                    self._alarm, self._apart = "", frozenset()
        elif count > len(members) // 2:
            self._undecided = 0
            if slot >= self._alarm_slot:
                self._differ(slot, effects, frozenset(one for one in effects if effects[one] == most))
        elif len(effects) < len(members) and self._undecided < _PATIENCE:
            self._waiting.add(slot)
        elif slot >= self._alarm_slot:
            self._differ(slot, effects, frozenset())

    def _differ(self, slot: int, effects: dict[int, bytes], majority: frozenset[int]) -> None:
        node = self._node
        self._alarm_slot = slot
        before, self._apart = self._apart, frozenset(effects) - majority
        if not majority:
            hashes = ", ".join(f"replica {one}: {effects[one].hex()[:8]}" for one in sorted(effects))
            self._alarm = (
                f"the replicas differ at instance {slot}, and no majority agrees ({hashes}): decide whose state is "
                "right, and replace the others"
            )
        elif node.id in majority:
            names = " and ".join(f"replica {one}" for one in sorted(self._apart))
            self._alarm = f"{names} differs from the majority at instance {slot}"
        else:
            self._alarm = (
                f"replica {node.id} differs from the majority at instance {slot}: it discards its state, and takes "
                f"that of replica {' or '.join(map(str, sorted(majority)))}"
            )
            self._discard(majority)
        if before != self._apart or node.blank:
            self.notices.append(self._alarm)
