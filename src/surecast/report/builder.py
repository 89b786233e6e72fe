"""Building of a report: figure by figure, or by whole columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surecast.report.columns import NO_SAMPLES, TEXT, Codes, Columns, Floats, Ints, Words
from surecast.report.figure import describe_key
from surecast.report.figure_checks import check_how, check_many, check_name, check_one, check_unique
from surecast.report.info import ReportInfo, check_text, surecast_version
from surecast.report.metric_registry import Metric, find_metric
from surecast.report.report import QoSReport
from surecast.report.report_errors import ReportError

if TYPE_CHECKING:
    from surecast.scenario.system import System

__all__ = ["ReportBuilder"]

_PENDING_MAX = 10_000
_Numbers = TypeVar("_Numbers", Floats, Ints)
_Chunk = tuple[tuple[Codes, ...], Floats, Floats, Floats, Ints]


class ReportBuilder:
    """Collects figures and makes a `QoSReport` of them.

    A quantity that does not exist, such as the reliability of a subscriber without a publisher, is left out: there
    is no missing value and no infinity. Every figure is checked when it is added, repeated ones when the report
    is built.

    >>> builder = ReportBuilder("star", "predicted")
    >>> builder.add("system", "", "message_rate_per_s", 120.0, how="exact")
    >>> builder.add_many("subscriber", ["s1", "s2"], "reliability", [0.99, 0.95], how="lower_bound")
    >>> builder.warn("broker b3 is overloaded")
    >>> builder.build()
    <QoSReport star, predicted: 3 figures>
    """

    def __init__(
        self,
        scenario: str,
        source: str,
        *,
        seed: int | None = None,
        version: str | None = None,
        notes: Sequence[str] = (),
        warnings: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
    ):
        self._info = ReportInfo(scenario, source, seed, version or surecast_version(), parameters=parameters or {})
        self._notes = dict.fromkeys(notes)
        self._warnings = dict.fromkeys(warnings)
        self._codes: dict[str, dict[str, int]] = {column: {} for column in TEXT}
        self._checked: dict[tuple[str, str, str], Metric] = {}
        self._pending: list[tuple[int, int, int, int, int, int, float, float, float, int]] = []
        self._chunks: list[_Chunk] = []
        self._last_names: tuple[tuple[str, ...], Codes] | None = None
        self._is_partial = False

    @classmethod
    def of_system(cls, system: System, source: str, *, seed: int | None = None, **parameters: Any) -> ReportBuilder:
        """Returns a builder whose report names the system, its notes, and the parameters of the answer.

        The seed is that of the system unless another is given.

        >>> from surecast.scenario import build, parse_text
        >>> system = build(parse_text("{surecast: 1, name: one, overlay: {brokers: [{name: a}]}}"))
        >>> builder = ReportBuilder.of_system(system, "predicted", scheme="bypass")
        >>> builder.build().info.parameters
        {'scheme': 'bypass'}
        """
        seed = system.seed if seed is None else seed
        return cls(system.name, source, seed=seed, notes=system.notes, parameters=parameters)

    def note(self, text: str) -> None:
        """Adds an assumption that was made; the same one is kept once."""
        self._notes[text] = None

    def warn(self, text: str) -> None:
        """Adds something the reader should worry about; the same one is kept once."""
        self._warnings[text] = None

    def leave_out(self, text: str) -> None:
        """Warns of a part of the scenario that no figure counts; then none of the figures added here is exact.

        >>> builder = ReportBuilder("star", "predicted")
        >>> builder.add("system", "", "message_rate_per_s", 120.0, how="exact")
        >>> builder.leave_out("not modelled: loss on links")
        >>> builder.build().figure("message_rate_per_s").how
        'approximation'
        """
        self.warn(text)
        self._is_partial = True

    def add(
        self,
        scope: str,
        name: str,
        metric: str,
        value: float,
        *,
        how: str,
        detail: str = "",
        variant: str = "",
        low: float | None = None,
        high: float | None = None,
        samples: int | None = None,
    ) -> None:
        """Adds one figure.

        >>> builder = ReportBuilder("star", "simulated")
        >>> builder.add("subscriber", "s1", "share_dropped", 0.02, how="simulated", detail="expired", samples=500)
        >>> builder.add("subscriber", "s1", "reliability", 1.2, how="simulated")
        Traceback (most recent call last):
        ...
        surecast.report.report_errors.ReportError: subscriber s1, reliability: value 1.2 is out of range; it must be \
