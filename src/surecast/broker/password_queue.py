"""The order of password checks: fair among addresses, and among the users that one address asks for.

To check a password costs some hundredths of a second of a processor, so the checks of all clients stand in line. Each
address has its turn, and at each turn another of its users; of one user from one address one check runs at a time, in
the order in which they came. So wrong passwords for one user hold up nobody else, not even behind the same address.
After too many of them, the next checks of that user from that address are spaced, up to a bound: guessing is slow, and
a right password still comes to its turn, at the latest when those that came before it are through.
"""

from __future__ import annotations

import heapq
import ipaddress
import math
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

__all__ = ["CheckQueue", "Pair", "Spacing", "source_of"]

T = TypeVar("T")
K = TypeVar("K")

_DOUBLINGS: Final = 5
_FAILED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Spacing:
    """After `failures_max` wrong passwords within `window_s` of each other, checks are spaced by up to `delay_s`.

    >>> [Spacing(20, 60.0, 0.32).after(failures) for failures in (20, 21, 22, 25, 100)]
    [0.0, 0.02, 0.04, 0.32, 0.32]
    """

    failures_max: int = 20
    window_s: float = 60.0
    delay_s: float = 0.25

    def after(self, failures: int) -> float:
        """Returns how long the next check has to wait after so many failures."""
        over = failures - self.failures_max
        return self.delay_s / 2 ** max(0, _DOUBLINGS - over) if over > 0 else 0.0


class Pair(Generic[T]):
    """One user from one address: what waits. It stands in line once, or one of its checks is under way."""

    __slots__ = ("address", "items", "user")

    def __init__(self, address: str, user: str):
        self.address = address
        self.user = user
        self.items: deque[T] = deque()


class _Loads(Generic[K]):
    """Counts by key, and a key with the highest count, all in constant time."""

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}
        self._keys: dict[int, dict[K, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._counts)

    def change(self, key: K, by: int) -> None:
        """Adds 1 to a count, or takes 1 away."""
        before = self._counts.pop(key, 0)
        if before:
            del self._keys[before][key]
        count = before + by
        if count:
            self._counts[key] = count
            self._keys.setdefault(count, {})[key] = None
        if count > self._most:
            self._most = count
        elif before == self._most and not self._keys[before]:
            del self._keys[before]
            self._most -= 1

    def heaviest(self) -> K:
        """Returns a key with the highest count; there is one."""
        return next(iter(self._keys[self._most]))


class CheckQueue(Generic[T]):
    """The line of all checks. At most `waiting_max` wait; then the newest of the address with the most makes room.

    >>> queue = CheckQueue[str]()
    >>> for item in ("a1", "a2", "b1"):
    ...     _ = queue.add(item, "10.0.0.7", item[0], 0.0)
    >>> _ = queue.add("c1", "10.0.0.8", "c", 0.0)
    >>> [queue.take(0.0)[0] for _ in range(3)], queue.take(0.0)  # a2 waits until a1 is through
    (['a1', 'c1', 'b1'], None)
    """

    def __init__(self, waiting_max: int = 10_000, spacing: Spacing | None = None):
        self.waiting_max = waiting_max
        self.spacing = spacing or Spacing()
        self.waiting = 0
        self._pairs: dict[tuple[str, str], Pair[T]] = {}
        self._ready: OrderedDict[str, OrderedDict[str, Pair[T]]] = OrderedDict()
        self._spaced: list[tuple[float, int, Pair[T]]] = []
        self._failed: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._by_address: _Loads[str] = _Loads()
        self._by_user: dict[str, _Loads[str]] = {}
        self._count = 0

    def add(self, item: T, address: str, user: str, now: float) -> T | None:
        """Puts a check in line; returns the one that had to make room for it, which may be the same."""
        key = (address, user)
        pair = self._pairs.get(key)
        if pair is None:
            pair = self._pairs[key] = Pair(address, user)
            self._line_up(pair, now)
        pair.items.append(item)
        self._changed(pair, 1)
        if self.waiting <= self.waiting_max:
            return None
        heaviest = self._by_address.heaviest()
        crowded = self._pairs[heaviest, self._by_user[heaviest].heaviest()]
        self._changed(crowded, -1)
        return crowded.items.pop()

    def take(self, now: float) -> tuple[T, Pair[T]] | None:
        """Returns the check whose turn it is, None if none may begin yet; `done` is to follow."""
        spaced, ready = self._spaced, self._ready
        while spaced and spaced[0][0] <= now:
            self._make_ready(heapq.heappop(spaced)[2])
        while ready:
            address, pairs = next(iter(ready.items()))
            _, pair = pairs.popitem(last=False)
            ready.move_to_end(address)
            if not pairs:
                del ready[address]
            if pair.items:  # it may have made room for others
                item = pair.items.popleft()
                self._changed(pair, -1)
                return item, pair
            del self._pairs[address, pair.user]
        return None

    def done(self, pair: Pair[T], is_right: bool | None, now: float) -> None:
        """A check is through; None if nothing was checked after all."""
        key = (pair.address, pair.user)
        if is_right is False:
            self._failed[key] = (self._failures(key, now) + 1, now)
            self._failed.move_to_end(key)
            if len(self._failed) > _FAILED_MAX:
                self._failed.popitem(last=False)
        if pair.items:
            self._line_up(pair, now)
        else:
            del self._pairs[key]

    def is_spaced(self, pair: Pair[T], now: float) -> bool:
        """Returns whether too many passwords of a user from an address were wrong lately."""
        return self._failures((pair.address, pair.user), now) > self.spacing.failures_max

    def next_at(self) -> float:
        """Returns when a check that is spaced may begin; infinite if none is."""
        return self._spaced[0][0] if self._spaced else math.inf

    def _failures(self, key: tuple[str, str], now: float) -> int:
        count, failed_at = self._failed.get(key, (0, -math.inf))
        return count if now - failed_at < self.spacing.window_s else 0

    def _line_up(self, pair: Pair[T], now: float) -> None:
        key = (pair.address, pair.user)
        failures = self._failures(key, now)
        at = self._failed[key][1] + self.spacing.after(failures) if failures else now
        if at > now:
            self._count += 1
            heapq.heappush(self._spaced, (at, self._count, pair))
        else:
            self._make_ready(pair)

    def _make_ready(self, pair: Pair[T]) -> None:
        self._ready.setdefault(pair.address, OrderedDict())[pair.user] = pair

    def _changed(self, pair: Pair[T], by: int) -> None:
        self.waiting += by
        self._by_address.change(pair.address, by)
        users = self._by_user.setdefault(pair.address, _Loads())
        users.change(pair.user, by)
        if not users:
            del self._by_user[pair.address]


def source_of(address: str) -> str:
    """Returns what counts as one address: of IPv6, the network of 64 bits that one customer has.

    >>> source_of("10.0.0.7"), source_of("2001:db8::7"), source_of("::ffff:10.0.0.7"), source_of("local socket")
    ('10.0.0.7', '2001:db8::/64', '10.0.0.7', 'local socket')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
