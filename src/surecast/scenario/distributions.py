"""Distributions of times, by name and parameters: each gives three moments and a sampler.

A distribution without a mean is a *shape*: what carries it supplies the mean (a capacity, a time to repair).

>>> erlang = parse_distribution({"distribution": "erlang", "mean": "2s", "stages": 4})
>>> erlang.moments()
(2.0, 5.0, 15.0)
>>> parse_distribution("5ms").kind
'exponential'
>>> parse_distribution("deterministic").with_mean(3.0).moments()
(3.0, 9.0, 27.0)
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from surecast.documents.units import AlsoAs, Duration, parse_duration, parse_rate

__all__ = [
    "Deterministic",
    "Distribution",
    "DistributionSpec",
    "Empirical",
    "Erlang",
    "Exponential",
    "Hyperexponential",
    "Lognormal",
    "PhaseType",
    "Uniform",
    "Weibull",
    "parse_distribution",
]

Moments = tuple[float, float, float]
Array = NDArray[np.float64]


class Distribution(BaseModel):
    """A distribution of non-negative times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    distribution: str
    mean: Duration | None = Field(default=None, description="mean time; left out where a capacity or period gives it")

    @model_validator(mode="after")
    def _mean_above_zero(self) -> Self:
        if self.mean is not None and not 0 < self.mean < math.inf:
            raise PydanticCustomError("mean", "the mean must be above 0 and finite")
        return self

    @model_serializer(mode="wrap")
    def _always_named(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"distribution": self.distribution, **handler(self)}

    @property
    def kind(self) -> str:
        return self.distribution

    @property
    def has_mean(self) -> bool:
        """True if the mean is known: stated, or implied by the other parameters."""
        return self.mean is not None or self._is_scaled()

    @property
    def mean_s(self) -> float:
        """The mean in seconds; a shape without a mean has none to give."""
        if self.mean is not None:
            return self.mean
        if self._is_scaled():
            return self._raw_moments()[0]
        raise ValueError(f"the {self.kind} distribution was given no mean")

    @property
    def squared_cv(self) -> float:
        """The squared coefficient of variation, a pure number that says how variable the times are."""
        first, second, _ = self._raw_moments()
        return second / first**2 - 1.0

    def with_mean(self, mean_s: float) -> Self:
        """Returns the same shape with another mean."""
        return self.model_copy(update={"mean": mean_s})

    def moments(self) -> Moments:
        """Returns the first three moments about zero, in seconds, seconds² and seconds³."""
        m1, m2, m3 = self._raw_moments()
        scale = self.mean_s / m1
        return (m1 * scale, m2 * scale**2, m3 * scale**3)

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        """Returns `size` independent times."""
        return np.asarray(self._raw_sample(rng, size) * (self.mean_s / self._raw_moments()[0]), dtype=np.float64)

    def _is_scaled(self) -> bool:
        """Returns whether the parameters other than the mean fix the scale, in seconds."""
        return False

    def _raw_moments(self) -> Moments:
        """Moments at the scale of the parameters, or at any scale where they fix none."""
        raise TypeError(f"{type(self).__name__} does not say its moments")

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        """Samples at the scale of `_raw_moments`."""
        raise TypeError(f"{type(self).__name__} does not say how to sample")


class Exponential(Distribution):
    """Memoryless times."""

    distribution: Literal["exponential"] = "exponential"

    def _raw_moments(self) -> Moments:
        return (1.0, 2.0, 6.0)

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        return rng.standard_exponential(size)


class Deterministic(Distribution):
    """Always the same time."""

    distribution: Literal["deterministic"] = "deterministic"

    def _raw_moments(self) -> Moments:
        return (1.0, 1.0, 1.0)

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        return np.ones(size)


class Erlang(Distribution):
    """The sum of `stages` equal exponential times: less variable than one of them."""

    distribution: Literal["erlang"] = "erlang"
    stages: int = Field(ge=1, le=1000, description="number of exponential stages")

    def _raw_moments(self) -> Moments:
        k = float(self.stages)
        return (k, k * (k + 1), k * (k + 1) * (k + 2))

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        return rng.standard_gamma(self.stages, size)


