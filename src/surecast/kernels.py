"""The compiler of kernels. The first that has to be compiled is announced, because the user waits for it.

Machine code is kept beside the source, or in the cache folder of the user (`$XDG_CACHE_HOME/numba`, by default
`~/.cache/numba`) where that is not writable; `NUMBA_CACHE_DIR` names another folder.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

from numba import njit
from numba.core import event

__all__ = ["njit"]

_NOTICE = "compiling kernels, once: about 10 s for a prediction, up to a minute for a simulation"


class _Announcer(event.Listener):
    """Says once, to whoever looks at a terminal, that kernels are compiled; processes that share work say nothing."""

    def __init__(self) -> None:
        self._has_spoken = False

    def on_start(self, _event: Any) -> None:
        """Announces the first compilation."""
        if self._has_spoken or multiprocessing.parent_process() is not None or not sys.stderr.isatty():
            return
        self._has_spoken = True
        print(_NOTICE, file=sys.stderr, flush=True)  # noqa: T201

    def on_end(self, _event: Any) -> None:
        """Needs nothing."""


event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]
