"""Admission to the group: a replica that starts is checked against what the others remember of it.

A replica whose disk was set back to an older copy has forgotten promises and votes, and two values could be chosen for
one instance. Its incarnation alone does not tell: a copy from before the last start counts up to the same number, and a
later copy looks like an ordinary restart. So each start draws a number at random, the *start number*; and every replica
remembers of every other its last start and the highest promise and vote that it said it has stored.

A replica that starts sends `Rejoin` to all others. Each answers `Admit`, or `Refuse` where what is told contradicts
what is remembered. It votes, promises and campaigns once a majority, itself included, has admitted it, and
all others have, or had `suspect_s` for their answer. One that is refused stops for good, even later. So only one that
is admitted itself may refuse: else a single disk of another history would stop all others.

Whoever counts votes counts those of admitted starts only: messages of a start that was not admitted are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from surecast.protocol.paxos.incarnations import HistoryError, Incarnation, Objection, Reason, Seen, objection_to
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Admit, Refuse, Rejoin

__all__ = ["Admission"]


class Admission:
    """Checks the others when they start, and has this replica checked by them.

    `starts` has the admitted start of each replica. `notices` are lines for a log that nobody has taken yet. Where the
    own start number is 0 nobody is checked: for simulations of load and tests in which no disk is lost.
    """

    def __init__(self, node: Node, incarnation: Incarnation, seen: Mapping[int, Seen]):
        self._node = node
        self._incarnation = incarnation
        self._seen = dict(seen)
        self.starts = {replica: each.start for replica, each in self._seen.items()}
        self.is_admitted = not incarnation.start
        self._admitted_by: set[int] = set()
        self.notices: list[str] = []
        self._guests: set[int] = set()  # replicas that are no members, and introduced themselves
        self._began_s = self._asked_s = self._stored_s = node.now
        self._unstored: set[int] = set()
        self._objected: dict[int, int] = {}  # the last start of each replica that was told something against
        if incarnation.start:
            self._ask()

    def seen(self, replica: int) -> Seen:
        """Returns what is remembered of a replica."""
        return self._seen.get(replica) or Seen()

    def saw(self, replica: int, promised: int, voted: int) -> None:
        """An admitted replica says that it has stored this promise, and a vote on this instance."""
        seen = self._seen.get(replica)
        if seen is None:
            return
        if voted > seen.voted:
            seen.voted = voted
            self._unstored.add(replica)
        if promised > seen.promised:
            seen.promised = promised
            self._unstored.add(replica)

    def tick(self) -> None:
        """Asks again whoever has not answered, and stores what was seen.

        What was seen is stored every `suspect_s`: with records that are stored anyway while the group works.
        """
        node = self._node
        if not self._incarnation.start:
            return
        if node.now - self._asked_s >= node.settings.resend_s:
            self._ask()
        if self._unstored and node.now - self._stored_s >= node.settings.suspect_s:
            self._stored_s = node.now
            for replica in sorted(self._unstored):
                self._store(replica)
            self._unstored.clear()

    def settle(self) -> bool:
        """Returns whether this replica may take part from now on, and might not before."""
        node = self._node
        if self.is_admitted or not node.membership.has_quorums({node.id, *self._admitted_by}):
            return False
        is_waiting = not self._admitted_by.issuperset(node.others())
        if is_waiting and node.now - self._began_s < node.settings.suspect_s:
            return False
        self.is_admitted = True
        return True

    def excuse(self, late_s: float) -> None:
        """Gives the others time anew: this replica did not run for so long, and a refusal may be there unread."""
        self._began_s = min(self._node.now, self._began_s + late_s)

    def on_rejoin(self, sender: int, message: Rejoin) -> None:
        """Admits another replica, once that is durable, or objects to it."""
        node, told = self._node, Incarnation(message.incarnation, message.starts, message.promised, message.voted)
        objection = objection_to(told, self.seen(sender)) or self._other_log(message.slot, message.hash)
        if objection is not None:
            self._object(sender, told.start, objection)
            return
        if self.seen(sender).start != told.start:
            self._seen[sender] = Seen(told.number, told.start, told.promised, told.voted)
            self.starts[sender] = told.start
            self._store(sender)
            self._admitted_by.discard(sender)  # what it remembers of this replica may be another thing now
            self._guests.add(sender)
            node.send(sender, self._rejoin())
        node.send_after(sender, Admit(told.start, *self._last_hash()))

    def _object(self, sender: int, start: int, objection: Objection) -> None:
        """Refuses a replica, unless this one is not admitted itself: then its own memory may be what is wrong."""
        self._node.count("replicas refused")
        if self._objected.get(sender) != start:
            self._objected[sender] = start
            self.notices.append(f"replica {self._node.id} does not take replica {sender} back: {objection}")
        if self.is_admitted:
            self._node.send(sender, Refuse(start, *objection))

    def on_admit(self, sender: int, message: Admit) -> None:
        """Counts who admitted this start. HistoryError where the other one has another log."""
        if message.start != self._incarnation.start:
            return
        objection = self._other_log(message.slot, message.hash)
        if objection is not None:
            raise self._error(sender, objection)
        self._admitted_by.add(sender)
        self._guests.discard(sender)

    def on_refuse(self, sender: int, message: Refuse) -> None:
        """Stops this replica by HistoryError, unless an earlier start is meant."""
        if message.start == self._incarnation.start:
            raise self._error(sender, Objection(Reason(message.reason), message.seen, message.told))

    def _last_hash(self) -> tuple[int, bytes]:
        """Returns the last checkpoint, and the running hash there."""
        hashes = self._node.machine.hashes
        slot = next(reversed(hashes), 0)
        return slot, hashes.get(slot, bytes(16))

    def _other_log(self, slot: int, running: bytes) -> Objection | None:
        """Compares the running hashes at an instance, where it is known here."""
        own = self._node.machine.hashes.get(slot)
        return None if own is None or own == running else Objection(Reason.OTHER_LOG, slot, slot)

    def _error(self, sender: int, objection: Objection) -> HistoryError:
        own = self._node.id
        return HistoryError(
            f"replica {own}: replica {sender} does not take it back: {objection}. Its data were set back to an older "
            "copy, or belong to another history; were it let in, acknowledged messages could be lost"
        )

    def _rejoin(self) -> Rejoin:
        incarnation = self._incarnation
        return Rejoin(
            incarnation.number, incarnation.promised, incarnation.voted, *self._last_hash(), incarnation.starts
        )

    def _ask(self) -> None:
        self._asked_s = self._node.now
        for other in sorted({*self._node.others(), *self._guests} - self._admitted_by):
            self._node.send(other, self._rejoin())

    def _store(self, replica: int) -> None:
        self._node.journal.seen(replica, self._seen[replica])
