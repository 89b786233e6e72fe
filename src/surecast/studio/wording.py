"""Numbers as texts on drawings: short, rounded, with units."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from surecast.studio.style import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from surecast.scenario.distributions import Distribution
    from surecast.scenario.system import Failures, System

__all__ = [
    "capacity",
    "count",
    "duration",
    "failing",
    "joined",
    "number",
    "percent",
    "rate",
    "route",
    "system_caption",
    "system_counts",
]

_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
ROUTE_STOPS_MAX = 7


def number(value: float) -> str:
    """Returns a number to three figures, without an exponent where one would not help.

    >>> number(0.012345), number(1234567.0), number(1400.0), number(2e-9)
    ('0.0123', '1,234,567', '1,400', '2e-09')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Returns a time in the unit that suits it.

    >>> duration(0.0123), duration(5400), duration(0.0), duration(1209600)
    ('12.3 ms', '1.5 h', '0 s', '14 d')
    """
    if not math.isfinite(seconds):
        return "for ever"
    for unit, length in _UNITS:
        if seconds >= length * (1 - 1e-9):
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds)} s"


def percent(share: float) -> str:
    """Returns a share in percent, with as many digits as its distance from 1 needs.

    >>> percent(0.99), percent(0.999954), percent(1.0), percent(0.5)
    ('99.0 %', '99.9954 %', '100 %', '50.0 %')
    """
    down = 1.0 - share
    if down <= 1e-9:
        return "100 %"
    digits = min(7, max(1, -math.floor(math.log10(down)) - 1))
    return f"{100 * share:.{digits}f} %"


def capacity(service: Distribution | None) -> str:
    """Returns the rate at which a service can work, or nothing where it takes no time."""
    if service is None or not service.has_mean or service.mean_s <= 0:
        return ""
    return rate(1.0 / service.mean_s)


def rate(per_s: float) -> str:
    """Returns a rate; without limit where it is infinite.

    >>> rate(1400.0), rate(math.inf)
    ('1,400/s', 'no limit')
    """
    return f"{number(per_s)}/s" if math.isfinite(per_s) else "no limit"


def failing(failures: Failures | None) -> tuple[str, str, str]:
    """Returns availability, mean time between failures and mean time to repair as words."""
    if failures is None:
        return ("never fails", "", "")
    return (percent(failures.availability), duration(failures.mtbf_s), duration(failures.mttr_s))


def count(n: int, singular: str, plural: str = "") -> str:
    """
    >>> count(1, "broker"), count(1000, "router"), count(2, "class", "classes")
    ('1 broker', '1,000 routers', '2 classes')
    """
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def joined(parts: Iterable[str]) -> str:
    """Returns the parts that are not empty, with dots between them."""
    return " · ".join(part for part in parts if part)


def route(names: list[str], stops_max: int = ROUTE_STOPS_MAX) -> str:
    """Returns a path by its stops; the middle of a long one is left out.

    >>> route(["a", "b", "c"]), route(list("abcdefghij"), 4)
    ('a → b → c', 'a → b → … 6 more … → i → j')
    """
    cleaned = [clean(name) for name in names]
    if len(cleaned) <= stops_max:
        return " → ".join(cleaned)
    half = stops_max // 2
    hidden = f"… {len(cleaned) - 2 * half} more …"
    return " → ".join([*cleaned[:half], hidden, *cleaned[-half:]])


def system_counts(system: System) -> tuple[str, ...]:
    """Returns the numbers of components of a system: its overlay and clients, then its network."""
    overlay, network = system.overlay, system.network
    clients = 0 if system.class_workload is None else len(system.class_workload.clients)
    first = joined(
        (
            count(len(overlay.brokers), "broker"),
            count(len(overlay.links), "overlay link"),
            count(len(system.publishers), "publisher") if system.publishers else "",
            count(len(system.subscribers), "subscriber") if system.subscribers else "",
            count(clients, "client") if clients else "",
        )
    )
    if network is None:
        return (first,)
    domains = f" in {count(len(network.domains), 'domain')}" if network.domains else ""
    second = (
        count(len(network.routers), "router") + domains,
        count(len(network.links), "physical link"),
        count(len(overlay.candidates), "candidate position") if overlay.candidates else "",
    )
    return (first, joined(second))


def system_caption(system: System, candidates: bool, clients_max: int) -> str:
    """Returns the caption of a drawing of the system."""
    brokers = system.overlay.brokers
    says = ["Circles are brokers" + ("; the larger, the more clients are attached." if clients_max else ".")]
    if any(b.failures is not None for b in brokers):
        says.append("Their colour is the share of time each is up: the brighter, the more often it is down.")
    if system.network is None:
        says.append("Lines are overlay links; positions and lengths mean nothing but order.")
    else:
        says.append("Bold lines are overlay links; the broad pale bands are the physical paths they follow.")
    if candidates:
        says.append("Hollow diamonds are candidate positions without a broker.")
    return " ".join(says)
