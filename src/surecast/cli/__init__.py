"""`surecast ...`: thin. It parses, calls and prints; a command imports what is slow to import only when it runs."""

from __future__ import annotations

import io
import sys

__all__ = ["NOTHING_FITS", "main"]

NOTHING_FITS = 3
"""The exit status where a system has no steady state, or no placement keeps all limits."""


def main() -> None:
    """Runs one command; a mistake of the user becomes a message and a non-zero exit, never a traceback."""
    from surecast.cli.app import app
    from surecast.cli.output import print_error
    from surecast.errors import SaturationError, SurecastError

    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is shown escaped, not fatal.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except SurecastError as error:
        print_error(error)
        sys.exit(NOTHING_FITS if isinstance(error, SaturationError) else 1)
    except OSError as error:
        sys.exit(f"error: {error.filename or 'output'}: {error.strerror}")
