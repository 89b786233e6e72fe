"""Who clients are: users with passwords, and certificates that name a client.

The users file has a line for each user, `NAME:HASH`, with a hash by argon2. Passwords are checked in threads of their
own. A user that does not exist costs as much time as a wrong password, so that nobody learns which names there are, and
an address with too many failures waits.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from surecast.broker.private import write_private
from surecast.errors import ConfigurationError, FileError
from surecast.protocol.broker import Origin
from surecast.protocol.mqtt import Connect

__all__ = [
    "Authenticator",
    "FailureTable",
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
_NAME_MAX = 200
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
    if not name or len(name) > _NAME_MAX or name.startswith("#") or _FORBIDDEN & set(name) or name != name.strip():
        raise ConfigurationError(
            f"{name!r} cannot be a user's name: it has 1 to {_NAME_MAX} characters, no colon, no line break, no space "
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


class FailureTable:
    """Failed attempts by address: after `failures_max` within `window_s` an address waits until the window is over.

    The table is bounded; when it is full, the address that failed longest ago is forgotten.

    >>> table = FailureTable(failures_max=2, window_s=60.0)
    >>> table.add("10.0.0.7", 0.0), table.add("10.0.0.7", 1.0)
    (None, None)
    >>> table.is_blocked("10.0.0.7", 2.0), table.is_blocked("10.0.0.7", 60.0)
    (True, False)
    """

    def __init__(self, failures_max: int = 20, window_s: float = 60.0, addresses_max: int = 10_000):
        self._failures_max = failures_max
        self._window_s = window_s
        self._addresses_max = addresses_max
        self._table: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def add(self, address: str, now: float) -> None:
        """Counts a failure."""
        count, since = self._table.pop(address, (0, now))
        if now - since >= self._window_s:
            count, since = 0, now
        self._table[address] = (count + 1, since)
        if len(self._table) > self._addresses_max:
            self._table.popitem(last=False)

    def is_blocked(self, address: str, now: float) -> bool:
        """Whether an address has to wait."""
        count, since = self._table.get(address, (0, now))
        return count >= self._failures_max and now - since < self._window_s


class Users:
    """The users of a file, and a memory of the passwords that were right, so that a reconnection costs little.

    `verify` may be called from several threads.
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
            self._remembered.clear()

    def verify(self, name: str, password: bytes) -> bool:
        """Whether a user has this password."""
        digest = self._digests.get(name)
        mark = hmac.digest(self._key, f"{name}\0{digest}\0".encode() + password, hashlib.sha256)
        with self._lock:
            if digest is not None and mark in self._remembered:
                self._remembered.move_to_end(mark)
                return True
        try:
            _HASHER.verify(digest or self._nobody, password)
        except (Argon2Error, InvalidHashError):
            return False
        if digest is None:
            return False
        with self._lock:
            if self._digests.get(name) == digest:
                self._remembered[mark] = None
                if len(self._remembered) > _REMEMBERED_MAX:
                    self._remembered.popitem(last=False)
        return True


class Authenticator:
    """Decides which user a CONNECT proves to be: by certificate, by password, or nobody where that is allowed.

    It is called in threads. `is_anonymous` says of a listener whether clients without a user name may stay there.
    """

    def __init__(
        self,
        users: Users | None,
        is_anonymous: Callable[[str], bool],
        failures: FailureTable | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.users = users
        self._is_anonymous = is_anonymous
        self._failures = failures or FailureTable()
        self._clock = clock
        self._lock = threading.Lock()

    def __call__(self, connect: Connect, origin: Origin) -> str | None:
        """The user, empty for nobody in particular; None if the client must not stay."""
        if origin.identity:
            return origin.identity
        if connect.username is None or self.users is None:
            return "" if self._is_anonymous(origin.listener) else None
        address = address_of(origin.peer)
        return connect.username if self.check(connect.username, connect.password or b"", address) else None

    def replace(self, users: Users | None, failures: FailureTable | None) -> None:
        """Takes other users; and a new table of failures, if there is one."""
        with self._lock:
            self.users = users
            self._failures = failures or self._failures

    def check(self, name: str, password: bytes, address: str) -> bool:
        """Whether a name and a password are right; failures count against the address."""
        users = self.users
        if users is None:
            return False
        with self._lock:
            if self._failures.is_blocked(address, self._clock()):
                return False
        if users.verify(name, password):
            return True
        with self._lock:
            self._failures.add(address, self._clock())
        return False


def address_of(peer: str) -> str:
    """The address without its port.

    >>> address_of("[::1]:1883"), address_of("10.0.0.7:40000"), address_of("local socket")
    ('::1', '10.0.0.7', 'local socket')
    """
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isdigit():
        return peer
    return host.removeprefix("[").removesuffix("]")
