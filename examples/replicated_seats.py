"""Seats of a hall, booked once each: a state machine to replicate, and a client of it.

python examples/replicated_seats.py 127.0.0.1:7101 127.0.0.1:7102 -- book 12 ann
"""

from __future__ import annotations

import json
import sys

from surecast.client.replicated import dial_sync
from surecast.protocol.paxos import Context


class Seats:
    """Who has which seat. The same commands in the same order give the same state and replies everywhere."""

    def __init__(self) -> None:
        self.taken: dict[str, str] = {}

    def execute(self, command: bytes, context: Context) -> bytes:
        """Carries out `book SEAT NAME` or `list`; it must never raise."""
        match command.decode(errors="replace").split():
            case ["book", seat, name]:
                holder = self.taken.setdefault(seat, name)
                return f"seat {seat} is {holder}'s".encode()
            case ["list"]:
                return json.dumps(self.taken, sort_keys=True).encode()
            case _:
                return b"say: book SEAT NAME, or list"

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""
        return json.dumps(self.taken, sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        """Replaces the state by that of a snapshot; empty bytes are the initial state."""
        self.taken = json.loads(state) if state else {}


def main() -> None:
    """Sends one command to the group."""
    addresses, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    with dial_sync(addresses) as connection:
        reply = connection.send_request(" ".join(command).encode())
    sys.stdout.write(reply.decode() + "\n")


if __name__ == "__main__":
    main()
