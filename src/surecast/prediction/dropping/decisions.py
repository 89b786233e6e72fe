"""The policy by which a broker keeps a response target, from what it has seen of the subscriber.

A broker asks a process of its own, so that its loop does not wait for the numbers: a question in a line of JSON on
standard input, the decision in a line on standard output: `python -m surecast.prediction.dropping.decisions`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, TextIO

import numpy as np

from surecast.errors import AssumptionError, SurecastError
from surecast.prediction.dropping.choose import best_admission
from surecast.prediction.dropping.connection_phases import phases_of_moments
from surecast.prediction.dropping.onoff import TargetVerdict
from surecast.prediction.dropping.queue import OnOffQueue, QueueAnswer, evaluate
from surecast.prediction.dropping.search import ResponseTarget, largest_parameter
from surecast.scenario.mechanism import Mechanism

__all__ = ["answer_lines", "decide"]

_PARAMETERS: Final = {
    "probabilistic": "join_probability",
    "finite-buffer": "buffer_size",
    "expiry": "lifetime_s",
}
Factors = tuple[float, float, float, float]
_DRAWS: Final = 24
_PRIOR_WEIGHT: Final = 2.0
_STEPS: Final = 20


def decide(question: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the policy for a target, what is expected of it, and whether it meets the target.

    >>> periods = [1000.0, 20.0, 800.0, 48_000.0]
    >>> answer = decide({"time_s": 7.0, "quantile": 0.0, "success_min": 0.5, "policy": "probabilistic", "on": periods,
    ...                  "off": periods, "arrival_per_s": 2.0, "arrived": 1e5, "service_per_s": 8.0, "served": 1e5})
    >>> round(answer["join_probability"], 3), round(answer["success"], 3), answer["is_met"]
    (0.354, 0.677, True)
    """
    target = ResponseTarget(question["time_s"], question["quantile"] or None)
    queue = _queue(question)
    policy = question["policy"]
    try:
        mechanism = _mechanism(queue, policy, target)
    except AssumptionError as error:
        return _refused(queue, policy, target, str(error))
    if mechanism is None:
        return _refused(queue, policy, target, "")
    answer = evaluate(queue, mechanism)
    decision = _decision(question, mechanism, answer, target) | {"is_met": True}
    least = question["success_min"]
    if answer.success_share < least:
        decision |= {"is_met": False, "reason": _too_few(queue, policy, target, answer, least)}
    return decision


def _queue(question: Mapping[str, Any], factors: Factors = (1.0, 1.0, 1.0, 1.0)) -> OnOffQueue:
    """Returns the queue of a subscriber with its mean periods and its rates multiplied by factors."""
    on, off, arrival, service = factors
    phases = phases_of_moments(_moments(question["on"], on), _moments(question["off"], off))
    return OnOffQueue(arrival * question["arrival_per_s"], service * question["service_per_s"], phases)


def _moments(seen: list[float], factor: float) -> tuple[float, float, float]:
    _, mean, second, third = seen
    return factor * mean, factor**2 * second, factor**3 * third


def _mechanism(queue: OnOffQueue, policy: str, target: ResponseTarget) -> Mechanism | None:
    """Returns the mechanism that meets a target; None if none of the policy does."""
    if policy in ("best", "optimal"):
        if queue.is_stable() and target.excess(evaluate(queue, Mechanism())) <= 0.0:
            return Mechanism()
        if not queue.is_stable(0.0):
            return None
        try:
            return best_admission(queue, target)
        except AssumptionError:
            policy = "probabilistic"  # the threshold would be longer than queues that can be computed
    search = largest_parameter(queue, _PARAMETERS[policy], target)  # type: ignore[arg-type]
    return None if search.verdict in (TargetVerdict.IMPOSSIBLE, TargetVerdict.UNSTABLE) else search.mechanism


