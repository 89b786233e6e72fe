"""Folders and files that only their owner can read: state, event logs, secrets, backups.

What is made here has its mode from the beginning, whatever the umask: there is no moment in which others could open it.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final, Literal

from surecast.errors import ConfigurationError, FileError

__all__ = [
    "OTHERS",
    "SECRET_BYTES_MIN",
    "make_private",
    "open_file",
    "open_private",
    "read_secret",
    "write_private",
]

OTHERS: Final = 0o077
SECRET_BYTES_MIN: Final = 16
_FOLDER: Final = 0o700
_FILE: Final = 0o600


def make_private(folder: Path) -> str:
    """Makes a folder, and those above it, for its owner only, so that they are there after a loss of power too.

    A folder that is there and that others can enter is closed to them where it is empty or holds a state of surecast.
    Another one stays as it is, and the text that is returned warns of it by name. OSError where it cannot be made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     make_private(Path(name) / "state" / "broker")
    ...     oct((Path(name) / "state").stat().st_mode & 0o777)
    ''
    '0o700'
    """
    missing = []
    above = folder
    while not above.exists():
        missing.append(above)
        above = above.parent
    for each in reversed(missing):
        each.mkdir(_FOLDER, exist_ok=True)
        handle = os.open(each.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, "a file, not a folder; choose another name", str(folder))
    if missing or not found.st_mode & OTHERS:
        return ""
    names = [path.name for path in folder.iterdir()]
    is_ours = not names or any(name == "mark" or name.startswith("events-") for name in names)
    if is_ours and found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX:
        folder.chmod(_FOLDER)
        for path in folder.iterdir():
            if path.is_file() and not path.is_symlink():
                path.chmod(_FILE)
        return ""
    return f"{folder}: other users can look into this folder; run: chmod 700 {folder}"


def open_private(path: Path | str, flags: int) -> int:
    """Opens a file, or makes it for its owner only; closes one that others can read to them."""
    file = os.open(path, flags | os.O_CLOEXEC, _FILE)
    found = os.fstat(file)
    if found.st_mode & OTHERS and found.st_uid == os.geteuid() and stat.S_ISREG(found.st_mode):
        os.fchmod(file, _FILE)
    return file


def write_private(path: Path, data: str | bytes) -> None:
    """Writes a file for its owner only, so that a reader finds the old one or the whole new one."""
    final = Path(os.path.realpath(path))
    temporary = final.with_name(f".{final.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with open_file(temporary, "xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(final)
    except OSError as error:
        raise FileError(f"cannot be written: {error.strerror or error}", str(path)) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def open_file(path: Path, mode: Literal["ab", "xb"]) -> FileIO:
    """Opens a file for its owner only, to append to it, or to write a new one."""
    return FileIO(path, mode, opener=open_private)


def read_secret(path: Path) -> bytes:
    """Returns the secret in a file, without white space at its ends; ConfigurationError where others may read it."""
    try:
        mode = path.stat().st_mode
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    if mode & OTHERS:
        raise ConfigurationError(f"{path}: others may read it; run chmod 600 {path}")
    if not secret:
        raise ConfigurationError(f"{path}: it is empty")
    return secret
