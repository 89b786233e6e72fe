"""Response targets: how long the messages of a subscriber may take, and the decision that a broker keeps them by.

A subscriber that comes and goes asks for a mean response time, or for a share of its messages within a time
(*dropping*, section II.C: a subscription is a pair of filter and threshold). All its subscriptions share one queue, so
a session has one target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

from surecast.errors import ConfigurationError
from surecast.protocol.mqtt import Properties
from surecast.protocol.mqtt.topics import TopicError, validate_filter

__all__ = [
    "ANSWERS",
    "POLICIES",
    "PREFIX",
    "WITHDRAWN",
    "Decision",
    "Policy",
    "ResponseTarget",
    "Withdrawn",
    "answer_of",
    "target_in",
]

PREFIX: Final = "surecast-"
Policy = Literal["best", "probabilistic", "optimal", "finite-buffer", "expiry"]
POLICIES: Final[tuple[Policy, ...]] = ("best", "probabilistic", "optimal", "finite-buffer", "expiry")
"""The policies that a client may ask for. `best` delivers most of what drops nothing while the client is connected."""

_MEAN, _WITHIN, _QUANTILE = "response-mean-ms", "response-ms", "response-quantile"
_SUCCESS, _POLICY, _REQUIRED = "success-min", "response-policy", "response-required"
_NAMES: Final = (_MEAN, _WITHIN, _QUANTILE, _SUCCESS, _POLICY, _REQUIRED)
_KEEP_FIRST: Final = "keep-first"
_KEEP_FIRST_MAX: Final = 16
_NO_TARGET: Final = "none"
Withdrawn = Literal["withdrawn"]
WITHDRAWN: Final[Withdrawn] = "withdrawn"
"""The client wants its target no longer."""
_TIME_MAX_S: Final = 366 * 86_400.0

ANSWERS: Final = (
    "policy",
    "policy-parameter",
    "response-expected-ms",
    "response-high-ms",
    "success-expected",
    "success-low",
)
"""The user properties of a SUBACK, each behind `PREFIX`."""


@dataclass(frozen=True, slots=True)
class ResponseTarget:
    """A target: a mean response time, or a share (`quantile`) of the messages within a time.

    >>> ResponseTarget(7.0, quantile=0.9).text
    '90 % within 7 s'
    >>> ResponseTarget(0.0)
    Traceback (most recent call last):
        ...
    surecast.errors.ConfigurationError: a response time of 0 s; use more than 0 s and at most a year
    """

    time_s: float
    quantile: float = 0.0
    """The share that is to arrive within the time; 0 asks for the mean."""
    success_min: float = 0.0
    """The least share of the messages that is to be delivered at all."""
    policy: Policy = "best"
    is_required: bool = False
    """Refuse the subscription where the target cannot be met."""
    keep_first: tuple[str, ...] = ()
    """Topic filters, the most important first: when a message must go, one on a less important topic goes for it."""

    def __post_init__(self) -> None:
        if not 0.0 < self.time_s <= _TIME_MAX_S:
            raise ConfigurationError(f"a response time of {self.time_s:g} s; use more than 0 s and at most a year")
        if not 0.0 <= self.quantile < 1.0:
            raise ConfigurationError(f"a quantile of {self.quantile:g}; use a number between 0 and 1")
        if not 0.0 <= self.success_min <= 1.0:
            raise ConfigurationError(f"a least success of {self.success_min:g}; use a number from 0 to 1")
        if self.policy not in POLICIES:
            raise ConfigurationError(f"the policy {self.policy!r}; use one of {', '.join(POLICIES)}")
        if len(self.keep_first) > _KEEP_FIRST_MAX:
            raise ConfigurationError(f"{len(self.keep_first)} filters to keep first; use {_KEEP_FIRST_MAX} at most")
        for topic_filter in self.keep_first:
            try:
                validate_filter(topic_filter)
            except TopicError as error:
                raise ConfigurationError(f"to keep first: {error}") from None

    @property
    def text(self) -> str:
        """The target in words."""
        share = f"{100 * self.quantile:.4g} % within" if self.quantile else "a mean of"
        least = f", at least {100 * self.success_min:.4g} % delivered" if self.success_min else ""
        first = f", first {', '.join(self.keep_first)}" if self.keep_first else ""
        return f"{share} {self.time_s:.4g} s{least}{first}"


@dataclass(frozen=True, slots=True)
class Decision:
    """The policy for a target, with its parameters, what is expected of it, and whether the target is met.

    `response_s` is the mean, or the time within which the asked share arrives. `response_high_s` and `success_low` are
    95 % bounds that come from how little the broker has seen yet.
    """

    policy: str = "none"
    join_probability: float = 1.0
    join_threshold: float = math.inf
    queue_messages_max: int = 0
    queue_lifetime_s: float = math.inf
    response_s: float = math.inf
    response_high_s: float = math.inf
    success: float = 1.0
    success_low: float = 1.0
    is_met: bool = False
    reason: str = ""
    """Why the target is not met, and what could be."""

    @property
    def parameter(self) -> str:
        """The parameter in words; empty where nothing is dropped.

        >>> Decision("optimal", join_threshold=21.4).parameter
        'threshold 21.4'
        """
        parts = []
        if self.join_probability < 1.0:
            parts.append(f"join probability {self.join_probability:.4g}")
        if self.join_threshold < math.inf:
            parts.append(f"threshold {self.join_threshold:.5g}")
        if self.queue_messages_max:
            parts.append(f"buffer {self.queue_messages_max}")
        if self.queue_lifetime_s < math.inf:
            parts.append(f"lifetime {self.queue_lifetime_s:.4g} s")
        return ", ".join(parts)


def target_in(properties: Properties) -> ResponseTarget | Withdrawn | None:
    """Returns the target that the user properties of a SUBSCRIBE ask for, or withdraw; None if they say nothing of one.

    >>> target_in(Properties(user=(("surecast-response-mean-ms", "7000"), ("surecast-success-min", "0.6"))))
    ResponseTarget(time_s=7.0, quantile=0.0, success_min=0.6, policy='best', is_required=False, keep_first=())
    >>> target_in(Properties(user=(("surecast-response-mean-ms", "soon"),)))
    Traceback (most recent call last):
        ...
    surecast.errors.ConfigurationError: surecast-response-mean-ms is 'soon'; use a number
    """
    given: dict[str, str] = {}
    keep_first = tuple(value for name, value in properties.user if name == PREFIX + _KEEP_FIRST)
    for name, value in properties.user:
        if not name.startswith(PREFIX) or (key := name[len(PREFIX) :]) not in _NAMES:
            continue
        if given.setdefault(key, value) != value:
            raise ConfigurationError(f"{name} is {given[key]!r} and {value!r}; give it once")
    if not given:
        if keep_first:
            raise ConfigurationError(f"{PREFIX}{_KEEP_FIRST} needs a target beside it, such as {PREFIX}{_MEAN}")
        return None
    if given.get(_MEAN) == _NO_TARGET:
        return WITHDRAWN
    return _target_of(given, keep_first)


def _target_of(given: dict[str, str], keep_first: tuple[str, ...]) -> ResponseTarget:
    if (_MEAN in given) == (_WITHIN in given):
        raise ConfigurationError(f"a target needs either {PREFIX}{_MEAN} or {PREFIX}{_WITHIN}, and not both")
    if (_WITHIN in given) != (_QUANTILE in given):
        raise ConfigurationError(f"{PREFIX}{_WITHIN} and {PREFIX}{_QUANTILE} belong together")
    required = given.get(_REQUIRED, "0")
    if required not in ("0", "1"):
        raise ConfigurationError(f"{PREFIX}{_REQUIRED} is {required!r}; use 0 or 1")
    target = ResponseTarget(
        _number(given, _MEAN if _MEAN in given else _WITHIN) / 1000.0,
        success_min=_number(given, _SUCCESS) if _SUCCESS in given else 0.0,
        policy=given.get(_POLICY, "best"),  # type: ignore[arg-type]  # it is checked there
        is_required=required == "1",
        keep_first=keep_first,
    )
    if _QUANTILE not in given:
        return target
    quantile = _number(given, _QUANTILE)
    if not 0.0 < quantile < 1.0:
        raise ConfigurationError(f"{PREFIX}{_QUANTILE} is {given[_QUANTILE]}; use a number between 0 and 1")
    return replace(target, quantile=quantile)


def _number(given: dict[str, str], key: str) -> float:
    try:
        value = float(given[key]) if len(given[key]) <= 32 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigurationError(f"{PREFIX}{key} is {given[key][:32]!r}; use a number")
    return value


def answer_of(decision: Decision) -> tuple[tuple[str, str], ...]:
    """Returns the user properties that tell a subscriber how its target is kept.

    >>> dict(answer_of(Decision("probabilistic", 0.35, response_s=6.95, response_high_s=9.1, success=0.675)))[
    ...     "surecast-response-expected-ms"]
    '6950'
    """
    values = {
        "policy": decision.policy,
        "policy-parameter": decision.parameter,
        "response-expected-ms": _milliseconds(decision.response_s),
        "response-high-ms": _milliseconds(decision.response_high_s),
        "success-expected": f"{decision.success:.4f}",
        "success-low": f"{decision.success_low:.4f}",
    }
    return tuple((PREFIX + name, values[name]) for name in ANSWERS if values[name])


def _milliseconds(time_s: float) -> str:
    return str(round(1000.0 * time_s)) if time_s < math.inf else ""
