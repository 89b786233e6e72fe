"""Checks that hold for every run, whatever went wrong in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from surecast.errors import SurecastError
from surecast.protocol.paxos.log_values import segments_of, walk

__all__ = ["AppliedLog", "Operation", "Violation", "check_histories", "check_time"]


class Violation(SurecastError):  # noqa: N818
    """A run broke a property; the message names it."""


@dataclass(slots=True)
class Operation:
    """A command of a client with the time of its request, and the reply with its time."""

    client: int
    sequence: int
    command: bytes
    asked_s: float
    answered_s: float = -1.0
    reply: bytes = b""

    @property
    def is_answered(self) -> bool:
        """True if the client knows the outcome."""
        return self.answered_s >= 0


class AppliedLog:
    """All that was submitted and all that any replica applied: agreement, validity and the running hash."""

    def __init__(self) -> None:
        self.submitted: dict[tuple[int, int], bytes] = {}
        self.values: dict[int, bytes] = {}
        self.hashes: dict[int, bytes] = {}

    def applied(self, replica: int, slot: int, value: bytes, running: bytes) -> None:
        """A replica applied an instance; the first one says what all others must apply there."""
        first_value = self.values.setdefault(slot, value)
        if first_value != value:
            raise Violation(f"agreement: replica {replica} applies another value at {slot} than others did")
        if self.hashes.setdefault(slot, running) != running:
            raise Violation(f"running hash: replica {replica} has another prefix up to {slot} than others")

    def replay(self) -> Replay:
        """Applies the log once more, in the simplest way."""
        return Replay(self)


class Replay:
    """A second, deliberately plain state machine: no windows, no snapshots, every identity once."""

    def __init__(self, applied_log: AppliedLog):
        self.pairs: dict[bytes, bytes] = {}
        self.replies: dict[tuple[int, int], bytes] = {}
        self.places: dict[tuple[int, int], int] = {}
        for slot in range(1, max(applied_log.values, default=0) + 1):
            if slot not in applied_log.values:
                raise Violation(f"agreement: instance {slot} was applied by nobody, but later ones were")
            value = applied_log.values[slot]
            for _, _, offset in segments_of(value):
                for client, sequence, begin, end in walk(value, offset):
                    if client:
                        self._execute(applied_log, client, sequence, value[begin:end])

    def _execute(self, applied_log: AppliedLog, client: int, sequence: int, command: bytes) -> None:
        key = (client, sequence)
        if applied_log.submitted.get(key) != command:
            raise Violation(f"validity: request {key} was applied, but nobody sent it like that")
        if key not in self.replies:
            self.places[key] = len(self.places)
            self.replies[key] = self._answer(command)

    def _answer(self, command: bytes) -> bytes:
        fields, offset = [], 1
        while offset < len(command):
            size = int.from_bytes(command[offset : offset + 4], "big")
            fields.append(command[offset + 4 : offset + 4 + size])
            offset += 4 + size
        key, before = fields[0], self.pairs.get(fields[0])
        if command[:1] == b"g":
            return b"-" if before is None else b"+" + before
        if command[:1] == b"i":
            self.pairs[key] = b"%d" % (int(before or b"0") + int(fields[1]))
            return b"+" + self.pairs[key]
        if command[:1] == b"c" and (before or b"") != fields[1]:
            return b"!" + (before or b"")
        self.pairs[key] = fields[-1]
        return b"+"


def check_histories(replay: Replay, operations: Iterable[Operation]) -> None:
    """Acknowledged means chosen, once, with that reply, and in an order that no client can tell from real time.

    The log is one order of all operations, and each reply is the one of that order. It is a linearization if nothing
    stands before something that was answered before it was asked.
    """
    answered = [operation for operation in operations if operation.is_answered]
    for operation in answered:
        key = (operation.client, operation.sequence)
        if key not in replay.places:
            raise Violation(f"durability: request {key} was answered, but is not in the log")
        if replay.replies[key] != operation.reply:
            raise Violation(
                f"exactly once: request {key} was answered {operation.reply!r}; the log gives {replay.replies[key]!r}"
            )
    by_answer = sorted(answered, key=lambda operation: operation.answered_s)
    latest, index = -1, 0
    for operation in sorted(answered, key=lambda operation: operation.asked_s):
        while index < len(by_answer) and by_answer[index].answered_s < operation.asked_s:
            latest = max(latest, replay.places[by_answer[index].client, by_answer[index].sequence])
            index += 1
        if replay.places[operation.client, operation.sequence] < latest:
            raise Violation(
                f"linearizability: request {(operation.client, operation.sequence)} stands before one that was "
                f"answered before it was asked"
            )


def check_time(whose: str, time_s: float, earliest_s: float, latest_s: float, slack_s: float) -> None:
    """The group's time is between the slowest and the fastest of a majority of right clocks, whatever others show."""
    if time_s > latest_s + slack_s:
        raise Violation(f"time: {whose} is {time_s - latest_s:.3f} s ahead of the latest right clock")
    if time_s < earliest_s - slack_s:
        raise Violation(f"time: {whose} is {earliest_s - time_s:.3f} s behind the earliest right clock")
