"""The commands of `surecast`: they parse, call and print; what is slow to import is imported when a command runs."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NOTHING_FITS", "main"]

NOTHING_FITS = 3
"""The exit status where a system has no steady state, or no placement keeps all limits."""

_COMPUTES = frozenset(("advise", "compare", "drop", "predict", "report", "scenario", "simulate", "sweep"))
"""Commands that have nothing to see to when they are interrupted. The others hear Ctrl-C in their own way."""
_AGAIN_S = 1.0
_SOON_S = 0.05


def main() -> None:
    """Runs one command; a mistake of the user, or an interrupt, becomes a message and a non-zero exit.

    Ctrl-C and SIGTERM end a command wherever it is, also while it imports: one line, and 128 plus the signal's number.
    """
    with _interrupts() as heard:
        try:
            _run()
        except BaseException as error:
            # Libraries wrap an interrupt that comes while they import, or answer it with an error of their own.
            if not heard and not _is_interruption(error):
                raise
            _leave(heard)


def _run() -> None:
    # Pydantic would look for plugins among all installed packages, at every start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from surecast.cli.app import app
    from surecast.errors import SaturationError, SurecastError
    from surecast.extras import missing_extra

    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is shown escaped, not fatal.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except SurecastError as error:
        from surecast.cli.output import print_error  # a broker that starts needs no coloured text

        print_error(error)
        sys.exit(NOTHING_FITS if isinstance(error, SaturationError) else 1)
    except ModuleNotFoundError as error:
        message = missing_extra(error.name)
        if message is None:
            raise
        sys.exit(f"error: {message}")
    except OSError as error:
        sys.exit(f"error: {error.filename or 'output'}: {error.strerror}")


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Lets SIGTERM interrupt a command as Ctrl-C does; servers have handlers of their own. Yields what was heard.

    Libraries that compile or import sometimes swallow an interrupt. Where a command only computes it is repeated until
    the command ends.
    """
    heard: list[int] = []
    numbers = [signal.SIGTERM, *([signal.SIGINT] if _COMPUTES.intersection(sys.argv[1:2]) else [])]

    def interrupt(number: int, _frame: object) -> None:
        heard.append(number)
        if signal.SIGINT in numbers:
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        raise KeyboardInterrupt

    try:
        before = {number: signal.signal(number, interrupt) for number in numbers}
    except ValueError:  # only the main thread hears signals
        yield heard
        return
    hook = sys.unraisablehook

    def unraisable(event: sys.UnraisableHookArgs) -> None:
        """Raises an interrupt again, soon, that came where nothing can be raised, as in a destructor, or here."""
        if issubclass(event.exc_type, KeyboardInterrupt):
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, _SOON_S)
        else:
            hook(event)

    sys.unraisablehook = unraisable
    try:
        yield heard
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            if signal.getsignal(number) is interrupt:  # a server that has stopped ignores further signals
                signal.signal(number, handler)


def _is_interruption(error: BaseException) -> bool:
    """Returns whether an interrupt is at the bottom of an error: libraries wrap one that comes while they import.

    A command that says itself what is kept after an interrupt exits `from None`, and has said all.
    """
    cause: BaseException | None = error
    for _ in range(50):
        if cause is None:
            return False
        if isinstance(cause, KeyboardInterrupt):
            return True
        cause = cause.__cause__ if cause.__suppress_context__ else cause.__context__
    return False


def _leave(heard: list[int]) -> None:
    """Says that the command was interrupted, and exits; further interrupts do not disturb that."""
    number = heard[0] if heard else signal.SIGINT
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(each, signal.SIG_IGN)
    print("interrupted", file=sys.stderr, flush=True)  # noqa: T201
    sys.exit(128 + number)
