"""Phase-type times by expectation maximisation: mixtures of Erlang times, of up to four stages in all.

Mixtures of Erlang times come as near as one likes to any distribution of times, and both steps of the algorithm have
a closed form, also for times that were cut off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammaincc, gammaln, logsumexp

from surecast.errors import AssumptionError
from surecast.pipeline.learn.distribution_fits import FittedDistribution
from surecast.pipeline.learn.samples import Times

__all__ = ["STEADY", "VARIABLE", "fit_erlang_mixture", "fit_phase_type"]

Array = NDArray[np.float64]
STEADY: Final = ((2,), (3,), (4,), (1, 2), (2, 2))
VARIABLE: Final = ((1, 1), (1, 2), (1, 3))
"""Stages of each branch, of the mixtures that are tried for times less and more variable than exponential ones. Three
branches are hardly ever told apart by a log."""
_ROUNDS_MAX = 150
_GAIN_MIN = 1e-8
_SHARE_MIN = 1e-6


@dataclass(frozen=True, eq=False)
class _Mixture:
    """The stages of each branch; parameters are the logarithmic mean, log rates and log odds relative to the first
    branch."""

    stages: Array

    def log_density(self, t: Array, p: Array) -> Array:
        shares, rates = self.parts(p)
        return np.asarray(logsumexp(_branch_density(t, self.stages, rates) + np.log(shares), axis=1))

    def log_survival(self, t: Array, p: Array) -> Array:
        shares, rates = self.parts(p)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(gammaincc(self.stages, t[:, None] * rates) @ shares, 1e-300)))

    def log_mean(self, p: Array) -> float:
        return float(p[0])

    def parts(self, p: Array) -> tuple[Array, Array]:
        """Shares and rates of the branches."""
        branches = len(self.stages)
        odds = np.concatenate([[0.0], p[branches:]])
        shares = np.exp(odds - logsumexp(odds))
        relative = np.exp(np.concatenate([[0.0], p[1:branches]]))
        scale = float(shares @ (self.stages / relative)) / math.exp(p[0])
        return shares, relative * scale

    def parameters(self, shares: Array, rates: Array) -> Array:
        mean = float(shares @ (self.stages / rates))
        return np.concatenate([[math.log(mean)], np.log(rates[1:] / rates[0]), np.log(shares[1:] / shares[0])])

    def spec(self, p: Array) -> dict[str, Any]:
        """Returns the mixture in the form of a scenario file: Erlang or hyperexponential where it is one, and phases
        otherwise."""
        shares, rates = self.parts(p)
        if len(self.stages) == 1:
            return {"distribution": "erlang", "stages": int(self.stages[0])}
        if (self.stages == 1).all():
            first = float(f"{shares[0]:.9g}")
            return {
                "distribution": "hyperexponential",
                "probabilities": [first, 1.0 - first],
                "means": [f"{1.0 / rate:.9g}s" for rate in rates],
            }
        size = int(self.stages.sum())
        matrix, exits, initial = np.zeros((size, size)), np.zeros(size), np.zeros(size)
        place = 0
        for stages, rate, share in zip(self.stages.astype(int), rates, shares, strict=True):
            initial[place] = share
            for i in range(place, place + stages - 1):
                matrix[i, i + 1] = float(f"{rate:.9g}")
            exits[place + stages - 1] = float(f"{rate:.9g}")
            place += stages
        return {
            "distribution": "phase-type",
            "initial": initial.tolist(),
            "rates": matrix.tolist(),
            "exits": exits.tolist(),
        }


def _branch_density(t: Array, stages: Array, rates: Array) -> Array:
    """Returns the logarithm of the Erlang density of every time in every branch."""
    return np.asarray(
        stages * np.log(rates) + (stages - 1.0) * np.log(t[:, None]) - rates * t[:, None] - gammaln(stages)
    )


def fit_erlang_mixture(times: Times, stages: tuple[int, ...]) -> FittedDistribution:
    """Returns the most likely mixture of Erlang times with the given number of stages in each branch.

    >>> law = fit_erlang_mixture(Times.of([0.9, 1.0, 1.1, 1.2]), (3,))
    >>> round(law.mean_s, 6)
    1.05
    """
    if times.ends <= 0:
        raise AssumptionError("no time ended while it was observed: there is no largest likelihood")
    mixture = _Mixture(np.array(stages, dtype=np.float64))
    shares, rates = _start(times, mixture.stages)
    before = -math.inf
    for _ in range(_ROUNDS_MAX):
        shares, rates, likelihood = _step(times, mixture.stages, shares, rates)
        if likelihood - before < _GAIN_MIN * max(1.0, abs(likelihood)):
            break
        before = likelihood
    parameters = _polished(times, mixture, mixture.parameters(shares, rates))
    name = "erlang" if len(stages) == 1 else "hyperexponential" if set(stages) == {1} else "phase-type"
    law = FittedDistribution(
        name, parameters, mixture.log_density, mixture.log_survival, mixture.log_mean, mixture.spec, 0.0
    )
    log_likelihood = law.likelihood(times, parameters)
    return FittedDistribution(
        name, parameters, mixture.log_density, mixture.log_survival, mixture.log_mean, mixture.spec, log_likelihood
    )


def _polished(times: Times, mixture: _Mixture, parameters: Array) -> Array:
    """Returns the parameters at the top of the likelihood, which expectation maximisation reaches slowly where it is
    flat."""
    if len(mixture.stages) == 1:
        return parameters
    law = FittedDistribution(
        "", parameters, mixture.log_density, mixture.log_survival, mixture.log_mean, mixture.spec, 0.0
    )
    bounds = [(float(value) - 3.0, float(value) + 3.0) for value in parameters]

    def cost(p: Array) -> float:
        return -law.likelihood(times, p)

    optimum = minimize(cost, parameters, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60})
    return np.asarray(optimum.x) if -float(optimum.fun) > law.likelihood(times, parameters) else parameters


def fit_phase_type(times: Times, variable: bool) -> FittedDistribution:
    """Returns the best of the mixtures by Akaike's criterion, for times more or less `variable` than exponential
    ones."""
    tried = VARIABLE if variable else STEADY
    return min((fit_erlang_mixture(times, stages) for stages in tried), key=lambda law: law.aic)


def _start(times: Times, stages: Array) -> tuple[Array, Array]:
    """Branches begin with the shorter and the longer half of the times."""
    mean = times.total_s / times.ends
    if len(stages) == 1:
        return np.ones(1), stages / mean
    order = np.argsort(times.value_s)
    half = np.cumsum(times.count[order]) <= 0.5 * times.count.sum()
    below = times.value_s[order][half]
    short = float(np.average(below, weights=times.count[order][half])) if len(below) else mean / 2.0
    return np.array([0.5, 0.5]), stages / np.array([short, max(2.0 * mean - short, 2.0 * short)])


def _step(times: Times, stages: Array, shares: Array, rates: Array) -> tuple[Array, Array, float]:
    """Returns one round: how likely each time is of each branch, and how long it would have lasted; then the best
    branches."""
    t, ended = times.value_s, times.ended
    with np.errstate(divide="ignore"):
        log_parts = np.log(shares) + _branch_density(t, stages, rates)
        reach = t[:, None] * rates
        beyond = gammaincc(stages, reach)
        log_beyond = np.log(shares) + np.log(np.maximum(beyond, 1e-300))
    log_parts = np.where(ended[:, None], log_parts, log_beyond)
    total = logsumexp(log_parts, axis=1)
    belongs = np.exp(log_parts - total[:, None]) * times.count[:, None]
    # The mean of an Erlang time that is longer than t: k/rate Q(k+1, rate t) / Q(k, rate t).
    longer = stages / rates * gammaincc(stages + 1.0, reach) / np.maximum(beyond, 1e-300)
    lasted = np.where(ended[:, None], t[:, None], np.where(beyond > 1e-290, longer, t[:, None] + 1.0 / rates))
    number = belongs.sum(axis=0)
    new_shares = np.maximum(number / number.sum(), _SHARE_MIN)
    new_rates = stages * np.maximum(number, 1e-300) / np.maximum((belongs * lasted).sum(axis=0), 1e-300)
    return new_shares / new_shares.sum(), new_rates, float(times.count @ total)
