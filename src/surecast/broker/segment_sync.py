"""The thread of a store that syncs what commits do not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Syncer"]


class Syncer:
    """Calls `sync` again and again in a thread of its own."""

    def __init__(self, sync: Callable[[], None], every_s: float):
        self._sync = sync
        self._every_s = every_s
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="surecast-sync", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """Has the next sync come now."""
        self._wake.set()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._every_s)
            self._wake.clear()
            if not self._stopping:
                self._sync()
