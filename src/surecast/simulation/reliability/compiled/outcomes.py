"""Outcomes of events, the kinds of messages that are counted, and the sums of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError, refuse_unknown
from surecast.scenario import System
from surecast.scenario.spec.delivery import SCHEMES
from surecast.simulation.experiment import Extent

__all__ = [
    "KINDS",
    "OUTCOMES",
    "REASONS",
    "SCHEMES",
    "CompiledRunResult",
    "ReliabilitySettings",
    "SchemeAccounts",
    "reasons_of",
]

"""The schemes that can be simulated."""

REASONS: Final = ("home broker down", "client link down", "path down", "no routing entry", "expired", "partitioned")
"""Why an event is lost."""

OUTCOMES: Final = ("on time", *REASONS, "queued", "late")
"""Everything that can become of an event; each has exactly one outcome."""

KINDS: Final = (
    "notification",
    "acknowledgement",
    "retransmission",
    "detour",
    "duplicate",
    "subscription",
    "link-state",
)
"""The kinds of messages counted, over overlay links only, as sent, whether they get through or not.

`notification`: the first transmission of an event over a link of its tree, once per event and link, whoever it is
for; under bypass only where the whole route is up, under bypass with buffering only where the next broker can be
reached. `retransmission`: each further attempt, made while the sender is up; with interval 0 the one that gets
through; under bypass with buffering too, where a broker knows which neighbours it can reach. `acknowledgement`: one
for each hop of a buffered event that succeeds.
`detour`: the hops of a shortest way in the up graph to each home broker that is reached while the rest of the static
route is down; under bypass with buffering the event also stays buffered until it gets there along its tree.
`duplicate`: such an event that gets there a second time, by a message that is already counted; it is not part of the
total. `subscription`: a refresh that is sent over a link of its topic's tree by a broker it got to; none where
refreshes are ideal. `link-state`: the states of brokers that the protocol (`protocol.overlay.overlay_view`) sends
without latency: announcements of a change by each broker that notices it, passed on by all that hear of it for the
first time, and all that neighbours know when they come together.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilitySettings(Extent):
    """The settings of a simulation of reliability. An interval of 0 is ideal: nothing waits for the next one.

    Events are followed until `horizon_s`.
    """

    schemes: tuple[str, ...]
    horizon_s: float
    refresh_interval_s: float
    subscription_timeout_s: float
    retransmission_interval_s: float
    detection_s: float = 0.0
    by_link: bool = False
    """True if brokers compare what they want at every link-up: also without any scheme tables come back."""

    def __post_init__(self) -> None:
        Extent.__post_init__(self)
        refuse_unknown("scheme", self.schemes, SCHEMES)
        if not self.schemes or len(set(self.schemes)) < len(self.schemes):
            raise ConfigurationError("schemes: name at least one scheme, and each only once")
        for name in ("refresh_interval_s", "retransmission_interval_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigurationError(f"{name}: {getattr(self, name)} must be 0 or more, and finite")
        if self.refresh_interval_s > 0 and not self.subscription_timeout_s > self.refresh_interval_s:
            raise ConfigurationError("subscription_timeout_s must be longer than refresh_interval_s")

    @classmethod
    def of(
        cls,
        system: System,
        schemes: Sequence[str] | None,
        *,
        duration_s: float,
        warm_up_s: float,
        seed: int,
        refresh_interval_s: float | None = None,
        subscription_timeout_s: float | None = None,
        retransmission_interval_s: float | None = None,
        followed_s: float = 0.0,
    ) -> ReliabilitySettings:
        """Returns the given settings, completed by the scenario; events are followed for `followed_s` at least."""
        if isinstance(schemes, str):
            raise ConfigurationError(f"schemes: write a list, such as [{schemes!r}]")
        tolerance = system.delivery.fault_tolerance
        by_link = tolerance.refresh == "link" and refresh_interval_s is None  # an interval is that from end to end
        if refresh_interval_s is None:
            refresh_interval_s = 0.0 if by_link else tolerance.refresh_interval
            if subscription_timeout_s is None:
                subscription_timeout_s = tolerance.subscription_timeout
        if subscription_timeout_s is None:
            subscription_timeout_s = 3.0 * refresh_interval_s
        if retransmission_interval_s is None:
            retransmission_interval_s = tolerance.retransmission_interval
        lifetimes = [p.deadline_s for p in system.publishers if p.deadline_s < math.inf]
        return cls(
            schemes=SCHEMES if schemes is None else tuple(schemes),
            duration_s=float(duration_s),
            warm_up_s=float(warm_up_s),
            seed=seed,
            horizon_s=float(warm_up_s + duration_s + max(followed_s, *lifetimes, 0.0)),
            refresh_interval_s=float(refresh_interval_s),
            subscription_timeout_s=float(subscription_timeout_s),
            retransmission_interval_s=float(retransmission_interval_s),
            detection_s=float(tolerance.detection),
            by_link=by_link,
        )

    @property
    def window(self) -> tuple[float, float, float]:
        """The times at which counting begins and ends, and the end of the run."""
        return self.warm_up_s, self.end_s, self.horizon_s


@dataclass(frozen=True, slots=True)
class SchemeAccounts:
    """The accounts of one scheme in one run: outcomes and sum of delays of each interest, messages by kind."""

    outcomes: NDArray[np.int64]
    delay_s: NDArray[np.float64]
    messages: NDArray[np.int64]

    @classmethod
    def empty(cls, interests: int) -> SchemeAccounts:
        shape = (interests, len(OUTCOMES))
        return cls(np.zeros(shape, np.int64), np.zeros(interests), np.zeros(len(KINDS), np.int64))


@dataclass(frozen=True, slots=True)
class CompiledRunResult:
    """One run: the number of events published, and the accounts of each scheme."""

    published: int
    accounts: dict[str, SchemeAccounts]


def reasons_of(scheme: str, *, ideal_refresh: bool, client_links: bool, detection: bool = False) -> tuple[str, ...]:
    """Returns why an event can be lost under a scheme.

    >>> reasons_of("buffering", ideal_refresh=True, client_links=False)
    ('home broker down', 'expired')
    """
    own = {
        "none": ("path down", "no routing entry"),
        "periodic-subscription": ("path down",) if ideal_refresh else ("path down", "no routing entry"),
        "buffering": ("expired",),
        "bypass": ("path down", "partitioned") if detection else ("partitioned",),
        "bypass-buffering": ("expired",),
    }[scheme]
    return ("home broker down", *(("client link down",) if client_links else ()), *own)
