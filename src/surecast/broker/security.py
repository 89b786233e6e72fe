"""Users and their passwords, and other secrets in files.

The users file has a line for each user, `NAME:HASH`, with a hash by argon2. A user that does not exist costs as much
time as a wrong password, so that nobody learns which names there are.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from surecast.broker.private import write_private
from surecast.errors import ConfigurationError, FileError

__all__ = [
    "NAME_MAX",
    "Users",
    "UsersFileError",
    "address_of",
    "read_token",
    "read_users",
    "remove_user",
    "set_password",
]

# 19 MiB, two passes: a few hundredths of a second, and no more memory than many checks at once can have.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
_REMEMBERED_MAX = 10_000
NAME_MAX = 200
_FORBIDDEN = set(":\n\r\0")


class UsersFileError(FileError):
    """A users file is wrong or cannot be used."""


def read_users(path: Path) -> dict[str, str]:
    """Names and password hashes of a users file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UsersFileError("there is no such file; make it with: surecast passwd FILE USER", str(path)) from None
    except OSError as error:
        raise UsersFileError(f"cannot be read: {error.strerror}", str(path)) from None
    except UnicodeDecodeError:
        raise UsersFileError("is not UTF-8 text", str(path)) from None
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, digest = line.rstrip().partition(":")
        if not colon or not name or not digest.startswith("$argon2"):
            raise UsersFileError("should be NAME:HASH as surecast passwd writes it", str(path), number)
        if name in users:
            raise UsersFileError(f"the user {name} is given twice", str(path), number)
        users[name] = digest
    return users


def set_password(path: Path, name: str, password: str) -> bool:
    """Adds a user, or gives one a new password; whether the user is new.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "users"
    ...     print(set_password(file, "ann", "correct horse"), set_password(file, "ann", "battery staple"))
    True False
    """
    if not name or len(name) > NAME_MAX or name.startswith("#") or _FORBIDDEN & set(name) or name != name.strip():
        raise ConfigurationError(
            f"{name!r} cannot be a user's name: it has 1 to {NAME_MAX} characters, no colon, no line break, no space "
            "at its ends, and does not begin with #"
        )
    if not password:
        raise ConfigurationError("the password is empty; give one")
    users = read_users(path) if path.exists() else {}
    is_new = name not in users
    users[name] = _HASHER.hash(password)
    _write(path, users)
    return is_new


def remove_user(path: Path, name: str) -> None:
    """Takes a user out of a users file."""
    users = read_users(path)
    if name not in users:
        raise UsersFileError(f"there is no user {name}", str(path))
    del users[name]
    _write(path, users)


def _write(path: Path, users: Mapping[str, str]) -> None:
    try:
        write_private(path, "".join(f"{name}:{digest}\n" for name, digest in users.items()))
    except FileError as error:
        raise UsersFileError(error.message, error.file) from None


def read_token(path: Path) -> str:
    """The token of a file, which is made if it is not there."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32) + "\n")
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"{path} can be read by others; run: chmod 600 {path}")
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: the token cannot be read: {error}") from None
    if len(token) < 16:
        raise ConfigurationError(f"{path}: the token is shorter than 16 characters; remove the file to get a new one")
    return token


class Users:
    """The users of a file, and a memory of the passwords that were right, so that a reconnection costs little.

    `verify` may be called from several threads. What is remembered is a keyed digest of name, hash and password: it is
    of no use to anybody else, and not even here once the user has another hash.
    """

    def __init__(self, digests: Mapping[str, str]):
        self._digests = dict(digests)
        self._key = secrets.token_bytes(32)
        self._nobody = _HASHER.hash(secrets.token_hex(16))
        self._remembered: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    def replace(self, digests: Mapping[str, str]) -> None:
        """Takes new users in place of the present ones."""
        with self._lock:
            self._digests = dict(digests)

    def remembers(self, name: str, password: bytes) -> bool:
        """Returns whether a user is known to have this password; that costs microseconds. False says nothing."""
        digest = self._digests.get(name)
        if digest is None:
            return False
        mark = self._mark(name, digest, password)
        with self._lock:
            if mark not in self._remembered:
                return False
            self._remembered.move_to_end(mark)
        return True

    def _mark(self, name: str, digest: str, password: bytes) -> bytes:
        return hmac.digest(self._key, f"{name}\0{digest}\0".encode() + password, hashlib.sha256)

    def verify(self, name: str, password: bytes) -> bool:
        """Returns whether a user has this password."""
        if self.remembers(name, password):
            return True
        digest = self._digests.get(name)
        try:
            _HASHER.verify(digest or self._nobody, password)
        except (Argon2Error, InvalidHashError):
            return False
        if digest is None:
            return False
        with self._lock:
            if self._digests.get(name) == digest:
                self._remembered[self._mark(name, digest, password)] = None
                if len(self._remembered) > _REMEMBERED_MAX:
                    self._remembered.popitem(last=False)
        return True


def address_of(peer: str) -> str:
    """The address without its port.

    >>> address_of("[::1]:1883"), address_of("10.0.0.7:40000"), address_of("local socket")
    ('::1', '10.0.0.7', 'local socket')
    """
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isdigit():
        return peer
    return host.removeprefix("[").removesuffix("]")
