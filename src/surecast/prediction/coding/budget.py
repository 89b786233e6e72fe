"""The cheapest redundancy, paths and gossip rounds with which every subscriber gets a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.coding.coding_report import message_bytes
from surecast.prediction.coding.lossy_network import ChannelAssumptions, audiences_of
from surecast.prediction.coding.packet_schemes import Forecaster
from surecast.prediction.coding.ranks import check_target
from surecast.scenario.paths import PATH_KINDS, PathKind
from surecast.scenario.spec.delivery import Gossip
from surecast.scenario.system import System

__all__ = ["COSTS", "Budget", "Choice", "choose_coding"]

Cost = Literal["packets", "bytes"]
COSTS: Final[tuple[Cost, ...]] = ("packets", "bytes")
_SAMPLES_MIN: Final = 1000
_SAMPLES_MAX: Final = 20_000
_COARSE: Final = (0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Redundancies tried first; then the least that suffices is looked for between two of them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to deliver: its settings, what it costs for one event, and what subscribers get."""

    paths: PathKind
    coded_packets: int
    redundancy: float
    rounds: int
    packets_per_event: float
    bytes_per_event: float
    worst: float
    mean: float
    all_on_time: float
    met: bool

    def cost(self, by: Cost) -> float:
        return self.packets_per_event if by == "packets" else self.bytes_per_event


@dataclass(frozen=True, slots=True)
class Budget:
    """The answer: the best choice of each kind of paths and number of rounds, the cheapest that meets the target first.

    Those that do not meet it come last, the most reliable first. `refused` says which paths cannot be predicted.
    """

    target: float
    by: Cost
    choices: tuple[Choice, ...]
    refused: tuple[str, ...] = ()

    @property
    def best(self) -> Choice | None:
        """The cheapest that meets the target; None if none does."""
        return self.choices[0] if self.choices and self.choices[0].met else None


def choose_coding(
    system: System,
    target: float,
    *,
    by: Cost = "packets",
    rounds_max: int = 6,
    kinds: Sequence[PathKind] = PATH_KINDS,
    channel: ChannelAssumptions | None = None,
    samples: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Budget:
    """Searches redundancy, paths and rounds for the least cost at which the worst served subscriber gets the target.

    For each kind of paths and number of rounds the least redundancy that suffices is found by bisection below the first
    of a coarse grid that does. Without gossip that is the cheapest; with gossip more redundancy may save answers, and
    only what was tried on the way is compared. Paths that share links rest on `samples` draws; left out, as many as
    show ten misses at the target, and no more than 20,000, so that beyond 0.9995 the choice among such paths is rough.
    Choice and forecast rest on the same draws, which flatters the choice.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [{between: [a, b], loss: 0.1}]},
    ...  workload: {topics: [t], deadline: 2s, publishers: [{name: p, home: a, topics: [t], rate: 1/s}],
    ...             subscribers: [{name: s, home: b, topics: [t]}]},
    ...  delivery: {coding: {packets: 32, gossip: null}}}
    ... '''))
    >>> best = choose_coding(system, 0.999, kinds=["tree"]).best
    >>> best.coded_packets, best.packets_per_event, best.rounds
    (11, 43.0, 0)
    """
    check_target(target)
    if by not in COSTS:
        raise ConfigurationError(f"cost {by!r}; write packets or bytes")
    if rounds_max < 0:
        raise ConfigurationError(f"rounds: {rounds_max} must be 0 or more")
    if samples is None:
        samples = min(max(_SAMPLES_MIN, math.ceil(10.0 / (1.0 - target))), _SAMPLES_MAX)
    search = _Search(Forecaster(system, channel, samples), target, by)
    gossip = search.forecaster.coding.gossip
    rounds = range(rounds_max + 1) if gossip is not None else range(1)
    choices: list[Choice] = []
    refused: list[str] = []
    total = len(kinds) * len(rounds)
    for i, kind in enumerate(kinds):
        for j, count in enumerate(rounds):
            try:
                choices.append(search.best(kind, count))
            except AssumptionError as refusal:
                refused.append(f"{kind}: {refusal}")
                break
            finally:
                if progress is not None:
                    progress(i * len(rounds) + j + 1, total)
    if not choices:
        raise AssumptionError(f"no paths can be predicted: {refused[0] if refused else 'none was named'}")
    choices.sort(key=lambda choice: (not choice.met, choice.cost(by) if choice.met else -choice.worst))
    return Budget(target, by, tuple(choices), tuple(refused))


class _Search:
    """The search for one kind of paths and number of rounds at a time."""

    def __init__(self, forecaster: Forecaster, target: float, by: Cost):
        self.forecaster = forecaster
        self.audiences = audiences_of(forecaster.system)
        if not self.audiences:
            raise AssumptionError(f"{forecaster.system.name}: no publisher shares a topic with a subscriber")
        self.target = target
        self.by = by

    def best(self, kind: PathKind, rounds: int) -> Choice:
        """Returns the cheapest choice that meets the target, or the most reliable if none does."""
        packets = self.forecaster.coding.packets
        tried: dict[int, Choice] = {}
        low = -1
        for redundancy in _COARSE:
            coded = math.ceil(redundancy * packets)
            try:
                tried[coded] = self.choice(kind, coded, rounds)
            except AssumptionError:
                if not tried:
                    raise
                break  # more packets than the paths carry
            if tried[coded].met:
                high = coded
                while high - low > 1:
                    middle = (low + high) // 2
                    tried[middle] = self.choice(kind, middle, rounds)
                    low, high = (low, middle) if tried[middle].met else (middle, high)
                break
            low = coded
        met = [choice for choice in tried.values() if choice.met]
        if met:
            return min(met, key=lambda choice: choice.cost(self.by))
        return max(tried.values(), key=lambda choice: choice.worst)

    def choice(self, kind: PathKind, coded: int, rounds: int) -> Choice:
        gossip = self.forecaster.coding.gossip
        chosen = None if gossip is None or rounds == 0 else _with_rounds(gossip, rounds)
        event = self.forecaster.event(coded)
        whole = math.fsum(audience.rate_per_s for audience in self.audiences)
        size = math.fsum(audience.rate_per_s * audience.size for audience in self.audiences)
        worst, mean, everyone, packets, octets = 1.0, 0.0, 0.0, 0.0, 0.0
        for audience in self.audiences:
            outcome = self.forecaster.coded(audience, kind, coded, chosen)
            part = audience.rate_per_s / whole
            worst = min(worst, float(outcome.on_time.min()))
            mean += audience.rate_per_s * float(outcome.on_time @ audience.weights) / size
            everyone += part * outcome.all_on_time
            packets += part * math.fsum(outcome.messages.values())
            octets += part * math.fsum(n * message_bytes(k, event) for k, n in outcome.messages.items())
        met = worst >= self.target
        redundancy = coded / event.packets
        return Choice(kind, coded, redundancy, rounds, packets, octets, worst, mean, everyone, met)


def _with_rounds(gossip: Gossip, rounds: int) -> Gossip:
    return gossip.model_copy(update={"rounds": rounds})
