"""One ON/OFF queue, with or without an input queue before it, at many parameters in one compiled call."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surecast.errors import ConfigurationError, SaturationError
from surecast.scenario import Connectivity, Distribution, Streams, parse_distribution
from surecast.scenario.mechanism import Mechanism
from surecast.simulation.dropping.draws import Floats, draw_events, draw_switches, draw_times
from surecast.simulation.dropping.dropping_plan import DroppingSettings, check_stable, tables_of
from surecast.simulation.dropping.histogram import quantile
from surecast.simulation.dropping.queue_kernel import (
    AREA,
    BINS,
    BUSY,
    DELAY,
    DELIVERED,
    MET_OFF,
    MET_ON,
    OUTCOMES,
    OVERFLOW,
    QUEUED,
    REJECTED,
    RESPONSE,
    STATES,
    SUMS,
    sweep,
)
from surecast.simulation.experiment import check_at_least_one, ratio_estimate, relative_width, replications, until_known

__all__ = ["Period", "QueueAccounts", "QueueEstimate", "QueueSweep", "Sweeper", "simulate_queue"]

Period = Distribution | float
"""A distribution of periods, or the mean in seconds of exponential ones."""

_PURPOSES = ("arrivals", "input", "join", "lifetime", "service")


class QueueEstimate(NamedTuple):
    """Values and their 95 % half-widths, one for each point; NaN where there is none."""

    value: Floats
    half_width: Floats


@dataclass(frozen=True)
class QueueSweep:
    """The outcomes of the events at every point (`shape`) of a sweep.

    `counts` has the events by run, point, state met and outcome (`queue_kernel.MET_OFF` and so on), `sums` the other
    totals, `responses` and `delays` the bins of the times of all runs together.
    """

    shape: tuple[int, ...]
    duration_s: float
    counts: NDArray[np.int64]
    sums: Floats
    responses: NDArray[np.int64]
    delays: NDArray[np.int64]

    @property
    def runs(self) -> int:
        return len(self.counts)

    @property
    def published(self) -> NDArray[np.int64]:
        """Events published in all runs together."""
        return np.asarray(self.counts.sum(axis=(0, 2, 3)).reshape(self.shape), dtype=np.int64)

    @property
    def success_share(self) -> QueueEstimate:
        """Share of all events that are delivered."""
        return self._ratio(self._outcome(DELIVERED), self.counts.sum(axis=(2, 3)))

    @property
    def response_mean_s(self) -> QueueEstimate:
        """Mean time from joining the output queue to the end of transmission."""
        return self._ratio(self.sums[:, :, RESPONSE], self._outcome(DELIVERED))

    @property
    def delay_mean_s(self) -> QueueEstimate:
        """Mean time from publication to the end of transmission."""
        return self._ratio(self.sums[:, :, DELAY], self._outcome(DELIVERED))

    @property
    def queue_length_mean(self) -> QueueEstimate:
        """Mean number of events in the output queue over time."""
        return self._ratio(self.sums[:, :, AREA], np.full(self.sums.shape[:2], self.duration_s))

    @property
    def utilisation(self) -> QueueEstimate:
        """Share of the time in which an event is being transmitted."""
        return self._ratio(self.sums[:, :, BUSY], np.full(self.sums.shape[:2], self.duration_s))

    @property
    def join_probability(self) -> QueueEstimate:
        """Share of the events that arrive while disconnected that join."""
        met = self.counts[:, :, MET_OFF]
        arrived = met.sum(axis=2)
        return self._ratio(arrived - met[:, :, REJECTED] - met[:, :, OVERFLOW], arrived)

    @property
    def failed_connected_share(self) -> QueueEstimate:
        """Share of the events that arrive while connected that are dropped (dropping Fig. 7)."""
        met = self.counts[:, :, MET_ON]
        arrived = met.sum(axis=2)
        return self._ratio(arrived - met[:, :, DELIVERED] - met[:, :, QUEUED], arrived)

    def response_quantile_s(self, share: float) -> Floats:
        """The response time that this share of the delivered events does not exceed."""
        return np.array([quantile(row, share) for row in self.responses]).reshape(self.shape)

    def delay_quantile_s(self, share: float) -> Floats:
        """The delay that this share of the delivered events does not exceed."""
        return np.array([quantile(row, share) for row in self.delays]).reshape(self.shape)

    def _outcome(self, outcome: int) -> NDArray[np.int64]:
        return np.asarray(self.counts[:, :, :, outcome].sum(axis=2), dtype=np.int64)

    def _ratio(self, over: NDArray[Any], under: NDArray[Any]) -> QueueEstimate:
        value, half = ratio_estimate(over.astype(np.float64), under.astype(np.float64))
        return QueueEstimate(value.reshape(self.shape), half.reshape(self.shape))


def simulate_queue(
    arrival_per_s: ArrayLike,
    service_per_s: ArrayLike,
    on: Period | None,
    off: Period | None,
    mechanism: Mechanism | Sequence[Mechanism] | None = None,
    *,
    input_per_s: ArrayLike = math.inf,
    service: Distribution | None = None,
    runs: int = 10,
    duration_s: float,
    warm_up_s: float = 0.0,
    seed: int,
    relative_half_width: float | None = None,
    max_runs: int = 10_000,
    workers: int = 1,
) -> QueueSweep:
    """Simulates one ON/OFF queue at every combination of parameters, which are broadcast against each other.

    `on` and `off` are the connected and disconnected periods, both None for a subscriber that is always connected.
    `input_per_s` is the service rate of an input queue before it, infinite where there is none. `service` is the shape
    of transmission times, exponential where left out. All points work on the same random numbers. With
    `relative_half_width`, runs are added, from `runs` to `max_runs`, until the success share and the mean response
    time of every point are known as well as that.

    >>> rates = np.array([0.5, 1.0, 2.0])
    >>> some = simulate_queue(rates, 8.0, 20.0, 20.0, Mechanism(join_probability=0.5), duration_s=20_000, seed=1)
    >>> some.success_share.value.round(2).tolist()
    [0.75, 0.75, 0.75]
    """
    check_at_least_one("runs", min(runs, max_runs))
    settings = DroppingSettings(duration_s=float(duration_s), warm_up_s=float(warm_up_s), seed=seed)
    mechanisms: Any = np.empty(1 if not isinstance(mechanism, Sequence) else len(mechanism), dtype=object)
    mechanisms[:] = list(mechanism) if isinstance(mechanism, Sequence) else [mechanism or Mechanism()]
    if not isinstance(mechanism, Sequence):
        mechanisms = mechanisms.reshape(())
    points = np.broadcast_arrays(
        np.asarray(arrival_per_s, np.float64),
        np.asarray(service_per_s, np.float64),
        np.asarray(input_per_s, np.float64),
        mechanisms,
    )
    rates, services, inputs, chosen = (np.ravel(part) for part in points)
    sweeper = Sweeper(on, off, service, settings, float(rates.max(initial=0.0)))
    _check(sweeper, rates, services, inputs, chosen.tolist())
    accounts = QueueAccounts(points[0].shape, settings)

    def is_known() -> bool:
        result = accounts.result()
        widths = (relative_width(*estimate) for estimate in (result.success_share, result.response_mean_s))
        return relative_half_width is None or max(widths) <= relative_half_width

    def simulate(run: int) -> _Run:
        return sweeper.run(run, rates, services, inputs, chosen.tolist())

    with replications(simulate, total=max_runs, workers=workers, threads=True) as do:

        def extend(count: int) -> None:
            for result in do.each((run,) for run in range(accounts.runs, accounts.runs + count)):
                accounts.add(result)

        until_known(extend, is_known, first=runs, most=max(runs, max_runs))
    return accounts.result()


class _Run(NamedTuple):
    counts: NDArray[np.int64]
    sums: Floats
    responses: NDArray[np.int64]
    delays: NDArray[np.int64]


class Sweeper:
    """Draws the random numbers of runs, and lets any number of points work on them; `kept` has those of some runs."""

    def __init__(
        self,
        on: Period | None,
        off: Period | None,
        service: Distribution | None,
        settings: DroppingSettings,
        rate_max: float,
    ):
        if (on is None) != (off is None):
            raise ConfigurationError("on and off go together; both None mean that it is always connected")
        self.connectivity = None if on is None or off is None else Connectivity(_period("on", on), _period("off", off))
        shape = parse_distribution("exponential") if service is None else service
        self.service = shape.with_mean(1.0)
        self.settings, self.rate_max = settings, rate_max
        self.kept: dict[int, tuple[Any, ...]] = {}

    def draw(self, run: int, needed: Collection[str] = _PURPOSES) -> tuple[Any, ...]:
        """Unit arrivals, input times, coins, lifetimes, transmission times, and switches of one run.

        What is not needed is not drawn: arrivals stand in its place, and nobody looks.
        """
        if run in self.kept:
            return self.kept[run]
        streams = Streams(self.settings.seed)
        rngs = {purpose: streams.generator(f"run {run}/{purpose}", "queue") for purpose in _PURPOSES}
        end_s, horizon_s = self.settings.window[1:]
        arrivals = draw_events(rngs["arrivals"], self.rate_max * end_s)
        size = len(arrivals)
        return (
            arrivals,
            rngs["input"].standard_exponential(size) if "input" in needed else arrivals,
            rngs["join"].random(size) if "join" in needed else arrivals,
            rngs["lifetime"].standard_exponential(size) if "lifetime" in needed else arrivals,
            draw_times(self.service, rngs["service"], size),
            *draw_switches(self.connectivity, streams, run, "queue", horizon_s),
        )

    def run(
        self,
        run: int,
        rates: Floats,
        services: Floats,
        inputs: Floats,
        mechanisms: Sequence[Mechanism],
    ) -> _Run:
        """One run at every point."""
        size = len(rates)
        tables = [tables_of(mechanism) for mechanism in mechanisms]
        offsets = np.zeros(size + 1, dtype=np.int64)
        np.cumsum([len(off) for off, _ in tables], out=offsets[1:])
        rules = np.array([_rules(m) for m in mechanisms], dtype=np.int64).reshape(size, 4)
        result = _Run(
            np.zeros((size, STATES, OUTCOMES), np.int64),
            np.zeros((size, SUMS)),
            np.zeros((size, BINS), np.int64),
            np.zeros((size, BINS), np.int64),
        )
        needs = {
            "input": bool(np.isfinite(inputs).any()),
            "join": any(off.min() < 1.0 or on.min() < 1.0 for off, on in tables),
            "lifetime": bool(rules[:, 3].any()),
        }
        needed = [purpose for purpose, is_needed in needs.items() if is_needed]
        arrivals, into, coins, lifetimes, transmissions, start, switches = self.draw(run, needed)
        sweep(
            rates,
            1.0 / services,
            1.0 / inputs,
            arrivals,
            into,
            coins,
            lifetimes,
            transmissions,
            start,
            switches,
            rules,
            np.array([m.lifetime_s for m in mechanisms], dtype=np.float64),
            offsets,
            np.concatenate([off for off, _ in tables]),
            np.concatenate([on for _, on in tables]),
            self.settings.window,
            result.counts,
            result.sums,
            result.responses,
            result.delays,
        )
        return result


def _rules(mechanism: Mechanism) -> tuple[int, int, int, int]:
    """Returns the parameters of a mechanism that are whole numbers, as the compiled sweep takes them."""
    exponential = mechanism.expires and mechanism.lifetime_distribution == "exponential"
    sizes = mechanism.buffer_size or 0, mechanism.input_buffer_size or 0
    return *sizes, int(mechanism.protect_connected), int(exponential)


class QueueAccounts:
    """Collects runs; of bins only the sums are kept."""

    def __init__(self, shape: tuple[int, ...], settings: DroppingSettings):
        self.shape, self.duration_s = shape, settings.duration_s
        self._counts: list[NDArray[np.int64]] = []
        self._sums: list[Floats] = []
        size = math.prod(shape)
        self._responses, self._delays = np.zeros((size, BINS), np.int64), np.zeros((size, BINS), np.int64)

    @property
    def runs(self) -> int:
        return len(self._counts)

    def add(self, run: _Run) -> None:
        self._counts.append(run.counts)
        self._sums.append(run.sums)
        self._responses += run.responses
        self._delays += run.delays

    def result(self) -> QueueSweep:
        counts, sums = np.array(self._counts), np.array(self._sums)
        return QueueSweep(self.shape, self.duration_s, counts, sums, self._responses, self._delays)


def _period(name: str, period: Period) -> Distribution:
    if isinstance(period, Distribution):
        return period
    if not 0 < period < math.inf:
        raise ConfigurationError(f"{name}: a mean period of {period} s; it must be above 0 and finite")
    return parse_distribution("exponential").with_mean(float(period))


def _check(sweeper: Sweeper, rates: Floats, services: Floats, inputs: Floats, mechanisms: Sequence[Mechanism]) -> None:
    for i, (rate, service, into, mechanism) in enumerate(
        zip(rates.tolist(), services.tolist(), inputs.tolist(), mechanisms, strict=True)
    ):
        if not (0 < rate < math.inf and service > 0 and into > 0):
            raise ConfigurationError(
                f"point {i}: arrival_per_s {rate}, service_per_s {service} and input_per_s {into} must be above 0"
            )
        if mechanism.input_buffer_size is None and rate >= into:
            raise SaturationError(f"point {i}: {rate:g} events/s into an input queue that processes {into:g}/s")
        shape = None if math.isinf(service) else sweeper.service.with_mean(1.0 / service)
        check_stable(f"point {i}", rate, shape, sweeper.connectivity, mechanism)
