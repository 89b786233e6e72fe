"""Gossip among the subscribers of an event, round by round: who misses how much, and who can help.

The recursion is that of an epidemic in a large group: the number of subscribers that have the event is taken to follow
its mean, while what each one misses is followed exactly. `coded delivery` section IV: push sends packets, push/pull
announces the event at once, pull announces it in the next round; whoever misses packets asks for as many as it misses.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.predict.coding.chains import SENT_MAX, arriving_ranks
from surecast.predict.coding.links import binomial

__all__ = ["GossipLaw", "Recovery", "Spread", "answer_matrix", "completed", "recover", "rounds_in_time"]

Array = NDArray[np.float64]

Success: TypeAlias = float | tuple[tuple[float, float], ...]
"""Probability that a message between two members arrives; or probabilities, each with the part of the pairs."""

MODES: Final = ("push", "pull", "push-pull")
_PUSHES_MAX: Final = 8
"""More pushes than this to one subscriber in one round leave it nothing to miss."""


@dataclass(frozen=True, slots=True)
class GossipLaw:
    """How the subscribers of an event help each other.

    `members` are all that take part, a publisher included where it gossips; `packets` is what an event has, and
    `pushed` what a push sends of it, all by default. `overlap`
    rounds pass before a request is answered, so that so many requests are under way at a time. With `coded` false plain
    packets are sent by their numbers, and none is sent in vain.
    """

    mode: str
    members: int
    packets: int
    fan_out: int
    rounds: int
    field_bits: int = 8
    coded: bool = True
    overlap: int = 1
    pushed: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigurationError(f"gossip mode {self.mode!r}; write {', '.join(MODES)}")
        for name in ("members", "packets", "fan_out", "overlap"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"gossip {name}: {getattr(self, name)} must be 1 or more")
        if self.packets > SENT_MAX:
            raise AssumptionError(
                f"gossip: events of {self.packets} packets are predicted up to {SENT_MAX}; simulate larger ones"
            )
        if self.rounds < 0:
            raise ConfigurationError(f"gossip rounds: {self.rounds} must be 0 or more")

    @property
    def push_size(self) -> int:
        """Packets of a push."""
        return self.packets if self.pushed is None else min(self.pushed, self.packets)

    @property
    def tries(self) -> int:
        """How often, in steps of `overlap` rounds, an event is offered or asked for."""
        return -(-self.rounds // self.overlap)

    def meets(self, success: float) -> float:
        """Probability that one who offers an event reaches a given other in one round."""
        if self.members < 2:
            return 0.0
        return min(self.fan_out, self.members - 1) / (self.members - 1) * success


@dataclass(frozen=True)
class Spread:
    """How an event spreads, step by step, in the mean: how many of the others offer it to one who misses packets, how
    many are complete, and the messages of all together."""

    offering: Array
    complete: Array
    messages: dict[str, float]


@dataclass(frozen=True)
class Recovery:
    """The answer: `complete[d]` is the probability that one who misses d packets at first has all in the end."""

    spread: Spread
    complete: Array


def rounds_in_time(deadline_s: float, start_s: float, interval_s: float, exchange_s: float, mode: str) -> int:
    """Rounds that end before a deadline: the last must leave time for announcement, request and answer.

    With pull the first round comes half an interval late in the mean.

    >>> rounds_in_time(2.0, start_s=0.5, interval_s=0.1, exchange_s=0.15, mode="push-pull")
    14
    """
    left_s = deadline_s - start_s - exchange_s - (0.5 * interval_s if mode == "pull" else 0.0)
    return 0 if left_s < 0.0 else math.floor(left_s / interval_s + 1e-9) + 1


def recover(law: GossipLaw, missing: Array, success: Success, steps: int, own: Success | None = None) -> Recovery:
    """Follows an event through a group for some steps of `overlap` rounds.

    `missing[d]` is how many members miss d packets at first, and so `missing[0]` how many have the event. `success` is
    the probability that a message between two members arrives, or several with the parts of the pairs that have them,
    and `own` the same for the member that is asked about.

    >>> law = GossipLaw("push-pull", members=100, packets=4, fan_out=3, rounds=4)
    >>> found = recover(law, np.array([90.0, 5.0, 5.0, 0.0, 0.0]), success=0.9, steps=6)
    >>> bool(found.complete[1] > 0.99), bool(found.complete[4] > 0.99)
    (True, True)
    """
    if missing.shape != (law.packets + 1,):
        raise ConfigurationError(f"missing: {missing.shape} numbers; there must be one for 0 to {law.packets} packets")
    if not math.isclose(float(missing.sum()), law.members, rel_tol=1e-6):
        raise AssumptionError(f"missing: it counts {missing.sum():g} members, and the group has {law.members}")
    spread = _forward(law, missing, success, steps if law.rounds else 0)
    return Recovery(spread, completed(law, spread, success if own is None else own))


def _forward(law: GossipLaw, missing: Array, success: Success, steps: int) -> Spread:
    tries = law.tries
    unaware = missing.copy()
    unaware[0] = 0.0
    asking = np.zeros((tries, law.packets + 1))  # by the tries that are left
    cohorts = np.zeros(steps + 1)  # by the step in which they have become complete
    cohorts[0] = missing[0]
    offering, complete = np.zeros(steps), np.zeros(steps + 1)
    complete[0] = missing[0]
    answer = answer_matrix(law, success)
    kinds = ("push",) if law.mode == "push" else ("digest", "request", "reply")
    messages = dict.fromkeys(kinds, 0.0)
    asked = math.fsum(chance * weight for chance, weight in _announcers(success))
    lacking = float(missing[1:].sum())
    others = 1.0 - 1.0 / lacking if lacking > 1.0 else 0.0  # of those who become complete, not counting oneself
    for t in range(steps):
        recent = float(cohorts[max(1, t - tries + 1) : t + 1].sum())
        first = float(cohorts[0]) if t < tries else 0.0
        offering[t] = first + recent * others
        sent = (first + recent) * min(law.fan_out, law.members - 1) * min(law.overlap, law.rounds)
        if law.mode == "push":
            messages["push"] += sent * law.push_size
            unaware = unaware @ _push_matrix(law, success, float(offering[t]))
            new = unaware[0]
        else:
            messages["digest"] += sent
            met = _met(law, success, float(offering[t]))
            asks = [unaware * met, *(asking[left] for left in range(tries))]
            ask = np.sum(asks, axis=0) * law.overlap
            messages["request"] += float(ask.sum())
            messages["reply"] += float(ask @ np.arange(law.packets + 1)) * asked
            unaware = unaware * (1.0 - met)
            done = [held @ answer for held in asks]
            asking = np.zeros_like(asking)
            new = 0.0
            for left, held in zip((tries - 1, *(left - 1 for left in range(tries))), done, strict=True):
                new += held[0]
                held[0] = 0.0
                if left > 0:
                    asking[left] += held
                else:  # a peer that announces the event again starts it anew
                    unaware += held
        unaware[0] = 0.0
        cohorts[t + 1] = new
        complete[t + 1] = complete[t] + new
    return Spread(offering, complete, messages)


def completed(law: GossipLaw, spread: Spread, success: Success) -> Array:
    """For one member, to whom messages come with a probability: P[complete at the end], by what it misses at first."""
    tries = law.tries
    answer = answer_matrix(law, success)
    unaware = np.zeros(law.packets + 1)
    unaware[0] = 1.0
    asking = np.tile(unaware, (tries + 1, 1))  # by the tries that are left; without one it is unaware again
    for offered in spread.offering[::-1]:
        if law.mode == "push":
            unaware = _push_matrix(law, success, float(offered)) @ unaware
            continue
        met = _met(law, success, float(offered))
        asking[0] = unaware
        asked = asking[:tries] @ answer.T
        unaware = (1.0 - met) * unaware + met * asked[tries - 1]
        unaware[0] = 1.0
        asking[1:] = asked
    return unaware


def mean_of(success: Success) -> float:
    """The mean of probabilities."""
    return success if isinstance(success, float) else math.fsum(chance * weight for chance, weight in success)


def _announcers(success: Success) -> tuple[tuple[float, float], ...]:
    """How well those are reached whose announcement has come: the near ones are heard, and asked, more often."""
    if isinstance(success, float):
        return ((success, 1.0),)
    mean = mean_of(success)
    return tuple((chance, weight * chance / mean) for chance, weight in success) if mean > 0.0 else success


def _met(law: GossipLaw, success: Success, offering: float) -> float:
    """Probability that a member hears of an event in one step, from anyone who offers it."""
    success = mean_of(success)
    return -math.expm1(offering * min(law.overlap, law.rounds) * math.log1p(-min(law.meets(success), 1.0 - 1e-15)))


def answer_matrix(law: GossipLaw, success: Success) -> Array:
    """P[missing afterwards | missing before] for one who asks: each request is answered by as many as it misses."""
    found = np.zeros((law.packets + 1, law.packets + 1))
    for chance, weight in _announcers(success):
        found += weight * _answers(law.packets, law.field_bits, law.coded, law.overlap, chance)
    return found


@lru_cache(maxsize=512)
def _answers(packets: int, field_bits: int, coded: bool, requests: int, success: float) -> Array:
    matrix = np.zeros((packets + 1, packets + 1))
    matrix[0, 0] = 1.0
    answered = binomial(requests, success)
    if not coded:  # asked for by number: a packet is still missing if it was lost every time
        for d in range(1, packets + 1):
            for times, weight in enumerate(answered):
                matrix[d, : d + 1] += weight * binomial(d, (1.0 - success) ** times)
        return matrix
    for sent, ranks in enumerate(arriving_ranks(packets, packets * requests, success, field_bits)):
        for times, weight in enumerate(answered):
            d, rest = divmod(sent, times) if times else (0, 1)
            if rest == 0 and 1 <= d <= packets:
                matrix[d, : d + 1] += weight * ranks[d, d::-1]
    for d in range(1, packets + 1):
        matrix[d, d] += answered[0]
    matrix.setflags(write=False)
    return matrix


def _push_matrix(law: GossipLaw, success: Success, offering: float) -> Array:
    """The same for one who gets whatever is pushed in a step."""
    meets = law.meets(1.0)
    pushes = offering * min(law.overlap, law.rounds)
    # A binomial number of pushes, whose number of trials is a mean and need not be whole.
    weights = np.empty(_PUSHES_MAX + 1)
    weights[0] = (1.0 - meets) ** pushes if meets < 1.0 else float(pushes <= 0.0)
    for y in range(1, _PUSHES_MAX + 1):
        odds = meets / (1.0 - meets) if meets < 1.0 else math.inf
        weights[y] = weights[y - 1] * max(pushes - y + 1, 0.0) / y * odds if weights[y - 1] > 0.0 else 0.0
    weights[-1] += max(0.0, 1.0 - float(weights.sum()))
    weights /= weights.sum()
    pairs = ((success, 1.0),) if isinstance(success, float) else success
    found = np.zeros((law.packets + 1, law.packets + 1))
    for chance, weight in pairs:
        found += weight * np.tensordot(
            weights, _pushed(law.packets, law.push_size, law.field_bits, law.coded, chance), axes=1
        )
    return found


@lru_cache(maxsize=64)
def _pushed(packets: int, size: int, field_bits: int, coded: bool, success: float) -> Array:
    """P[missing afterwards | missing before] by the number of pushes, first index; a push has so many packets.

    Of plain ones it has a random choice, each of which is taken to be in it on its own.
    """
    stack = np.zeros((_PUSHES_MAX + 1, packets + 1, packets + 1))
    if not coded:
        for pushes, d in itertools.product(range(_PUSHES_MAX + 1), range(packets + 1)):
            stack[pushes, d, : d + 1] = binomial(d, (1.0 - success * size / packets) ** pushes)
        return stack
    for sent, ranks in enumerate(arriving_ranks(packets, size * _PUSHES_MAX, success, field_bits)):
        if sent % size == 0:
            for d in range(packets + 1):
                stack[sent // size, d, : d + 1] = ranks[d, d::-1]
    return stack