class Hyperexponential(Distribution):
    """One of several exponential times, chosen at random: more variable than exponential.

    Given by its branches (`probabilities` and `means`), or by `scv` alone: two branches with balanced means.
    """

    distribution: Literal["hyperexponential"] = "hyperexponential"
    probabilities: tuple[float, ...] | None = Field(default=None, description="probability of each branch; sum 1")
    means: tuple[Duration, ...] | None = Field(default=None, description="mean time of each branch")
    scv: float | None = Field(default=None, ge=1, description="squared coefficient of variation, at least 1")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.scv is None and (self.probabilities is None or self.means is None):
            raise PydanticCustomError("form", "give either scv, or both probabilities and means")
        if self.scv is not None and (self.probabilities is not None or self.means is not None):
            raise PydanticCustomError("form", "give either scv, or probabilities and means, not both")
        if self.probabilities is not None and self.means is not None:
            _check_weights(self.probabilities, len(self.means), "probabilities", "means")
            if min(self.means) <= 0:
                raise PydanticCustomError("form", "every branch needs a mean above 0")
        return self

    def branches(self) -> tuple[Array, Array]:
        """Returns probabilities and means in seconds of the branches, scaled to the distribution's mean."""
        p, m = self._raw_branches()
        return p, m * (self.mean_s / float(p @ m))

    def _is_scaled(self) -> bool:
        return self.means is not None

    def _raw_branches(self) -> tuple[Array, Array]:
        if self.probabilities is not None and self.means is not None:
            return np.array(self.probabilities), np.array(self.means)
        excess = (self.scv or 1.0) - 1.0
        upper = (1.0 + math.sqrt(excess / (excess + 2.0))) / 2.0
        p = np.array([upper, 1.0 - upper])
        return p, 1.0 / (2.0 * p)

    def _raw_moments(self) -> Moments:
        p, m = self._raw_branches()
        return (float(p @ m), float(2 * p @ m**2), float(6 * p @ m**3))

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        p, m = self._raw_branches()
        return np.asarray(rng.standard_exponential(size) * m[rng.choice(len(p), size=size, p=p)], dtype=np.float64)


class Uniform(Distribution):
    """Any time between `low` and `high` alike."""

    distribution: Literal["uniform"] = "uniform"
    low: Duration = Field(description="shortest time")
    high: Duration = Field(description="longest time")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise PydanticCustomError("form", "low must be below high")
        return self

    def _is_scaled(self) -> bool:
        return True

    def _raw_moments(self) -> Moments:
        first, second, third = ((self.high**k - self.low**k) / (k * (self.high - self.low)) for k in (2, 3, 4))
        return (first, second, third)

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        return rng.uniform(self.low, self.high, size)


class Weibull(Distribution):
    """Failures that come early (`shape` below 1) or from wear (above 1)."""

    distribution: Literal["weibull"] = "weibull"
    shape: float = Field(gt=0.05, le=100, description="shape; 1 is exponential")

    def _raw_moments(self) -> Moments:
        first, second, third = (math.gamma(1 + k / self.shape) for k in (1, 2, 3))
        return (first, second, third)

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        return rng.weibull(self.shape, size)


class Lognormal(Distribution):
    """Times whose logarithm is normal: typical of repairs."""

    distribution: Literal["lognormal"] = "lognormal"
    cv: float = Field(gt=0, le=100, description="coefficient of variation: standard deviation over mean")

    def _raw_moments(self) -> Moments:
        growth = 1.0 + self.cv**2
        return (math.sqrt(growth), growth**2, growth**4.5)

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        return rng.lognormal(0.0, math.sqrt(math.log1p(self.cv**2)), size)


class PhaseType(Distribution):
    """Time to absorption of a Markov chain: `rates[i][j]` per second from phase i to j, `exits[i]` to the end."""

    distribution: Literal["phase-type"] = "phase-type"
    initial: tuple[float, ...] = Field(description="probability of starting in each phase; sum 1")
    rates: tuple[tuple[float, ...], ...] = Field(description="square matrix of rates per second between phases")
    exits: tuple[float, ...] = Field(description="rate per second from each phase to the end")

    @model_validator(mode="after")
    def _absorbing(self) -> Self:
        n = len(self.initial)
        _check_weights(self.initial, len(self.exits), "initial", "exits")
        if len(self.rates) != n or any(len(row) != n for row in self.rates):
            raise PydanticCustomError("form", "rates must be a square matrix as large as initial")
        if min(self.exits) < 0 or min(min(row) for row in self.rates) < 0:
            raise PydanticCustomError("form", "rates and exits must not be negative; the diagonal is derived")
        reaches_end = {i for i in range(n) if self.exits[i] > 0}
        for _ in range(n):
            reaches_end |= {i for i in range(n) if any(self.rates[i][j] > 0 for j in reaches_end)}
        if len(reaches_end) < n:
            raise PydanticCustomError("form", "every phase must lead to the end, directly or through others")
        return self

    def generator(self) -> tuple[Array, Array]:
        """Returns the initial vector and sub-generator matrix, per second, scaled to the distribution's mean."""
        initial, matrix = self._raw_generator()
        return initial, matrix * (self._raw_moments()[0] / self.mean_s)

    def _is_scaled(self) -> bool:
        return True

    def _raw_generator(self) -> tuple[Array, Array]:
        matrix = np.array(self.rates, dtype=float)
        np.fill_diagonal(matrix, 0.0)
        np.fill_diagonal(matrix, -(matrix.sum(axis=1) + np.array(self.exits)))
        return np.array(self.initial, dtype=float), matrix

    def _raw_moments(self) -> Moments:
        initial, matrix = self._raw_generator()
        inverse = np.linalg.inv(-matrix)
        first = initial @ inverse
        second = first @ inverse
        return (float(first.sum()), float(2 * second.sum()), float(6 * (second @ inverse).sum()))

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        initial, matrix = self._raw_generator()
        leaving = -np.diag(matrix)
        jumps = np.hstack([matrix + np.diag(leaving), np.array(self.exits)[:, None]]) / leaving[:, None]
        cumulative = np.cumsum(jumps, axis=1)
        times = np.zeros(size)
        alive = np.arange(size)
        phase = rng.choice(len(initial), size=size, p=initial)
        while alive.size:
            times[alive] += rng.standard_exponential(alive.size) / leaving[phase]
            drawn = rng.random(alive.size)[:, None]
            phase = np.minimum((drawn >= cumulative[phase]).sum(axis=1), len(initial))
            stays = phase < len(initial)
            alive, phase = alive[stays], phase[stays]
        return times


