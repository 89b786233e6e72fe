"""Processes or threads that share work: they end with their starter, and an interrupt is for the starter alone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any

__all__ = ["worker_pool"]

_ENDS_WITHIN_S = 5.0


@contextmanager
def worker_pool(workers: int, *, threads: bool = False) -> Iterator[Executor]:
    """A pool of processes, or of threads. Whatever ends the block ends processes too, in the middle of their work."""
    before = {process.pid for process in active_children()}
    with ThreadPoolExecutor(workers) if threads else _Pool(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            # Interrupted or failed: running workers would otherwise go on to the end of what they do.
            pool.shutdown(wait=False, cancel_futures=True)
            processes = [process for process in active_children() if process.pid not in before]
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(_ENDS_WITHIN_S)
            raise


class _Pool(ProcessPoolExecutor):
    """Starts its processes with interrupts blocked.

    Ctrl-C goes to all processes of a terminal. A process inherits what is blocked, so that it never hears one, not even
    while it imports; the starter hears of one that came meanwhile right afterwards.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
