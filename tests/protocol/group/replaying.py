"""Applies a log that was written to a file, as another process: prints its effects, and the state at its end."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from surecast.protocol.broker import BrokerCore, BrokerSettings
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import GroupMachine
from surecast.protocol.paxos import Context

__all__ = ["replay"]

Log = Sequence[tuple[int, bytes]]


def _at_depth(frames: int, call: Callable[[], object]) -> None:
    if frames <= 0:
        call()
    else:
        _at_depth(frames - 1, call)


def replay(
    log: Log, depth_of: Callable[[int], int] = lambda slot: 0, start: int = 0, state: bytes = b""
) -> tuple[dict[int, bytes], bytes]:
    """The effects of each instance from `start` on, which begins with a state, and the state at the end.

    `depth_of` says how many frames are on the stack for an instance.
    """
    machine = GroupMachine(
        9, lambda authorise: BrokerCore(BrokerSettings(), authorise=authorise, journal=NoJournal(), watches=False)
    )
    machine.restore(state)
    effects: dict[int, bytes] = {}
    for slot, (time_us, command) in enumerate(log[start:], start + 1):
        context = Context(slot, time_us)
        _at_depth(depth_of(slot), lambda command=command, context=context: machine.execute(command, context))
        effects[slot] = machine.effects(slot)
    return effects, machine.snapshot()


if __name__ == "__main__":
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(int(sys.argv[2]))
    sys.setrecursionlimit(int(sys.argv[3]))
    told, last = replay(pickle.loads(Path(sys.argv[1]).read_bytes()))
    sys.stdout.write(f"{sha256(b''.join(told.values())).hexdigest()} {sha256(last).hexdigest()}\n")
