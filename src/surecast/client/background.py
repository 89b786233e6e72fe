"""An event loop in a thread, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """Runs coroutines and waits for them; any thread may ask.

    >>> background = Background()
    >>> background.run(asyncio.sleep(0, "done"))
    'done'
    >>> background.close()
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="surecast-client", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Returns the result of a coroutine; TimeoutError if it takes longer, and then it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Ends the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
