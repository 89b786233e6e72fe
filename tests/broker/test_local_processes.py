"""Processes of this machine that are watched: which are started again, which stay down, and which are not ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from surecast.broker.local_processes import LocalProcesses
from surecast.errors import ConfigurationError

SHELLS = {"sleeps": "exec sleep 60", "fails": "echo its disk is lost; exit 3"}


class Shells(LocalProcesses[str]):
    """Shells that sleep or fail; some are said to be run by somebody else."""

    KIND = "shell"
    COMMAND = "shells"

    def __init__(self, folder: Path, others: tuple[str, ...] = ()):
        super().__init__(folder)
        self.command = ["sh", "-c"]
        self.others = others

    @property
    def names(self) -> list[str]:
        return list(SHELLS)

    def arguments(self, name: str) -> list[str]:
        return [SHELLS[name]]

    def state_folder(self, name: str) -> Path:
        return self._folder / name

    def running(self) -> list[str]:
        return [name for name in self.names if name in self.others or name in self.processes]


def test_a_killed_process_is_started_again_and_one_that_failed_stays_down(tmp_path: Path) -> None:
    stops: list[int] = []
    with Shells(tmp_path) as shells:
        assert shells.not_running() == ["sleeps", "fails"]
        shells.start()
        killed = shells.processes["sleeps"].pid
        shells.processes["fails"].wait()
        shells.kill("sleeps")
        lines = []
        for line in shells.watch(stops, restarts=True):
            lines.append(line)
            if len(lines) == 2:
                stops.append(15)
        assert lines == [
            "shell sleeps ended with code -9; starting it again",
            "shell fails ended with code 3; it stays down: its disk is lost",
        ]
        assert list(shells.processes) == ["sleeps"]
        assert shells.processes["sleeps"].poll() is None
        assert shells.processes["sleeps"].pid != killed


def test_watching_ends_with_the_last_process(tmp_path: Path) -> None:
    with Shells(tmp_path) as shells:
        shells.start("sleeps")
        shells.kill("sleeps")
        assert list(shells.watch([], restarts=False)) == [
            "shell sleeps ended with code -9; it stays down: it said nothing"
        ]


def test_what_somebody_else_started_is_named_and_not_watched(tmp_path: Path) -> None:
    shells = Shells(tmp_path, others=("sleeps",))
    assert shells.not_running() == ["fails"]
    assert list(shells.watch([], restarts=True)) == [
        "shell sleeps runs already; this command does not restart it if it dies"
    ]
    with pytest.raises(ConfigurationError, match="all shells run already; surecast shells status"):
        Shells(tmp_path, others=("sleeps", "fails")).not_running()
