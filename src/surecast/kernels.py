"""The compiler of kernels. The first that has to be compiled is announced, because the user waits for it.

Machine code of a checkout is kept beside the source, or in the cache folder of the user (`$XDG_CACHE_HOME/numba`, by
default `~/.cache/numba`) where that is not writable. An installed wheel keeps it in a folder of its own for each
installation, `~/.cache/surecast/VERSION-DIGEST`: Numba compares a kernel's own file only, so after an upgrade it would
go on using machine code whose callees or constants are those of the version before. `NUMBA_CACHE_DIR` names another
folder than `~/.cache/...`.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
from numba.core import config, event

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


def _installation() -> str | None:
    """Returns version and digest of the installed wheel that this file belongs to, or None for a checkout."""
    try:
        installed = metadata.distribution("surecast")
    except metadata.PackageNotFoundError:
        return None
    # The list that pip writes has the digest of every file, and for a checkout none of the package's.
    record = (installed.read_text("RECORD") or "").splitlines()
    sources = sorted(line for line in record if line.startswith("surecast/") and ".py," in line)
    if not sources or Path(str(installed.locate_file("surecast/kernels.py"))).resolve() != Path(__file__).resolve():
        return None
    digest = hashlib.sha256("\n".join(sources).encode()).hexdigest()
    return f"{installed.version}-{digest[:12]}"


def _cache_folder() -> Path | None:
    """Returns the folder for the machine code of this installation, or None where Numba finds one itself."""
    installation = _installation()
    if installation is None:
        return None
    named = config.CACHE_DIR  # type: ignore[attr-defined]
    base = named or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "surecast", installation)


_CACHE_FOLDER = _cache_folder()


def _njit(**options: Any) -> Callable[[Any], Any]:
    """Returns Numba's decorator of the same name; compiled kernels are kept for this installation alone."""

    def compiled(function: Any) -> Any:
        before = config.CACHE_DIR  # type: ignore[attr-defined]
        # Read when a function is decorated, and shared with whoever else uses Numba in this process.
        config.CACHE_DIR = before if _CACHE_FOLDER is None else str(_CACHE_FOLDER)  # type: ignore[attr-defined]
        try:
            return numba.njit(**options)(function)
        finally:
            config.CACHE_DIR = before  # type: ignore[attr-defined]

    return compiled


if TYPE_CHECKING:
    from numba import njit
else:
    njit = _njit

event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]
