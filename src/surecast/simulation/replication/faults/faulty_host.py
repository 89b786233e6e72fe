"""One simulated machine: a replica with its disk and its clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from surecast.protocol.paxos import ExampleStore, PaxosSettings, Replica, Turn
from surecast.simulation.experiment import Clock, Machine

__all__ = ["EPOCH_S", "FaultyHost"]

EPOCH_S = 1e6
"""The time that right clocks show when the world begins."""


class FaultyHost(Machine):
    """A replica that can crash. What is in `disk` survives; `unsynced` has the commits on their way there.

    `copies` are older copies of the disk. A replica `founds` the group while nothing has reached its disk; `number`
    is what it drew at its last start.
    """

    def __init__(
        self,
        replica: int,
        clock: Clock,
        members: tuple[int, ...],
        token: int,
        settings: PaxosSettings,
        seed: int,
        observer: Callable[[int, int, bytes, bytes], None],
    ):
        super().__init__(clock)
        self.id = replica
        self.members = members
        self.token = token
        self.settings = settings
        self.seed = seed
        self.observer = observer
        self.disk: dict[bytes, bytes] = {}
        self.copies: list[dict[bytes, bytes]] = []
        self.founds = True
        self.number = 0
        self.disk_s = 0.0
        self.is_writing = False
        self.unsynced: deque[Turn] = deque()
        self.replica: Replica | None = None
        self.handler = ExampleStore()
        self.rate = 1.0
        self.offset_s = 0.0
        self.epoch_s = 0.0
        self.is_wrong = False
        self.stalled_until_s = 0.0
        self.wakes_s: float | None = None
        self.is_gone = False

    @property
    def timer_s(self) -> float:
        """The present time on this machine's timer."""
        return self.offset_s + self.clock.now * self.rate

    @property
    def wall_s(self) -> float:
        """The present time on this machine's wall clock."""
        return self.timer_s + self.epoch_s

    def set_clock(self, ahead_s: float) -> None:
        """Sets the wall clock, so that it is ahead of the right time, or behind."""
        self.epoch_s = EPOCH_S - self.offset_s + ahead_s
        if self.replica is not None:
            self.replica.clocks.epoch_s = self.epoch_s

    def time_s(self, timer_s: float) -> float:
        """Returns when this machine's timer shows that."""
        return (timer_s - self.offset_s) / self.rate

    def start(self, number: int) -> Replica:
        """Starts from what is on the disk. ConfigurationError where the replica must not."""
        self.end_incarnation()
        self.stalled_until_s = 0.0
        self.handler = ExampleStore()
        self.number = number

        def observe(slot: int, value: bytes, running: bytes) -> None:
            self.observer(self.id, slot, value, running)

        self.replica = Replica(
            self.id,
            self.handler,
            self.members,
            self.settings,
            records=self.disk.items(),
            token=self.token,
            start=number,
            founds=self.founds,
            seed=self.seed,
            now=self.timer_s,
            epoch_s=self.epoch_s,
            observer=observe,
        )
        self.is_writing = False
        self.wakes_s = None
        return self.replica

    def store(self, turn: Turn) -> None:
        """One commit reaches the disk, whole."""
        self.founds = False
        for key, value in turn.records:
            if value is None:
                self.disk.pop(key, None)
            else:
                self.disk[key] = value

    def crash(self, kept: int) -> None:
        """Everything but the disk is gone, and but the first `kept` of the commits that were on their way."""
        for turn in list(self.unsynced)[:kept]:
            self.store(turn)
        self.unsynced.clear()
        self.replica = None
        self.end_incarnation()