def _decision(
    question: Mapping[str, Any], mechanism: Mechanism, answer: QueueAnswer, target: ResponseTarget
) -> dict[str, Any]:
    decision: dict[str, Any] = {"policy": mechanism.name}
    if mechanism.join_table is not None:
        decision["join_threshold"] = sum(mechanism.join_table[0])
    elif mechanism.join_probability < 1.0:
        decision["join_probability"] = mechanism.join_probability
    if mechanism.buffer_size is not None:
        decision["queue_messages_max"] = mechanism.buffer_size
    if mechanism.expires:
        decision["queue_lifetime_s"] = mechanism.lifetime_s
    responses, shares = [], []
    for factors in _draws(question):
        try:
            drawn = evaluate(_queue(question, factors), mechanism)
        except SurecastError:
            responses.append(math.inf)  # the queue would grow without end
            continue
        responses.append(_response_s(drawn, target))
        shares.append(drawn.success_share)
    return decision | {
        "response_s": _response_s(answer, target),
        "response_high_s": float(np.quantile(responses, 0.95, method="higher")),
        "success": answer.success_share,
        "success_low": float(np.quantile(shares, 0.05, method="lower")) if shares else 0.0,
    }


def _draws(question: Mapping[str, Any]) -> Iterator[Factors]:
    """Yields factors for mean periods and rates, as uncertain as what was seen leaves them; the same at every call."""
    spreads = [
        _spread(question["on"]),
        _spread(question["off"]),
        1.0 / math.sqrt(question["arrived"] + 1.0),
        1.0 / math.sqrt(question["served"] + 1.0),
    ]
    for normal in np.random.default_rng(1).standard_normal((_DRAWS, 4)):
        on, off, arrival, service = (math.exp(min(spread, 1.0) * z) for spread, z in zip(spreads, normal, strict=True))
        yield on, off, arrival, service


def _spread(seen: list[float]) -> float:
    count, mean, second, _ = seen
    return math.sqrt(max(0.0, second / (mean * mean) - 1.0) / (count + _PRIOR_WEIGHT))


def _response_s(answer: QueueAnswer, target: ResponseTarget) -> float:
    return answer.response_mean_s if target.quantile is None else answer.quantile_s(target.quantile)


def _refused(queue: OnOffQueue, policy: str, target: ResponseTarget, why: str) -> dict[str, Any]:
    """Returns the decision where the target cannot be met: as near to it as the policy comes, and what could be met."""
    nearest = Mechanism(join_probability=0.0)
    decision: dict[str, Any] = {"policy": "probabilistic", "join_probability": 0.0, "is_met": False, "success": 0.0}
    if not queue.is_stable(0.0):
        lifetime = largest_parameter(queue, "lifetime_s", target).mechanism
        could = f"; expiry after {lifetime.lifetime_s:.4g} s meets the target" if lifetime is not None else ""
        reason = (
            f"{queue.arrival_per_s:.4g} messages/s come while the subscriber is connected, and "
            f"{queue.service_per_s:.4g}/s can be sent{could}"
        )
        return decision | {"reason": reason}
    answer = evaluate(queue, nearest)
    least_s = _response_s(answer, target)
    what = "the mean" if target.quantile is None else f"the time of {100 * target.quantile:.4g} %"
    reason = f"{what} is {least_s:.4g} s if nothing joins while the subscriber is away; ask for no less"
    if least_s <= target.time_s:
        reason = why or f"no {policy} policy meets {target.time_s:.4g} s"
    return decision | {"reason": reason, "response_s": least_s, "success": answer.success_share}


def _too_few(queue: OnOffQueue, policy: str, target: ResponseTarget, answer: QueueAnswer, least: float) -> str:
    """Returns why a least success is not reached, and with which response time it would be."""
    text = f"{100 * answer.success_share:.3g} % of the messages are delivered with this response time"
    low, high = target.time_s, target.time_s
    for _ in range(_STEPS):
        high *= 2.0
        if _success(queue, policy, high, target.quantile) >= least:
            break
        low = high
    else:
        return text
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _success(queue, policy, middle, target.quantile) >= least else (middle, high)
    return f"{text}; {100 * least:.4g} % are with {high:.3g} s"


def _success(queue: OnOffQueue, policy: str, time_s: float, quantile: float | None) -> float:
    try:
        mechanism = _mechanism(queue, policy, ResponseTarget(time_s, quantile))
    except AssumptionError:
        return 1.0  # the bound is so large that nothing is dropped
    return 0.0 if mechanism is None else evaluate(queue, mechanism).success_share


def answer_lines(questions: TextIO, answers: TextIO) -> None:
    """Answers a question a line until there are no more; a question that fails has an `error`."""
    for line in questions:
        try:
            question = json.loads(line)
            answer = decide(question) | {"key": question["key"], "revision": question["revision"]}
        except (SurecastError, ArithmeticError, ValueError, LookupError, TypeError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    answer_lines(sys.stdin, sys.stdout)
