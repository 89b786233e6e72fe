"""The traffic of set-top boxes: the parameters of the generator, and their distributions."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.zap.events import DAY_S

__all__ = ["DayCycle", "Traffic", "load_traffic", "save_traffic", "zipf_shares"]

HOURS = 24
CHANNELS_MAX = 99_999
ADDRESSES = 1 << 24
"""Boxes are at 10.0.0.0/8."""
_STEP_S = 300.0
AGES_ON, AGE_MAX_S, AGE_STEPS = 12.0, 30.0 * DAY_S, 4000
"""The longest time for which a box may have been on: mean times, at most a month; and the number of steps."""

# Sessions of a streaming service by the hour they began (docs/background/zap-traffic.md), two hours east of its clock.
HOUR_WEIGHTS = (
    88.0, 60.0, 39.0, 21.0, 30.0, 45.0, 74.0, 142.0, 196.0, 201.0, 251.0, 270.0,
    317.0, 281.0, 346.0, 291.0, 342.0, 312.0, 324.0, 325.0, 317.0, 275.0, 254.0, 168.0,
)  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """The behaviour of the boxes of one publisher. Times have lognormal distributions, given by median and sigma.

    >>> Traffic(boxes=1000).surf_share
    0.80...
    >>> Traffic(zipf_exponent=-1)
    Traceback (most recent call last):
    ...
    surecast.errors.ConfigurationError: zipf_exponent -1: write a number from 0 to 10
    """

    boxes: int = 180_000
    """Set-top boxes of a publisher, P2S section 3.3."""
    channels: int = 300
    zipf_exponent: float = 0.9
    """The channel of popularity rank r is chosen with a probability proportional to (r + offset) to the minus this."""
    zipf_offset: float = 0.0
    """0 is Zipf's law; more (Mandelbrot's) makes the most popular channels more alike."""
    surf_again: float = 0.9
    """Probability that a surfer who goes on stays on the next channel for a moment only."""
    surf_start: float = 0.41
    """Probability that a viewer who leaves a programme begins to surf."""
    surf_median_s: float = 0.27
    surf_sigma: float = 1.29
    stay_median_s: float = 110.0
    stay_sigma: float = 3.4
    next_share: float = 0.5
    """Share of a surfer's steps that go on through the line-up, from where the last such step led; other steps go where
    viewers go."""
    on_mean_s: float = 9000.0
    """Mean time from power on to power off, exponential."""
    on_per_day: float = 3.5
    """Times that a box which is off is switched on in a day; the hours have their shares of it."""
    hour_weights: tuple[float, ...] = HOUR_WEIGHTS
    volume_per_h: float = 4.0
    mute_per_h: float = 0.5
    retention_s: float = 3.0
    """A channel that is left sooner is not reported, P2S section 4.1."""
    batch_s: int = 10
    """Boxes send what they have kept every so many seconds, P2S section 4.1."""

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigurationError(f"{name} {value:g}: write a number from {low:g} to {high:g}")
        weights = self.hour_weights
        if len(weights) != HOURS or not all(0.0 <= w < math.inf for w in weights) or not sum(weights) > 0.0:
            raise ConfigurationError(f"hour_weights: write {HOURS} numbers that are not negative, and not all zero")

    @property
    def surf_share(self) -> float:
        """Share of the channel changes that begin a short stop."""
        return self.surf_start / (1.0 - self.surf_again + self.surf_start)


_RANGES = (
    ("boxes", 1, ADDRESSES - 2),
    ("channels", 2, CHANNELS_MAX),
    ("zipf_exponent", 0.0, 10.0),
    ("zipf_offset", 0.0, 10_000.0),
    ("surf_again", 0.0, 0.999),
    ("surf_start", 0.0, 1.0),
    ("surf_median_s", 0.05, 3600.0),
    ("surf_sigma", 0.0, 4.0),
    ("stay_median_s", 1.0, 86_400.0),
    ("stay_sigma", 0.0, 4.0),
    ("next_share", 0.0, 1.0),
    ("on_mean_s", 60.0, 1e9),
    ("on_per_day", 1e-6, 1000.0),
    ("volume_per_h", 0.0, 1000.0),
    ("mute_per_h", 0.0, 1000.0),
    ("retention_s", 0.0, 3600.0),
    ("batch_s", 1, 3600),
)


def zipf_shares(count: int, exponent: float, offset: float = 0.0) -> NDArray[np.float64]:
    """Shares of the ranks 1, 2, ... under Zipf's law or, with an offset, Mandelbrot's.

    >>> zipf_shares(3, 1.0).round(4).tolist()
    [0.5455, 0.2727, 0.1818]
    """
    weights = ((np.arange(1, count + 1) + offset) / (1.0 + offset)) ** -exponent
    return np.asarray(weights / weights.sum(), dtype=np.float64)


class DayCycle:
    """The times at which boxes are switched on: a rate that is constant within an hour and the same every day.

    >>> flat = DayCycle(Traffic(hour_weights=(1.0,) * 24, on_per_day=12.0, on_mean_s=7200.0))
    >>> round(flat.on_share(0.0), 9), flat.next_on(np.array([10.0]), np.array([0.5])).tolist()
    (0.5, [3610.0])
    """

    def __init__(self, traffic: Traffic):
        weights = np.array(traffic.hour_weights)
        self._rate_per_s = traffic.on_per_day / DAY_S * weights / weights.mean()
        self._edges_s = np.linspace(0.0, DAY_S, HOURS + 1)
        self._passed = np.concatenate([[0.0], np.cumsum(self._rate_per_s * 3600.0)])
        self._on_mean_s = traffic.on_mean_s
        self._grid_s = np.arange(0.0, DAY_S + _STEP_S, _STEP_S)
        self._shares = self._day()

    def next_on(self, time_s: NDArray[np.float64], waits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the time at which a box that went off at `time_s` is switched on, for exponential draws `waits` of
        mean 1."""
        days, second = np.divmod(time_s, DAY_S)
        aim = np.interp(second, self._edges_s, self._passed) + waits
        more, rest = np.divmod(aim, self._passed[-1])
        # where the rate is zero for hours, the end of them is as good as any moment within
        second_of_day = np.interp(rest, self._passed, self._edges_s)
        return np.asarray((days + more) * DAY_S + second_of_day, dtype=np.float64)

    def on_share(self, time_s: float) -> float:
        """Returns the share of boxes that are on at a time of day, once every day is like the day before."""
        return float(np.interp(time_s % DAY_S, self._grid_s, self._shares))

    def ages(self, time_s: float, count: int, random: np.random.Generator) -> NDArray[np.float64]:
        """Returns how long boxes that are on at a time have been on.

        The chance of an age is that of being off so long ago, switched on just then, and not off again since.
        """
        horizon_s = min(AGES_ON * self._on_mean_s, AGE_MAX_S)
        edges = np.linspace(0.0, horizon_s, AGE_STEPS + 1)
        middle = (edges[1:] + edges[:-1]) / 2.0
        then = (time_s - middle) % DAY_S
        off = 1.0 - np.interp(then, self._grid_s, self._shares)
        rate = self._rate_per_s[(then // 3600).astype(np.intp) % HOURS]
        # one rate above 0 is enough for a box to be on at all
        chances = np.cumsum(rate * off * np.exp(-middle / self._on_mean_s))
        bin_index = np.searchsorted(chances, random.random(count) * chances[-1], side="right")
        return np.asarray(edges[bin_index] + random.random(count) * edges[1], dtype=np.float64)

    def _day(self) -> NDArray[np.float64]:
        """Returns the share that is on, at steps through the day.

        Within a step the rate is constant and p' = rate (1 - p) - p / on_mean has a closed form, linear in p; over a
        day that makes p(24 h) = a p(0) + b, whose fixed point begins the day.
        """
        rate = self._rate_per_s[(self._grid_s[:-1] // 3600).astype(np.intp)]
        total = rate + 1.0 / self._on_mean_s
        slope = np.exp(-total * _STEP_S)
        rise = rate / total * (1.0 - slope)
        a, b = 1.0, 0.0
        for factor, more in zip(slope.tolist(), rise.tolist(), strict=True):
            a, b = factor * a, factor * b + more
        shares = [b / (1.0 - a)]
        for factor, more in zip(slope.tolist(), rise.tolist(), strict=True):
            shares.append(factor * shares[-1] + more)
        return np.array(shares)


def save_traffic(traffic: Traffic, path: Path) -> None:
    """Writes the parameters as JSON."""
    from surecast.report.report_files import write_whole

    text = json.dumps(asdict(traffic), indent=2) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def load_traffic(path: Path, **changes: Any) -> Traffic:
    """Reads parameters that `save_traffic` wrote; what a file leaves out is as in `Traffic()`. `changes` replace some.

    >>> load_traffic(Path("nowhere.json"))
    Traceback (most recent call last):
    ...
    surecast.errors.ConfigurationError: nowhere.json: cannot be read: No such file or directory
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path}: this is not JSON: {error}") from None
    names = {field.name for field in fields(Traffic)}
    if not isinstance(data, dict) or not data.keys() <= names:
        raise ConfigurationError(f"{path}: write an object with some of the fields {', '.join(sorted(names))}")
    weights = data.pop("hour_weights", None)
    whole = {"boxes", "channels", "batch_s"}
    for name, value in data.items():
        if isinstance(value, bool) or not isinstance(value, int if name in whole else int | float):
            raise ConfigurationError(f"{path}: {name}: write a {'whole ' if name in whole else ''}number")
    if weights is not None:
        if not isinstance(weights, list) or not all(isinstance(w, int | float) for w in weights):
            raise ConfigurationError(f"{path}: hour_weights: write a list of {HOURS} numbers")
        data["hour_weights"] = tuple(float(w) for w in weights)
    return replace(Traffic(**data), **changes)