between 0 and 1
        """
        definition = self._metric(scope, metric, detail)
        check_name(scope, name)
        check_how(how)
        where = describe_key(variant, scope, name, metric, detail)
        number = _number(where, value)
        ends = [math.nan if end is None else _number(where, end) for end in (low, high)]
        count = NO_SAMPLES if samples is None else _samples(where, samples)
        check_one(where, definition.minimum, definition.maximum, number, ends[0], ends[1], count)
        texts = zip(TEXT, (variant, scope, name, metric, detail, how), strict=True)
        a, b, c, d, e, f = (self._code(column, text) for column, text in texts)
        self._pending.append((a, b, c, d, e, f, number, ends[0], ends[1], count))
        if len(self._pending) >= _PENDING_MAX:
            self._flush()

    def add_many(
        self,
        scope: str,
        names: str | Sequence[str] | NDArray[np.str_],
        metric: str,
        values: ArrayLike,
        *,
        how: str | Sequence[str],
        detail: str | Sequence[str] = "",
        variant: str | Sequence[str] = "",
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        samples: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> None:
        """Adds one figure per value. A text given where a sequence may stand holds for all of them.

        `where` says which figures exist; the others are left out, whatever their value. In `low` and `high` NaN means
        that this figure has no such end; in `samples`, -1 means that it has no number of samples.

        >>> builder = ReportBuilder("star", "simulated")
        >>> published = np.array([0, 200])
        >>> on_time = np.array([0, 150])
        >>> with np.errstate(invalid="ignore"):
        ...     shares = on_time / published
        >>> builder.add_many("subscriber", ["s1", "s2"], "reliability", shares, how="simulated", where=published > 0)
        >>> [str(figure) for figure in builder.build()]
        ['subscriber s2, reliability: 0.75 (simulated)']
        """
        value = _floats("values", values)
        rows = len(value)
        details = [detail] if isinstance(detail, str) else list(dict.fromkeys(detail))
        definitions = [self._metric(scope, metric, each) for each in details] or [find_metric(metric)]
        for each in [how] if isinstance(how, str) else dict.fromkeys(how):
            check_how(each)
        texts = (variant, scope, names, metric, detail, how)
        coded = tuple(self._encode(column, text, rows) for column, text in zip(TEXT, texts, strict=True))
        ends = [
            _floats(column_name, math.nan if end is None else end, rows)
            for column_name, end in (("low", low), ("high", high))
        ]
        counts = _ints("samples", NO_SAMPLES if samples is None else samples, rows)
        if where is not None:
            mask = np.broadcast_to(np.asarray(where, dtype=np.bool_), (rows,))
            coded, value, counts = tuple(codes[mask] for codes in coded), value[mask], counts[mask]
            ends = [end[mask] for end in ends]
        self._check_names(scope, coded[2])
        check_many(
            lambda row: self._describe(coded, row),
            definitions[:1],
            np.zeros_like(coded[3]),
            value,
            ends[0],
            ends[1],
            counts,
        )
        self._flush()
        self._chunks.append((coded, value, ends[0], ends[1], counts))

    def add_report(self, report: QoSReport, *, variant: str | None = None) -> None:
        """Adds all figures, notes and warnings of another report, under another variant if one is given.

        >>> one = ReportBuilder("star", "predicted")
        >>> one.add("system", "", "message_rate_per_s", 120.0, how="exact")
        >>> both = ReportBuilder("star", "predicted")
        >>> both.add_report(one.build(), variant="flooding")
        >>> both.build().variants
        ('flooding',)
        """
        columns = report.columns
        coded = []
        for column in TEXT:
            words = columns.text(column)
            chosen = (variant,) * len(words.words) if column == "variant" and variant is not None else words.words
            table = np.array([self._code(column, word) for word in chosen], dtype=np.int32)
            coded.append(table[words.codes])
        self._flush()
        self._chunks.append((tuple(coded), columns.value, columns.low, columns.high, columns.samples))
        self._notes.update(dict.fromkeys(report.info.notes))
        self._warnings.update(dict.fromkeys(report.info.warnings))

    def build(self) -> QoSReport:
        """Returns the report of everything added so far; refuses a figure that was added twice."""
        self._flush()
        empty: _Chunk = (tuple(np.empty(0, np.int32) for _ in TEXT), *(np.empty(0),) * 3, np.empty(0, np.int64))
        chunks = [empty, *self._chunks]
        coded = [np.concatenate([chunk[0][i] for chunk in chunks]) for i in range(len(TEXT))]
        if self._is_partial and "exact" in self._codes["how"]:
            how = TEXT.index("how")
            coded[how][coded[how] == self._codes["how"]["exact"]] = self._code("how", "approximation")
        texts = (Words(codes, tuple(self._codes[column])) for codes, column in zip(coded, TEXT, strict=True))
        value, low, high = (np.concatenate([chunk[i] for chunk in chunks]) for i in (1, 2, 3))
        columns = Columns.assemble(texts, value, low, high, np.concatenate([chunk[4] for chunk in chunks]))
        check_unique(columns)
        info = self._info
        return QoSReport(
            ReportInfo(
                info.scenario,
                info.source,
                info.seed,
                info.surecast_version,
                tuple(self._notes),
                tuple(self._warnings),
                info.parameters,
            ),
            columns,
        )

    def _metric(self, scope: str, metric: str, detail: str) -> Metric:
        definition = self._checked.get((scope, metric, detail))
        if definition is None:
            definition = find_metric(metric)
            definition.check_use(scope, detail)
            self._checked[scope, metric, detail] = definition
        return definition

    def _code(self, column: str, text: str) -> int:
        codes = self._codes[column]
        code = codes.get(text)
        if code is None:
            code = codes[check_text(column, text)] = len(codes)
        return code

    def _encode(self, column: str, texts: str | Sequence[str] | NDArray[np.str_], rows: int) -> Codes:
        """Codes of a whole column; the same tuple of names given again is not looked up again."""
        if isinstance(texts, str):
            return np.full(rows, self._code(column, texts), dtype=np.int32)
        if column == "name" and self._last_names is not None and texts is self._last_names[0]:
            codes = self._last_names[1]
        else:
            plain = texts.tolist() if isinstance(texts, np.ndarray) else texts
            codes = np.fromiter((self._code(column, text) for text in plain), dtype=np.int32, count=len(plain))
            if column == "name" and isinstance(texts, tuple):
                self._last_names = (texts, codes)
        if len(codes) != rows:
            raise ReportError(f"{len(codes)} texts for column {column!r}, but {rows} values")
        return codes

    def _check_names(self, scope: str, codes: Codes) -> None:
        empty = self._codes["name"].get("", -1)
        unnamed = codes == empty
        wrong = ~unnamed if scope == "system" else unnamed
        if wrong.any():
            check_name(scope, list(self._codes["name"])[codes[int(np.argmax(wrong))]])

    def _describe(self, coded: tuple[Codes, ...], row: int) -> str:
        words = (list(self._codes[column])[codes[row]] for column, codes in zip(TEXT, coded, strict=True))
        variant, scope, name, metric, detail, _ = words
        return describe_key(variant, scope, name, metric, detail)

    def _flush(self) -> None:
        if not self._pending:
            return
        columns = list(zip(*self._pending, strict=True))
        value, low, high = (np.array(column, dtype=np.float64) for column in columns[6:9])
        coded = tuple(np.array(column, dtype=np.int32) for column in columns[:6])
        self._chunks.append((coded, value, low, high, np.array(columns[9], dtype=np.int64)))
        self._pending = []


def _number(where: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ReportError(f"{where}: {value!r} is not a number") from None


def _samples(where: str, samples: object) -> int:
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 0:
        raise ReportError(f"{where}: {samples!r} samples; the number of samples must be a whole number, 0 or more")
    return int(samples)


def _floats(column: str, values: ArrayLike, rows: int | None = None) -> Floats:
    """Returns a copy of the values as a column; one value holds for all rows where their number is known."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ReportError(f"{column}: not all of them are numbers") from None
    return _fitting(column, array, rows)


def _ints(column: str, values: ArrayLike, rows: int) -> Ints:
    array = np.array(values)
    if array.dtype.kind not in "iu" and array.size:
        raise ReportError(f"{column}: not all of them are whole numbers")
    return _fitting(column, array.astype(np.int64), rows)


def _fitting(column: str, array: _Numbers, rows: int | None) -> _Numbers:
    if array.ndim == 0 and rows is not None:
        return np.full(rows, array, dtype=array.dtype)
    if array.ndim != 1 or (rows is not None and len(array) != rows):
        expected = "one value per name" if rows is None else f"{rows} values"
        raise ReportError(f"{column}: expected {expected}, got an array of shape {array.shape}")
    return array
