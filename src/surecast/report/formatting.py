"""Numbers for people: sensible digits, and the unit in which they are easiest to read."""

from __future__ import annotations

import math

from surecast.report.figure import HOW, Figure
from surecast.report.metric_registry import metric_or_plain

__all__ = ["format_figure", "format_value"]

_TIMES = ((1e-6, 1e9, " ns"), (1e-3, 1e6, " µs"), (1.0, 1e3, " ms"), (7200.0, 1.0, " s"), (172_800.0, 1 / 3600, " h"))


def format_value(value: float, unit: str) -> str:
    """Returns a value with its unit.

    >>> [format_value(v, "s") for v in (0.0123, 90, 250_000)]
    ['12.3 ms', '90 s', '2.894 d']
    >>> [format_value(v, "share") for v in (0.5, 0.99987, 1.0)]
    ['50.0 %', '99.987 %', '100 %']
    >>> [format_value(v, "1/s") for v in (1400, 0.25)]
    ['1,400/s', '0.25/s']
    """
    factor, suffix = _scale(value, unit)
    return _digits(value * factor, unit) + suffix


def format_signed(value: float, unit: str) -> str:
    """Returns a difference with its unit.

    >>> format_signed(0.002, "s"), format_signed(-0.002, "s"), format_signed(0.0, "s"), format_signed(0.002, "share")
    ('+2 ms', '-2 ms', '0 s', '+0.20 points')
    """
    if unit == "share":  # a relative difference is a percentage, too
        return f"{100.0 * value:+.{_decimals(100.0 * abs(value))}f} points" if value else "0 points"
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{format_value(abs(value), unit)}"


def format_percent(value: float | None) -> str:
    """Returns a relative difference.

    >>> format_percent(-0.0345), format_percent(None)
    ('-3.5 %', '-')
    """
    if value is None:
        return "-"
    number = f"{abs(value) * 100:,.1f}" if abs(value) < 100 else f"{abs(value) * 100:,.3g}"
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{number} %"


def format_figure(figure: Figure) -> str:
    """Returns a figure with its interval, its unit and the mark of how it was obtained.

    >>> format_figure(Figure("subscriber", "s1", "reliability", 0.9123, "simulated", low=0.9093, high=0.9153))
    '~ 91.2 ± 0.3 %'
    >>> format_figure(Figure("subscriber", "s1", "reliability", 0.98, "simulated", low=0.9, high=0.99))
    '~ 98 % [90, 99]'
    >>> format_figure(Figure("subscriber", "s1", "delay_mean_s", 0.0123, "lower_bound"))
    '≥ 12.3 ms'
    """
    unit = metric_or_plain(figure.metric).unit
    mark = HOW.get(figure.how, ("?", ""))[0]
    return f"{mark} {_with_interval(figure.value, figure.low, figure.high, unit)}"


def _with_interval(value: float, low: float | None, high: float | None, unit: str) -> str:
    if low is None and high is None:
        return format_value(value, unit)
    factor, suffix = _scale(value, unit)
    if low is None or high is None:
        ends = ("…" if end is None else _digits(end * factor, unit) for end in (low, high))
        return f"{_digits(value * factor, unit)}{suffix} [{', '.join(ends)}]"
    half = (high - low) / 2 * factor
    if half <= 0:
        return f"{_digits(value * factor, unit)} ± 0{suffix}"
    exponent = math.floor(math.log10(half))
    if not -12 <= exponent <= 12:
        return f"{value * factor:.3g} ± {half:.1g}{suffix}"
    decimals = max(0, -exponent + (half / 10**exponent < 2.95))
    if abs((high + low) / 2 - value) <= 0.1 * (high - low):
        decimals -= 1 if decimals > 0 and f"{half:.{decimals}f}".endswith("0") else 0
        return f"{value * factor:,.{decimals}f} ± {half:,.{decimals}f}{suffix}"
    return f"{value * factor:,.{decimals}f}{suffix} [{low * factor:,.{decimals}f}, {high * factor:,.{decimals}f}]"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Returns the factor and the unit in which this value is easiest to read."""
    if unit == "1/s":
        return 1.0, "/s"
    if unit == "share":
        return 100.0, " %"
    if unit != "s":
        return 1.0, ""
    if value == 0:
        return 1.0, " s"
    return next(((f, suffix) for limit, f, suffix in _TIMES if abs(value) < limit), (1 / 86_400, " d"))


def _decimals(percent: float) -> int:
    """Returns how many decimals a percentage needs."""
    return max(1, 1 + math.ceil(-math.log10(min(percent, 100 - percent)))) if 0 < percent < 100 else 0


def _digits(number: float, unit: str) -> str:
    size = abs(number)
    if size == 0 or (unit == "share" and number == 100):
        return f"{size:.0f}"
    if unit == "share" and 0 < number < 100:
        decimals = _decimals(number)
        return f"{number:.{decimals}f}" if decimals <= (4 if number < 50 else 13) else f"{number:.2g}"
    if size >= 1e12 or size < 1e-6:
        return f"{number:.3e}"
    if float(number).is_integer():
        return f"{number:,.0f}"
    text = f"{number:,.{max(0, 3 - math.floor(math.log10(size)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
