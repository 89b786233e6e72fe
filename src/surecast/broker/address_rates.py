"""The rate of new connections of each address: a token bucket for everybody who connected lately."""

from __future__ import annotations

from typing import Final

__all__ = ["AddressRates"]

_BURST_S: Final = 60.0
_ADDRESSES_MAX: Final = 10_000


class AddressRates:
    """Keeps new connections of each address to a rate on average, with bursts of up to a minute's worth.

    Of the addresses it knows, the one that connected longest ago is forgotten when there are too many.

    >>> rates = AddressRates(rate_per_s=0.05)
    >>> [rates.takes("10.0.0.7", now) for now in (0.0, 0.0, 0.0, 0.0, 20.0)], rates.takes("10.0.0.8", 0.0)
    ([True, True, True, False, True], True)
    """

    def __init__(self, rate_per_s: float):
        self.rate_per_s = rate_per_s
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens and when; in the order of their last connections

    def takes(self, address: str, now: float) -> bool:
        """Returns whether an address may connect now, and counts the connection if it may."""
        burst = max(1.0, self.rate_per_s * _BURST_S)
        tokens, at = self._buckets.pop(address, (burst, now))
        tokens = min(burst, tokens + (now - at) * self.rate_per_s)
        is_taken = tokens >= 1.0
        self._buckets[address] = (tokens - is_taken, now)
        if len(self._buckets) > _ADDRESSES_MAX:
            del self._buckets[next(iter(self._buckets))]
        return is_taken
