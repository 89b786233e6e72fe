"""Resolves how each broker and link fails and comes back."""

from __future__ import annotations

from surecast.scenario.build.collect import Collector
from surecast.scenario.spec.overlay import AvailabilitySpec, ComponentAvailability
from surecast.scenario.streams import Streams
from surecast.scenario.system import Failures

__all__ = ["FailureTable"]


class FailureTable:
    """Looks up and draws the failures of components by name. Repairs of brokers take `start_s` longer."""

    def __init__(self, spec: AvailabilitySpec, streams: Streams, start_s: float = 0.0):
        self._spec = spec
        self._streams = streams
        self._start_s = start_s
        self._used: set[str] = set()

    def broker(self, name: str) -> Failures | None:
        return self._draw(self._entry(name) or self._spec.brokers, f"broker/{name}", self._start_s)

    def link(self, a: str, b: str) -> Failures | None:
        """Failures of the link between two brokers; its entry may name the ends in either order."""
        entry = self._entry(f"{a}--{b}") or self._entry(f"{b}--{a}")
        low, high = sorted((a, b))
        return self._draw(entry or self._spec.links, f"link/{low}--{high}")

    def clients(self) -> Failures | None:
        return self._draw(self._spec.clients, "clients")

    def complain_about_unknown(self, brokers: list[str], links: list[str], collect: Collector) -> None:
        for name in self._spec.each:
            if name not in self._used:
                path = ("availability", "each", name)
                if "--".join(reversed(name.split("--", 1))) in self._used:
                    collect.add(path, "this link is given twice, once from each end", "keep one")
                else:
                    collect.unknown(path, "broker or link", name, links if "--" in name else brokers)

    def _entry(self, name: str) -> ComponentAvailability | None:
        if name in self._spec.each:
            self._used.add(name)
        return self._spec.each.get(name)

    def _draw(self, spec: ComponentAvailability | None, name: str, start_s: float = 0.0) -> Failures | None:
        if spec is None:
            return None

        def value(field: str) -> float:
            return self._streams.between(f"availability/{field}", name, *getattr(spec, field))

        if spec.period is not None:
            availability, period_s = value("availability"), value("period")
            up_s, down_s = availability * period_s, (1.0 - availability) * period_s
        elif spec.availability is not None:
            return None
        else:
            up_s = spec.up.mean_s if spec.mtbf is None else value("mtbf")
            down_s = spec.down.mean_s if spec.mttr is None else value("mttr")
        if down_s <= 0:
            return None
        return Failures(spec.up.with_mean(up_s), spec.down.with_mean(down_s + start_s))
