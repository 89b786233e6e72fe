"""The registry of metrics: the quantities that a figure can measure.

`catalogue.py` holds the metrics that come with Surecast; an extension registers its own with `register_metric`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from surecast.report.figure import SCOPES
from surecast.report.report_errors import ReportError, listing, suggestion

__all__ = ["SPLITS", "UNITS", "Metric", "find_metric", "metrics", "metrics_markdown", "register_metric"]

UNITS: Final[dict[str, str]] = {
    "share": "a share or a probability, between 0 and 1",
    "ratio": "a quotient that may exceed 1",
    "s": "seconds",
    "1/s": "per second",
    "count": "a number of things, possibly a mean",
}
"""The unit of a metric, and what it means."""

SPLITS: Final[dict[str, str]] = {
    "": "not split: the detail is empty",
    "kind": "the kind of message, such as `notification` or `control`",
    "reason": "why events were dropped, such as `rejected while disconnected`, `buffer full while connected` or `lost`",
    "table": "the part of the routing table: `local` or `remote`",
    "role": "the part that a replica plays: `leader` or `follower`",
    "direction": "the direction of a link: `forward` (from its first end to its second) or `backward`",
    "approximation": "how it was approximated, such as `worst-path` or `mean-path`; an empty detail is the best",
    "target": "the target: `utilisation`, `notification delay` or `subscription delay`",
    "quantile": "the quantile, always given: `p50`, `p90`, `p99`, `p99.9`",
}
"""The meaning of a metric's detail. Except for a quantile, an empty detail is the figure for all details together."""

_SUFFIX = {"s": "_s", "1/s": "_per_s"}
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_QUANTILE = re.compile(r"p(\d|[1-9]\d)(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that a figure can measure.

    `better` says whether `more` or `less` of it is better, empty where neither is; `split` says what the detail of a
    figure names (a key of `SPLITS`). The name ends with the unit where that is one of time.

    >>> Metric("delay_mean_s", "s", ("subscriber",), "Mean delay", "Mean time to arrival.", "less").unit
    's'
    >>> Metric("delay", "s", ("subscriber",), "Mean delay", "Mean time to arrival.")
    Traceback (most recent call last):
    ...
    surecast.report.report_errors.ReportError: metric 'delay' has unit s: end its name with '_s'
    """

    name: str
    unit: str
    scopes: tuple[str, ...]
    label: str
    meaning: str
    better: Literal["more", "less", ""] = ""
    split: str = ""
    signed: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ReportError(f"metric {self.name!r}: a name is made of small letters, digits and underscores")
        for attribute, word, allowed in (("unit", self.unit, UNITS), ("split", self.split, SPLITS)):
            if word not in allowed:
                raise ReportError(
                    f"metric {self.name!r} has unknown {attribute} {word!r}; known are {listing(allowed)}"
                )
        if not self.scopes or not set(self.scopes) <= set(SCOPES):
            raise ReportError(f"metric {self.name!r}: scopes must be some of {listing(SCOPES)}, not {self.scopes}")
        suffix = _SUFFIX.get(self.unit, "")
        if not self.name.endswith(suffix):
            raise ReportError(f"metric {self.name!r} has unit {self.unit}: end its name with {suffix!r}")

    @property
    def maximum(self) -> float:
        return 1.0 if self.unit == "share" else float("inf")

    @property
    def minimum(self) -> float:
        return float("-inf") if self.signed else 0.0

    def check_use(self, scope: str, detail: str) -> None:
        """Refuses a scope or a detail that this metric does not have."""
        if scope not in SCOPES:
            raise ReportError(f"unknown scope {scope!r}; known are {listing(SCOPES)}{suggestion(scope, SCOPES)}")
        if scope not in self.scopes:
            raise ReportError(f"metric {self.name!r} is not for scope {scope!r}, only for {listing(self.scopes)}")
        if detail and not self.split:
            raise ReportError(f"metric {self.name!r} is not split: detail {detail!r} must be empty")
        if self.split == "quantile" and not _QUANTILE.fullmatch(detail):
            raise ReportError(f"metric {self.name!r} needs its quantile as detail, such as 'p99', not {detail!r}")


_REGISTRY: dict[str, Metric] = {}


def register_metric(metric: Metric) -> Metric:
    """Adds a metric, so that reports may hold it. Registering the same one again changes nothing.

    >>> battery = Metric("battery_share", "share", ("subscriber",), "Battery", "Charge left in the device.", "more")
    >>> register_metric(battery) is battery
    True
    >>> import dataclasses
    >>> register_metric(dataclasses.replace(battery, better="less"))
    Traceback (most recent call last):
    ...
    surecast.report.report_errors.ReportError: metric 'battery_share' is already registered with another meaning
    >>> unregister_metric("battery_share")
    """
    registered = _REGISTRY.setdefault(metric.name, metric)
    if registered != metric:
        raise ReportError(f"metric {metric.name!r} is already registered with another meaning")
    return metric


def unregister_metric(name: str) -> None:
    """Takes a registered metric away again; for tests and for extensions that are unloaded."""
    _REGISTRY.pop(name, None)


def metrics() -> tuple[Metric, ...]:
    """Returns all registered metrics, in the order in which tables show them.

    >>> metrics()[0].name
    'reliability'
    """
    return tuple(_REGISTRY.values())


def find_metric(name: str) -> Metric:
    """Returns the metric of this name.

    >>> find_metric("utilisation").unit
    'ratio'
    >>> find_metric("utilization")
    Traceback (most recent call last):
    ...
    surecast.report.report_errors.ReportError: unknown metric 'utilization'; did you mean 'utilisation'?
    """
    try:
        return _REGISTRY[name]
    except KeyError:
        hint = suggestion(name, _REGISTRY) or "; register_metric adds one of your own"
        raise ReportError(f"unknown metric {name!r}{hint}") from None


def metric_or_plain(name: str) -> Metric:
    """Returns the metric of this name, or a plain description of one that a file contains and that is not registered.

    >>> metric_or_plain("novel_delay_s").unit
    's'
    """
    if name in _REGISTRY:
        return _REGISTRY[name]
    plain = re.sub(r"[^a-z0-9_]", "_", f"x_{name}".lower())
    unit = next((unit for unit in ("1/s", "s") if plain.endswith(_SUFFIX[unit])), "count")
    return Metric(plain, unit, tuple(SCOPES), name, "Not registered here.", signed=True)


def catalogue_rank(name: str) -> int:
    """Returns the position of a metric in tables: in the order of registration, unknown ones last."""
    return list(_REGISTRY).index(name) if name in _REGISTRY else len(_REGISTRY)


def metrics_markdown(chosen: tuple[Metric, ...] | None = None) -> str:
    """Returns the registered metrics as a Markdown table, as the documentation shows it.

    >>> print(metrics_markdown((find_metric("utilisation"),)))
    | metric | unit | scopes | split by | better | meaning |
    |---|---|---|---|---|---|
    | `utilisation` | ratio | broker, overlay_link, physical_link, router | direction | less | Offered load \
over capacity; 1 or more means overload. |
    """
    lines = ["| metric | unit | scopes | split by | better | meaning |", "|---|---|---|---|---|---|"]
    for m in metrics() if chosen is None else chosen:
        cells = (f"`{m.name}`", m.unit, ", ".join(m.scopes), m.split or "-", m.better or "-", m.meaning)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
