"""`surecast ...`: thin. It parses, calls and prints; a command imports what is slow to import only when it runs."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Runs one command; a mistake of the user becomes a message and a non-zero exit, never a traceback."""
    from surecast.cli.app import app
    from surecast.cli.output import print_error
    from surecast.errors import SurecastError

    try:
        app()
    except SurecastError as error:
        print_error(error)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
