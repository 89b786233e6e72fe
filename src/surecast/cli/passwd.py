"""`surecast passwd`: the users of a broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["passwd"]


def passwd(
    file: Annotated[Path, typer.Argument(help="Users file; it is created if it does not exist.")],
    user: Annotated[str, typer.Argument(help="Name of the user.")],
    delete: Annotated[bool, typer.Option("--delete", "-D", help="Remove the user.")] = False,
) -> None:
    """Add a user to a users file, or change or remove one. The password is asked for, or read from standard input."""
    from surecast.broker.security import remove_user, set_password

    if delete:
        remove_user(file, user)
        typer.echo(f"{user}: removed")
        return
    is_new = set_password(file, user, _password(user))
    typer.echo(f"{user}: {'added' if is_new else 'password changed'}")


def _password(user: str) -> str:
    import getpass

    from surecast.errors import ConfigurationError

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass(f"Password of {user}: ")
    if first != getpass.getpass("Once more: "):
        raise ConfigurationError("the two passwords differ; nothing was changed")
    return first
