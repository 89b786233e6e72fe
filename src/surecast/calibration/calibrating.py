"""Measures what a broker costs: loads in a random order, costs from most of them, and a check with the others."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from surecast.calibration.broker_process import busiest_thread_share, machine
from surecast.calibration.design import OVERLOADS, PATTERNS, Pattern, Point, load_of, main_points
from surecast.calibration.fitting import Observation, fit_costs
from surecast.calibration.memory_probe import measure_memory
from surecast.errors import ConfigurationError, SurecastError
from surecast.load import BrokerAccess, LoadError, LoadOutcome, LoadPlan, processes_use, run_load
from surecast.profile import BrokerLoad, BrokerProfile
from surecast.protocol.mqtt import V5
from surecast.workers import worker_pool

__all__ = ["CALIBRATION_PREFIX", "Calibration", "CalibrationError", "Checked", "calibrate", "intention"]

OnProgress = Callable[[str, float, float], None]

CALIBRATION_PREFIX: Final = "surecast-calibrate"
_TASKS: Final = 2
"""Processes of a load: one publishes, one subscribes."""
_IDLE_S: Final = 1.0
_BUSY_ALREADY: Final = 0.05
_ONE_THREAD: Final = 0.9
_PILOT_PER_S: Final = 400.0
_PILOT_LEAST_PER_S: Final = 60.0
_MOST_PER_S: Final = 30_000.0
_MOST_DELIVERIES_PER_S: Final = 150_000.0
"""What one generator of this machine surely sends and takes."""
_BUNCHED: Final = 1.5
_LOSSES: Final = 0.01
_SHORT: Final = 0.8
_DEVIATIONS: Final = 5.0
_BUSY: Final = 0.5
_NOISY: Final = 0.2
_FILLED: Final = 0.85
_LEAST_POINTS: Final = 25


class CalibrationError(SurecastError):
    """A broker could not be calibrated: it failed, throttled, or the machine is too noisy. No profile is made."""


@dataclass(frozen=True)
class Measured:
    """One measurement."""

    point: Point
    load: BrokerLoad
    cores: float
    busy: float
    waits_per_s: float
    memory_bytes: int
    messages_per_write: float
    losses: float

    @property
    def per_message_s(self) -> float:
        return self.cores / self.load.messages_per_s

    @property
    def is_as_intended(self) -> bool:
        """Returns whether messages went out one by one, as the pattern says, and came: what it drops costs less."""
        return self.cores > 0.0 and self.messages_per_write <= _BUNCHED and self.losses <= _LOSSES


@dataclass(frozen=True)
class Checked:
    """A load that costs were not estimated from: what the profile says of it, and what was measured.

    For an overload the figures are messages per second at a broker that is busy all the time, else cores.
    """

    name: str
    predicted: float
    measured: float
    utilisation: float

    @property
    def error(self) -> float:
        """The relative error; above 0 where the profile says too much."""
        return self.predicted / self.measured - 1.0


@dataclass
class Calibration:
    """The outcome: a profile, the checks behind its errors, and what is worth knowing besides."""

    profile: BrokerProfile
    checks: list[Checked] = field(default_factory=list)
    overloads: list[Checked] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """Returns all figures, for JSON."""

        def rows(checks: Sequence[Checked]) -> list[dict[str, object]]:
            return [
                {"load": c.name, "predicted": c.predicted, "measured": c.measured, "utilisation": c.utilisation,
                 "error": c.error} for c in checks
            ]  # fmt: skip

        return {
            "profile": self.profile.model_dump(mode="json", by_alias=True),
            "held_out": rows(self.checks),
            "overloads": rows(self.overloads),
            "notes": self.notes,
        }


def intention(access: BrokerAccess, quick: bool) -> str:
    """Returns what a calibration does to the broker, to be read before it starts."""
    points = len(main_points(quick, 0)) + len(PATTERNS) + len(OVERLOADS)
    minutes = points * ((0.6 if quick else 1.5) + 1.2) / 60.0 + 0.3
    return (
        f"{access} gets {points} loads in about {minutes:.0f} minutes: up to 720 connections, {_MOST_PER_S:,.0f} "
        f"messages/s and {_MOST_DELIVERIES_PER_S:,.0f} deliveries/s, and at the end as much as it takes. Its other "
        f"clients will wait. All topics begin with {CALIBRATION_PREFIX}; no session and no retained message stays."
    )


def calibrate(
    access: BrokerAccess,
    pids: Sequence[int],
    *,
    name: str,
    quick: bool = False,
    memory: bool = True,
    seed: int = 1,
    on_progress: OnProgress | None = None,
) -> Calibration:
    """Returns the profile of a broker whose processes are named; CalibrationError says why there is none.

    LoadError comes from a broker that refuses, ends connections or dies. Nothing stays at the broker.
    """
    if not pids:
        raise ConfigurationError("name the processes of the broker: their processor time is what is measured")
    with worker_pool(_TASKS) as pool:
        return _Calibrating(access, list(pids), name, quick, memory, seed, on_progress or _ignore, pool).run()


def _ignore(_activity: str, _done: float, _total: float) -> None:
    """Shows nothing."""


class _Calibrating:
    def __init__(
        self,
        access: BrokerAccess,
        pids: list[int],
        name: str,
        quick: bool,
        memory: bool,
        seed: int,
        progress: OnProgress,
        pool: Executor,
    ):
        self._pool = pool
        self._access, self._pids, self._name, self._quick = access, pids, name, quick
        self._memory, self._seed, self._progress = memory, seed, progress
        self._seconds = 0.6 if quick else 1.5
        self._notes: list[str] = []
        self._done, self._all = 0, 1
        self._guess: dict[str, float] = {}

    def run(self) -> Calibration:
        began = time.monotonic()
        points = main_points(self._quick, self._seed)
        self._all = len(points) + len(PATTERNS) + len(OVERLOADS)
        idle = self._idle()
        pilots = [self._pilot(pattern) for pattern in PATTERNS]
        measured = [self._point(point) for point in points]
        overloaded = [self._overload(Point(pattern, "overload")) for pattern in OVERLOADS]
        cores = 1.0 if busiest_thread_share(self._pids) > _ONE_THREAD else float(os.cpu_count() or 1)
        fitted = pilots + [each for each in measured if each.point.purpose in ("fit", "full") and each.is_as_intended]
        if len(fitted) < _LEAST_POINTS:
            raise CalibrationError(
                f"{self._access}: only {len(fitted)} of {self._all} loads went out one by one and came whole; the "
                "generator has too little of this machine, or the broker drops messages"
            )
        if left_out := sum(not each.is_as_intended for each in measured):
            self._notes.append(f"{left_out} of {len(measured)} loads are left out: sent in bunches, or partly lost")
        repeatability = self._repeatability(measured)
        costs = fit_costs([Observation(m.load, m.cores, m.busy) for m in fitted], idle, cores, self._seed)
        profile = BrokerProfile(name=self._name, costs=costs, idle=idle, cores=cores)
        checks = [_checked(profile, m) for m in measured if m.point.purpose == "held-out" and m.is_as_intended]
        overloads = [_overload_checked(profile, m) for m in overloaded]
        return self._whole(profile, checks, overloads, repeatability, fitted, began)

    def _whole(
        self,
        profile: BrokerProfile,
        checks: list[Checked],
        overloads: list[Checked],
        repeatability: float,
        fitted: list[Measured],
        began: float,
    ) -> Calibration:
        reached = [each for each in overloads if each.utilisation >= _FILLED]
        if len(reached) < len(overloads):
            names = ", ".join(each.name for each in overloads if each not in reached)
            self._notes.append(f"the generator could not keep the broker busy with {names}: saturation is extrapolated")
        errors = sorted(abs(each.error) for each in checks)
        memory = {}
        if self._memory:
            token = f"{CALIBRATION_PREFIX}-{secrets.token_hex(3)}"
            memory = {"memory": measure_memory(self._access, self._pids, token, self._progress, self._notes)}
        profile = profile.model_copy(
            update={
                **memory,
                "description": f"measured at {self._access} with {len(fitted)} loads",
                **_validated(
                    {
                        "machine": machine(),
                        "pattern": {
                            "protocol": "MQTT 5" if self._access.version == V5 else "MQTT 3.1.1",
                            "tls": self._access.is_encrypted,
                        },
                        "valid": _range(fitted),
                        "errors": {
                            "points": len(errors),
                            "processor_time_median": round(median(errors), 4) if errors else 0.0,
                            "processor_time_worst": round(max(errors, default=0.0), 4),
                            "saturation": round(max(abs(each.error) for each in reached), 4) if reached else None,
                            "repeatability": round(repeatability, 4),
                        },
                        "overload": f"{max(each.measured for each in overloads):.0f}/s",
                        "measured": f"{time.monotonic() - began:.0f}s",
                    }
                ),
            }
        )
        return Calibration(profile, checks, overloads, self._notes)

    def _base(self) -> LoadPlan:
        return LoadPlan(
            self._access, seconds=self._seconds, warm_up_s=0.3, probes_per_s=0.0, prefix=CALIBRATION_PREFIX,
            name=secrets.token_hex(3), seed=self._seed,
        )  # fmt: skip

    def _idle(self) -> float:
        """Returns the cores that the broker uses when nothing comes; refuses a broker that others keep busy."""
        before, began = processes_use(self._pids).processor_s, time.monotonic()
        self._progress("watching the idle broker", 0.0, self._all)
        time.sleep(_IDLE_S)
        idle = (processes_use(self._pids).processor_s - before) / (time.monotonic() - began)
        if idle > _BUSY_ALREADY:
            raise CalibrationError(
                f"{self._access}: the broker is busy {idle:.0%} of a core before anything is sent: other clients use "
                "it, and their load would be taken for ours"
            )
        return round(idle, 5)

    def _pilot(self, pattern: Pattern) -> Measured:
        """Measures a pattern at a low rate, from which the others follow."""
        copies = _copies(pattern.plan(self._base()))
        rate = _PILOT_PER_S if copies < 2 else max(_PILOT_LEAST_PER_S, 2 * _PILOT_PER_S / (1.0 + copies))
        found = self._measured(Point(pattern, "pilot"), pattern.plan(self._base(), rate_per_s=rate))
        self._guess[pattern.name] = found.per_message_s
        return found

    def _point(self, point: Point) -> Measured:
        """Measures a pattern at a level of what the pilots say, or at the most that a generator surely sends."""
        if point.purpose == "full":
            return self._overload(point)
        plan = point.pattern.plan(self._base())
        per_message_s = self._guess.get(point.pattern.name) or self._alike(plan)
        rate = point.level / per_message_s
        most = min(_MOST_PER_S, _MOST_DELIVERIES_PER_S / max(1.0, _copies(plan)))
        return self._measured(point, replace(plan, rate_per_s=min(rate, most)))

    def _alike(self, plan: LoadPlan) -> float:
        """Returns the cost of a message of a new shape, by the dearest of those measured with as many deliveries."""
        copies = _copies(plan)
        each = [self._guess[p.name] / (1.0 + _copies(p.plan(self._base()))) for p in PATTERNS]
        return median(each) * (1.0 + copies)

    def _measured(self, point: Point, plan: LoadPlan) -> Measured:
        outcome = self._run(point, plan)
        losses = outcome.lost / max(1, outcome.expected)
        sent = outcome.sent_per_s
        assert outcome.broker is not None
        if _is_short(plan, sent) and self._busy(outcome, plan) < _BUSY:
            raise CalibrationError(
                f"{self._access}: it took {sent:,.0f} of {plan.rate_per_s or 0.0:,.0f} messages/s "
                f"({point.pattern.name}) and was busy only {outcome.broker_share:.0%} of a core: it throttles its "
                "clients, or this machine has too little time for the generator"
            )
        for problem in outcome.left_behind:
            self._notes.append(problem)
        if not sent:
            raise CalibrationError(f"{self._access}: no message was taken ({point.pattern.name})")
        return Measured(
            point,
            load_of(plan, sent, outcome.delivered_per_s),
            outcome.broker_share,
            self._busy(outcome, plan),
            outcome.broker.waits / plan.seconds,
            outcome.broker.memory_bytes,
            outcome.sent.sent / max(1, outcome.sent.writes),
            losses,
        )

    @staticmethod
    def _busy(outcome: LoadOutcome, plan: LoadPlan) -> float:
        """Returns the share of time in which the broker was not asleep."""
        assert outcome.broker is not None
        return (outcome.broker.processor_s + outcome.broker.held_up_s) / plan.seconds

    def _overload(self, point: Point) -> Measured:
        """Measures a pattern without a rate: the broker has no rest."""
        return self._measured(point, point.pattern.plan(self._base(), window=1))

    def _run(self, point: Point, plan: LoadPlan) -> LoadOutcome:
        self._progress(f"{point.pattern.name} ({point.purpose})", self._done, self._all)
        self._done += 1
        try:
            outcome = run_load(plan, self._pids, pool=self._pool)
        except LoadError as error:
            error.add_note(f"It happened with the load {point.pattern.name}; no profile is made.")
            raise
        refused = outcome.sent.refused
        if refused:
            raise CalibrationError(f"{self._access}: it refused {refused:,} messages ({point.pattern.name})")
        return outcome

    def _repeatability(self, measured: Sequence[Measured]) -> float:
        """Returns the median difference of two runs of the same load; refuses what does not repeat."""
        first = {(m.point.pattern.name, m.point.level): m for m in measured if m.point.purpose == "fit"}
        differences = []
        for again in (m for m in measured if m.point.purpose == "again"):
            before = first.get((again.point.pattern.name, again.point.level))
            if before is not None and before.cores > 0.0:
                differences.append(again.per_message_s / before.per_message_s - 1.0)
        if not differences:
            raise CalibrationError(f"{self._access}: too noisy: the broker hardly ran while it was measured")
        typical = median(abs(each) for each in differences)
        if typical > _NOISY:
            raise CalibrationError(
                f"too noisy: the same load again takes {typical:.0%} more or less processor time, and {_NOISY:.0%} is "
                "the limit; end what else runs on this machine, or measure for longer"
            )
        drift = median(differences)
        if abs(drift) > 0.05:
            self._notes.append(f"drift: loads repeated at the end took {drift:+.0%} processor time")
        return typical


def _is_short(plan: LoadPlan, sent_per_s: float) -> bool:
    """Returns whether less was sent than was due, by more than random times explain."""
    if plan.rate_per_s is None:
        return False
    due, sent = plan.rate_per_s * plan.seconds, sent_per_s * plan.seconds
    return sent < _SHORT * due and due - sent > _DEVIATIONS * math.sqrt(due)


def _copies(plan: LoadPlan) -> float:
    streams = plan.streams
    return sum(plan.copies(topic) for _, topic in streams) / len(streams)


def _checked(profile: BrokerProfile, measured: Measured) -> Checked:
    use = profile.use_of(measured.load)
    return Checked(measured.point.pattern.name, use.cores, measured.cores, measured.cores / profile.cores)


def _overload_checked(profile: BrokerProfile, measured: Measured) -> Checked:
    """Compares the rate at which the broker has no rest with that which it took, were it busy all the time."""
    predicted = profile.saturation(measured.load) * measured.load.messages_per_s
    per_core = measured.load.messages_per_s * profile.cores / measured.cores
    return Checked(measured.point.pattern.name, predicted, per_core, measured.busy / profile.cores)


def _range(fitted: Sequence[Measured]) -> dict[str, Any]:
    loads = [m.load for m in fitted]
    return {
        "payload_max": f"{max(each.received_bytes_per_s / each.messages_per_s for each in loads):.0f}B",
        "deliveries_per_message_max": math.ceil(max(each.deliveries_per_s / each.messages_per_s for each in loads)),
        "utilisation_max": round(min(1.0, max(m.cores for m in fitted)), 2),
        "connections_max": int(max(each.connections for each in loads)),
        "subscriptions_max": int(max(each.subscriptions for each in loads)),
    }


def _validated(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns fields of a profile as its model has them."""
    whole = BrokerProfile.model_validate({"surecast-profile": 1, "name": "fields", "costs": {}, **fields})
    return {name: getattr(whole, name) for name in fields}
