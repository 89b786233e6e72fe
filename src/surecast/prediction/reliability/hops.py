"""One hop of a stored event: how long until the broker that holds it, the link and the next broker are all up.

The delay is 0 if link and next broker are up when the event arrives; otherwise it is the time in which the joint chain
of the three components first reaches a state with all of them up (reliability Eqs. 5-10). Section 4.3 of the paper
says once that the link and the next broker suffice; its Eq. 7, all three, is what the text means and what is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eig, eigh

from surecast.prediction.reliability.component_chains import ComponentChain

__all__ = ["Hop", "SpectralHop", "hop_chain", "spectral_hop"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

_GONE = 1e-300
_NEGLIGIBLE = 1e-15
"""A term of the delay distribution below this changes no digit."""
_SPLIT = 1e-5
"""Relative change of rates that separates coinciding eigenvalues of a chain that cannot be diagonalised."""


@dataclass(frozen=True)
class Hop:
    """The waiting time of a hop: 0 with probability `atom`; else it starts in a phase drawn from `alpha` (which sums
    to 1 - atom) and follows `matrix` until absorption.

    `up` says in which phases the broker that holds the event is up. `alpha_down` is `alpha` for an event that is known
    to find the next broker down. `step` is the chance of still waiting one retransmission interval later, between
    phases, where attempts are made at such intervals only.
    """

    atom: float
    alpha: Array
    matrix: Array
    up: NDArray[np.bool_]
    weights: Array
    alpha_down: Array
    step: Array | None = None


@dataclass(frozen=True)
class SpectralHop:
    """P[delay > t] of a hop as the sum of `weights` * exp(-`rates` * t); complex ones come in conjugate pairs.

    With `up_weights` in place of `weights` it is P[delay > t and the holder is up at t]. `mean` is the mean delay, 0
    included; `up_mean` the mean time of waiting with the holder up. With `excess_weights` it is by how much
    P[delay > t] is higher for an event that is known to find the next broker down; `excess_mean`, by how much its mean.
    """

    atom: float
    weights: Complex
    up_weights: Complex
    rates: Complex
    mean: float
    up_mean: float
    is_real: bool
    excess_weights: Complex
    excess_mean: float


def hop_chain(
    holder: ComponentChain | None, link: ComponentChain | None, after: ComponentChain | None, interval_s: float = 0.0
) -> Hop:
    """Returns the hop from the broker that holds an event over a link to the next broker.

    Components that never fail (None) need no states. With an `interval_s` above 0 an attempt is made that often and
    the event moves at the first attempt that finds all three up.

    >>> from surecast.prediction.reliability.component_chains import component_of
    >>> from surecast.scenario import Failures, parse_distribution
    >>> link = component_of("l", Failures(parse_distribution("90s"), parse_distribution("10s")))
    >>> hop = hop_chain(None, link, None)
    >>> hop.atom, hop.matrix.tolist()
    (0.9, [[-0.1]])
    """
    parts = [part for part in (after, link, holder) if part is not None]
    if not parts:
        return Hop(1.0, np.zeros(0), np.zeros((0, 0)), np.zeros(0, dtype=np.bool_), np.zeros(0), np.zeros(0))
    sizes = [len(part.generator) for part in parts]
    is_up = [np.arange(n) < part.up for n, part in zip(sizes, parts, strict=True)]
    all_up = reduce(np.logical_and.outer, is_up).ravel()
    waiting = ~all_up
    # reliability Eq. 7: the three components change independently of each other
    generator = np.zeros((len(all_up), len(all_up)))
    for i, part in enumerate(parts):
        generator += _product([part.generator if j == i else np.eye(n) for j, n in enumerate(sizes)])
    stationary = _product([part.stationary for part in parts])
    # reliability Eq. 9: the event finds its holder up, link and next broker in their stationary state
    starts = [part.stationary for part in parts]
    held_up = np.ones(len(all_up), dtype=np.bool_)
    if holder is not None:
        starts[-1] = np.where(is_up[-1], holder.stationary, 0.0) / holder.availability
        held_up = np.tile(is_up[-1], len(all_up) // sizes[-1])
    start = start_down = _product(starts)
    if after is not None:
        down = np.where(is_up[0], 0.0, after.stationary)
        start_down = _product([down / down.sum(), *starts[1:]])
    keep = np.ix_(waiting, waiting)
    step = None
    if interval_s > 0:
        step = _product([part.after(interval_s) for part in parts])[keep]
    atom = float(np.prod([part.availability for part in (link, after) if part is not None]))
    return Hop(
        atom,
        start[waiting],
        generator[keep],
        held_up[waiting],
        stationary[waiting],
        start_down[waiting],
        step,
    )


def _product(factors: Sequence[Array]) -> Array:
    """Returns the Kronecker product of all factors."""
    result = factors[0]
    for factor in factors[1:]:
        if result.ndim == 1:
            result = np.multiply.outer(result, factor).ravel()
        else:
            size = len(result) * len(factor)
            result = np.multiply.outer(result, factor).transpose(0, 2, 1, 3).reshape(size, size)
    return result


def spectral_hop(hop: Hop, interval_s: float = 0.0) -> SpectralHop:
    """Returns a hop's delay distribution as a sum of exponentials.

    Chains of exponential or hyperexponential times are reversible: all rates are real, and the computation is as
    accurate as that of a symmetric matrix. With attempts every `interval_s` the sum is right at its multiples.
    """
    if not len(hop.alpha):
        none = np.zeros(0, np.complex128)
        return SpectralHop(1.0, none, none, none, 0.0, 0.0, True, none, 0.0)
    lattice = hop.step is not None and interval_s > 0
    operator = hop.step if lattice and hop.step is not None else hop.matrix
    balance = hop.weights[:, None] * operator
    is_real = bool(np.allclose(balance, balance.T, rtol=1e-9, atol=1e-14 * np.abs(balance).max()))
    ends = np.stack([np.ones(len(hop.alpha)), hop.up.astype(np.float64)], axis=1)
    starts = np.stack([hop.alpha, hop.alpha_down - hop.alpha])
    spectrum = _symmetric(operator, hop.weights, starts, ends) if is_real else _general(operator, starts, ends)
    values, left, right = spectrum
    weights, up_weights, excess = left[0] * right[:, 0], left[0] * right[:, 1], left[1] * right[:, 0]
    if lattice:
        mean, excess_mean = (float((interval_s * np.sum(w / (1.0 - values))).real) for w in (weights, excess))
        # what is over long before the next attempt has an eigenvalue that rounds to 0
        values = np.where(np.abs(values) < _GONE, _GONE, values)
        values = np.asarray(np.log(values) / interval_s, dtype=np.complex128)
    else:
        mean, excess_mean = (float(m) for m in np.linalg.solve(-hop.matrix.T, starts.T).sum(axis=0))
    up_mean = float(np.sum(up_weights / -values).real)
    relevant = np.abs(np.stack([weights, up_weights, excess])).max(axis=0) > _NEGLIGIBLE
    return SpectralHop(
        hop.atom,
        weights[relevant],
        up_weights[relevant],
        -values[relevant],
        mean,
        up_mean,
        is_real,
        excess[relevant],
        excess_mean,
    )


def _symmetric(operator: Array, stationary: Array, starts: Array, ends: Array) -> tuple[Complex, Complex, Complex]:
    """Eigenvalues, and the parts of each start and each end along their eigenvectors."""
    root = np.sqrt(stationary)
    similar = operator * root[:, None] / root[None, :]
    values, vectors = eigh((similar + similar.T) / 2)
    left, right = (starts / root) @ vectors, vectors.T @ (root[:, None] * ends)
    return values.astype(np.complex128), left.astype(np.complex128), right.astype(np.complex128)


def _general(operator: Array, starts: Array, ends: Array) -> tuple[Complex, Complex, Complex]:
    """As `_symmetric`, of any chain; where that is inaccurate, of one with slightly different rates."""
    values, left, right = _diagonalise(operator, starts, ends)
    if np.abs(left[0][:, None] * right).sum() > 1e5:
        scale = 1.0 + _SPLIT * np.linspace(-1.0, 1.0, len(operator))
        values, left, right = _diagonalise(operator * scale[:, None], starts, ends)
    return values, left, right


def _diagonalise(operator: Array, starts: Array, ends: Array) -> tuple[Complex, Complex, Complex]:
    eigen = eig(operator)
    values, vectors = np.asarray(eigen[0], dtype=np.complex128), np.asarray(eigen[1], dtype=np.complex128)
    right = np.asarray(np.linalg.solve(vectors, ends.astype(np.complex128)), dtype=np.complex128)
    return values, starts @ vectors, right
