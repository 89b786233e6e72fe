"""The answer of `surecast size`: which brokers on which machines, what limits them, and what if."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from surecast.errors import AssumptionError, ConfigurationError
from surecast.planning.sizing.candidates import grown, spread
from surecast.planning.sizing.catalogue import Catalogue, MachineClass, profile_on
from surecast.planning.sizing.search import BROKERS_MAX, Candidate, Cases, Limits, bound, search
from surecast.scenario.build.collect import Collector
from surecast.scenario.build.profiles import with_profile_services
from surecast.scenario.system import Broker, System

__all__ = ["Promise", "Sizing", "WhatIf", "size_system"]

_QUANTILES: Final = (0.5, 0.99)


@dataclass(frozen=True)
class Promise:
    """The prediction for the worst subscriber."""

    reliability: float | None
    delay_mean_s: float | None
    delay_p50_s: float | None
    delay_p99_s: float | None
    missed: tuple[str, ...] = ()


@dataclass(frozen=True)
class WhatIf:
    """A change of the load, whether the chosen brokers still do, and what would on the same machines."""

    change: str
    still_fits: bool
    needed: Candidate


@dataclass(frozen=True)
class Sizing:
    """The answer. `options` has the best of each class that fits, the cheapest first; `gap` is by how much the chosen
    one may be dearer than the cheapest that there is."""

    sites: tuple[str, ...]
    limits: Limits
    currency: str
    chosen: Candidate | None
    options: tuple[Candidate, ...]
    tried: tuple[Candidate, ...]
    cheaper: Candidate | None = None
    safer: Candidate | None = None
    gap: float = 0.0
    slowest: Candidate | None = None
    what_if: tuple[WhatIf, ...] = ()
    promise: Promise | None = None
    notes: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, object]:
        """Returns all of it, for JSON."""

        def row(candidate: Candidate | None) -> dict[str, object] | None:
            if candidate is None:
                return None
            return {
                "machine": candidate.machine.name,
                "brokers": dict(zip(self.sites, candidate.counts, strict=True)),
                "cost": candidate.cost,
                "fits": candidate.fits,
                "limiting": asdict(candidate.limiting),
            }

        return {
            "answer": self.sentence,
            "chosen": row(self.chosen),
            "options": [row(each) for each in self.options],
            "cheaper": row(self.cheaper),
            "safer": row(self.safer),
            "gap": self.gap,
            "slowest": row(self.slowest),
            "what_if": [
                {"change": w.change, "still_fits": w.still_fits, "needed": row(w.needed)} for w in self.what_if
            ],
            "promise": None if self.promise is None else asdict(self.promise),
            "notes": list(self.notes),
        }

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if self.chosen is None:
            worst = min(self.tried, key=lambda each: each.limiting.share)
            return (
                f"No class of machines carries this with up to {BROKERS_MAX} brokers: the nearest is "
                f"{worst.machine.name}, where {worst.limiting.words} is at {worst.limiting.share:.3g} times its limit."
            )
        chosen = self.chosen
        where = ", ".join(f"{count} at {site}" for site, count in zip(self.sites, chosen.counts, strict=True))
        down = ", also with any one broker down" if self.limits.survives else ""
        missed = ""
        if self.promise is not None:
            missed = "; all targets are met"
            if self.promise.missed:
                missed = f"; no size meets {' and '.join(self.promise.missed)}"
        return (
            f"{chosen.brokers} broker{'s' * (chosen.brokers != 1)} ({where}) on machines of class "
            f"{chosen.machine.name}, {chosen.cost:g} {self.currency}, carry this with {self.limits.headroom:.0%} "
            f"headroom{down}{missed}."
        )


def size_system(system: System, catalogue: Catalogue, limits: Limits, *, predicts: bool = True) -> Sizing:
    """Returns the cheapest brokers for a system whose brokers have profiles; each broker stands for a site.

    ConfigurationError says what is missing.
    """
    _check(system)
    cases = Cases(system)
    tried = tuple(search(cases, machine, limits) for machine in catalogue.machines)
    options = tuple(sorted((c for c in tried if c.fits), key=lambda c: (c.cost, c.brokers)))
    sites = tuple(broker.name for broker in system.overlay.brokers)
    if not options:
        return Sizing(sites, limits, catalogue.currency, None, (), tried)
    chosen = options[0]
    least = min(bound(cases, machine, limits) * machine.cost for machine in catalogue.machines)
    without = replace(limits, survives=False)
    plain = [c for c in (search(cases, m, without) for m in catalogue.machines) if c.fits and c.cost < chosen.cost]
    slowest = search(cases, chosen.machine, limits, chosen.machine.speed.low)
    return Sizing(
        sites,
        limits,
        catalogue.currency,
        chosen,
        options,
        tried,
        cheaper=min(plain, key=lambda c: c.cost) if plain and limits.survives else None,
        safer=_safer(cases, chosen, limits),
        gap=chosen.cost / least - 1.0 if least else 0.0,
        slowest=slowest,
        what_if=tuple(_what_ifs(system, chosen, limits)),
        promise=_promise(system, chosen) if predicts else None,
        notes=tuple(_notes(system, chosen)),
    )


def _check(system: System) -> None:
    without = [broker.name for broker in system.overlay.brokers if broker.profile is None]
    if without:
        raise ConfigurationError(
            f"broker {without[0]} has no profile, and nothing is known of its costs; calibrate one (surecast calibrate "
            "HOST:PORT --out FILE) and write profile: FILE in overlay.brokers"
        )
    if not system.publishers:
        raise ConfigurationError("there is nothing to size for; add workload.publishers")


def _safer(cases: Cases, chosen: Candidate, limits: Limits) -> Candidate:
    """Returns what carries the load with half as much again as headroom."""
    more = replace(limits, headroom=min(0.9, limits.headroom * 1.5 or 0.2))
    return search(cases, chosen.machine, more)


def _what_ifs(system: System, chosen: Candidate, limits: Limits) -> Iterator[WhatIf]:
    changes: list[tuple[str, Callable[[int], bool], float]] = [("all load doubles", lambda _: True, 2.0)]
    for site, broker in enumerate(system.overlay.brokers):
        changes.append((f"{broker.name} doubles", lambda home, site=site: home == site, 2.0))  # type: ignore[misc]
    changes.append(("half the load", lambda _: True, 0.5))
    for words, grows, factor in changes[:9]:
        needed = search(Cases(grown(system, factor, grows)), chosen.machine, limits)
        enough = needed.fits and all(n <= c for n, c in zip(needed.counts, chosen.counts, strict=True))
        yield WhatIf(words, enough, needed)


def placed(system: System, chosen: Candidate) -> System:
    """Returns the system of an answer, on its machines."""

    def on_machine(broker: Broker) -> Broker:
        assert broker.profile is not None
        profile = profile_on(broker.profile, chosen.machine, chosen.machine.speed.estimate)
        return replace(broker, profile=profile, notification_service=None, control_service=None)

    whole = spread(system, chosen.counts)
    brokers = tuple(on_machine(broker) for broker in whole.overlay.brokers)
    whole = replace(whole, overlay=replace(whole.overlay, brokers=brokers), notes=())
    return with_profile_services(whole, Collector(None, system.name))


def _promise(system: System, chosen: Candidate) -> Promise | None:
    """Returns what the worst subscriber gets; None where the composed model does not apply."""
    from surecast.prediction.composed import predict_composed

    whole = placed(system, chosen)
    try:
        report = predict_composed(whole, quantiles=_QUANTILES, factors=False)
    except AssumptionError:
        return None

    def worst(metric: str, detail: str = "", smallest: bool = False) -> float | None:
        values = [v for v in report.values(metric, scope="subscriber", detail=detail).values() if v == v]
        return (min(values) if smallest else max(values)) if values else None

    reliability, mean_s = worst("reliability", smallest=True), worst("delay_mean_s")
    missed = []
    target, longest_s = system.targets.reliability, system.targets.notification_delay
    if target is not None and reliability is not None and reliability < target:
        missed.append(f"a reliability of {target:.5g} (the worst subscriber gets {reliability:.5g})")
    if longest_s is not None and mean_s is not None and mean_s > longest_s:
        missed.append(f"a mean delay of {longest_s:g} s (the worst subscriber has {mean_s:.3g} s)")
    return Promise(
        reliability, mean_s, worst("delay_quantile_s", "p50"), worst("delay_quantile_s", "p99"), tuple(missed)
    )


def _notes(system: System, chosen: Candidate) -> Iterator[str]:
    profiles = {broker.profile.name: broker.profile for broker in system.overlay.brokers if broker.profile is not None}
    machine: MachineClass = chosen.machine
    for profile in profiles.values():
        speed = machine.speed
        yield (
            f"assumed: profile {profile.name} is of another machine ({profile.machine.processor or 'not named'}); a "
            f"core of class {machine.name} is taken as {speed.estimate:g} times as fast, between {speed.low:g} and "
            f"{speed.high:g}"
        )
        if profile.cores <= 1.0:
            yield f"the broker of profile {profile.name} has one thread for messages: further cores do not help it"
        else:
            yield f"assumed: the broker of profile {profile.name} uses all cores of a machine equally well"
        if not profile.memory.connection.estimate:
            yield f"profile {profile.name} says nothing of memory: it limits nothing here"
    beyond = [note for note in placed(system, chosen).notes if "beyond what" in note]
    yield from beyond[:1]