class Empirical(Distribution):
    """Measured times, each drawn with its weight."""

    distribution: Literal["empirical"] = "empirical"
    values: tuple[Duration, ...] = Field(min_length=1, description="the measured times")
    weights: tuple[float, ...] | None = Field(default=None, description="weight of each value; equal where left out")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.weights is not None:
            if len(self.weights) != len(self.values):
                raise PydanticCustomError("form", "weights and values must be equally long")
            if min(self.weights) < 0 or sum(self.weights) <= 0:
                raise PydanticCustomError("form", "weights must not be negative, and not all zero")
        if not 0 < self._raw_moments()[0] < math.inf:
            raise PydanticCustomError("form", "the mean of the values must be above 0 and finite")
        return self

    def _is_scaled(self) -> bool:
        return True

    def _probabilities(self) -> Array:
        weights = np.ones(len(self.values)) if self.weights is None else np.array(self.weights)
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def _raw_moments(self) -> Moments:
        p, values = self._probabilities(), np.array(self.values)
        return (float(p @ values), float(p @ values**2), float(p @ values**3))

    def _raw_sample(self, rng: np.random.Generator, size: int) -> Array:
        return rng.choice(np.array(self.values), size=size, p=self._probabilities())


def _check_weights(weights: tuple[float, ...], length: int, name: str, other: str) -> None:
    if len(weights) != length or not weights:
        raise PydanticCustomError("form", "{a} and {b} must be equally long", {"a": name, "b": other})
    if min(weights) < 0 or not math.isclose(sum(weights), 1, abs_tol=1e-9):
        raise PydanticCustomError("form", "{a} must not be negative and must sum to 1", {"a": name})


NAMES = (
    "exponential",
    "deterministic",
    "erlang",
    "hyperexponential",
    "uniform",
    "weibull",
    "lognormal",
    "phase-type",
    "empirical",
)


def _normalise(value: Any) -> Any:
    """Returns a bare time or rate as an exponential time, and a bare name as a shape."""
    if isinstance(value, str):
        if value in NAMES:
            return {"distribution": value}
        try:
            seconds = 1.0 / parse_rate(value) if "/" in value or " per " in value else parse_duration(value)
        except (ValueError, ZeroDivisionError):
            raise PydanticCustomError(
                "distribution",
                "{value} is no distribution; write a mean such as 5ms, a rate such as 1400/s, one of {names}, "
                "or a mapping such as {example}",
                {
                    "value": repr(value),
                    "names": ", ".join(NAMES),
                    "example": "{distribution: erlang, mean: 5ms, stages: 4}",
                },
            ) from None
        return {"distribution": "exponential", "mean": f"{seconds!r}s"}
    if isinstance(value, (int, float)):
        hint = "write a mean such as 5ms or a rate such as 1400/s"
        raise PydanticCustomError("distribution", "{value} has no unit; {hint}", {"value": repr(value), "hint": hint})
    if isinstance(value, dict) and "distribution" not in value:
        return {"distribution": "exponential", **value}
    return value


DistributionSpec = Annotated[
    Annotated[
        Exponential | Deterministic | Erlang | Hyperexponential | Uniform | Weibull | Lognormal | PhaseType | Empirical,
        Field(discriminator="distribution"),
    ],
    BeforeValidator(_normalise),
    AlsoAs({"type": "string"}),
]
_ADAPTER: TypeAdapter[Distribution] = TypeAdapter(DistributionSpec)


def parse_distribution(value: Any) -> Distribution:
    """Returns a distribution from its form in a scenario file: a mean, a rate, a name, or a mapping."""
    return _ADAPTER.validate_python(value)
