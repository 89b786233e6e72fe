"""Structures as bytes by a table of their fields: for everything that is not on the path of each message.

A `Layout` names a kind of structure, its class, and its fields in order, each with a form: a number, a text, many of
something, another layout. From that one table it writes and reads. Numbers are big-endian; the length of everything
that has one is bounded by the room of its count and by the bytes that are there. Any bytes either decode or raise
`CodecError`, which names the kind and the field.

A table takes about half a microsecond more for a structure than code that was written for it. What is written or read
for each message stays hand-written: MQTT PUBLISH, messages and votes of Paxos, values, queue entries, the store's rows.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from surecast.errors import PeerError, SurecastError

__all__ = [
    "BOOL",
    "F64",
    "I64",
    "REST",
    "REST_TEXT",
    "TEXT",
    "U8",
    "U16",
    "U32",
    "U64",
    "CodecError",
    "Fixed",
    "Form",
    "Layout",
    "bytes_of",
    "choice",
    "many",
    "numbers",
    "optional",
    "pair",
    "pairs",
    "sized",
]

T = TypeVar("T")

_MISTAKES: Final = (struct.error, ValueError, TypeError, LookupError, OverflowError, SurecastError)


class CodecError(PeerError):
    """Bytes that are no structure of the kind that they should be; the message names the kind and the field."""


class Form(ABC):
    """A form of a field. `write` adds the bytes of a value; `read` returns a value and where the next one begins.

    A value has at least `size_min` bytes.
    """

    size_min = 0

    @abstractmethod
    def write(self, value: Any, parts: list[bytes]) -> None:
        """Adds the bytes of a value to the parts."""

    @abstractmethod
    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        """Returns the value at a place, and the place behind it."""


class Fixed(Form):
    """A field of fixed size, by its code in `struct`; `to` and `of` convert where a value is no number of that code."""

    def __init__(
        self, code: str, to: Callable[[Any], Any] | None = None, of: Callable[[Any], Any] | None = None
    ) -> None:
        self.code, self.to, self.of = code, to, of
        self._struct = struct.Struct(">" + code)
        self.size = self.size_min = self._struct.size

    def write(self, value: Any, parts: list[bytes]) -> None:
        """Adds one value."""
        parts.append(self._struct.pack(value if self.to is None else self.to(value)))

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        """Returns one value."""
        (value,) = self._struct.unpack_from(data, at)
        return value if self.of is None else self.of(value), at + self.size


def _flag(value: int) -> bool:
    if value > 1:
        raise ValueError(f"{value} is neither 0 nor 1")
    return bool(value)


U8: Final = Fixed("B")
U16: Final = Fixed("H")
U32: Final = Fixed("I")
U64: Final = Fixed("Q")
I64: Final = Fixed("q")
F64: Final = Fixed("d")
BOOL: Final = Fixed("B", int, _flag)


def bytes_of(size: int) -> Fixed:
    """Returns the form of so many bytes, such as a digest."""
    return Fixed(f"{size}s")


def choice(values: Sequence[Any]) -> Fixed:
    """Returns the form of one of some values, written as its place among them."""

    def of(place: int) -> Any:
        if place >= len(values):
            raise ValueError(f"{place} is none of {len(values)} choices")
        return values[place]

    return Fixed("B", values.index, of)


class _Sized(Form):
    """Bytes with their length in front, `room` bytes for it, or the rest of the bytes where there is none."""

    def __init__(self, room: int, is_text: bool):
        self._room, self._is_text = room, is_text
        self.size_min = room

    def write(self, value: Any, parts: list[bytes]) -> None:
        data = value.encode() if self._is_text else bytes(value)
        if self._room:
            parts.append(len(data).to_bytes(self._room, "big"))
        parts.append(data)

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        begin = at + self._room
        end = begin + int.from_bytes(data[at:begin], "big") if self._room else len(data)
        if end > len(data) or begin > len(data):
            raise ValueError(f"it goes on to byte {max(begin, end)} of {len(data)}")
        content = data[begin:end]
        return content.decode() if self._is_text else content, end


TEXT: Final = _Sized(2, is_text=True)
REST: Final = _Sized(0, is_text=False)
REST_TEXT: Final = _Sized(0, is_text=True)


def sized(room: int = 4, is_text: bool = False) -> Form:
    """Returns the form of bytes, or of a text, whose length has so many bytes."""
    return _Sized(room, is_text)


class _Many(Form):
    """Several of one form: their number in front, or all that is there."""

    def __init__(self, form: Form, count: Fixed | None, make: Callable[[list[Any]], Any]):
        self._form, self._count, self._make = form, count, make
        self.size_min = 0 if count is None else count.size

    def write(self, value: Any, parts: list[bytes]) -> None:
        if self._count is not None:
            self._count.write(len(value), parts)
        for each in value:
            self._form.write(each, parts)

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        form, count, values = self._form, len(data), list[Any]()
        if self._count is not None:
            count, at = self._count.read(data, at)
            if count * max(form.size_min, 1) > len(data) - at:
                raise ValueError(f"{count} of them do not fit into {len(data) - at} bytes")
        while len(values) < count and (self._count is not None or at < len(data)):
            value, at = form.read(data, at)
            values.append(value)
        return self._make(values), at


def many(form: Form, count: Fixed | None = U32, make: Callable[[list[Any]], Any] = tuple) -> Form:
    """Returns the form of several of a form; without `count` they go on to the end of the bytes."""
    return _Many(form, count, make)


class _Numbers(Form):
    """Several numbers of one code, written and read by one call."""

    def __init__(self, form: Fixed, count: Fixed | None):
        self._form, self._count = form, count
        self.size_min = 0 if count is None else count.size

    def write(self, value: Any, parts: list[bytes]) -> None:
        if self._count is not None:
            self._count.write(len(value), parts)
        parts.append(struct.pack(f">{len(value)}{self._form.code}", *value))

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        if self._count is not None:
            count, at = self._count.read(data, at)
        else:
            count = -(-(len(data) - at) // self._form.size)
        if count * self._form.size > len(data) - at:
            raise ValueError(f"{count} numbers do not fit into {len(data) - at} bytes")
        return struct.unpack_from(f">{count}{self._form.code}", data, at), at + count * self._form.size


def numbers(form: Fixed, count: Fixed | None = U32) -> Form:
    """Returns the form of several numbers; without `count` they go on to the end of the bytes."""
    return _Numbers(form, count)


class _Pair(Form):
    def __init__(self, first: Form, second: Form):
        self._first, self._second = first, second
        self.size_min = first.size_min + second.size_min

    def write(self, value: Any, parts: list[bytes]) -> None:
        self._first.write(value[0], parts)
        self._second.write(value[1], parts)

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        first, at = self._first.read(data, at)
        second, at = self._second.read(data, at)
        return (first, second), at


def pair(first: Form, second: Form) -> Form:
    """Returns the form of two values, as a tuple."""
    return _Pair(first, second)


class _Pairs(_Many):
    def __init__(self, key: Form, value: Form, is_sorted: bool):
        super().__init__(_Pair(key, value), U32, dict)
        self._is_sorted = is_sorted

    def write(self, value: Mapping[Any, Any], parts: list[bytes]) -> None:
        super().write(sorted(value.items()) if self._is_sorted else value.items(), parts)


def pairs(key: Form, value: Form, is_sorted: bool = False) -> Form:
    """Returns the form of a mapping, in its own order or by its keys."""
    return _Pairs(key, value, is_sorted)


class _Optional(Form):
    size_min = 1

    def __init__(self, form: Form):
        self._form = form

    def write(self, value: Any, parts: list[bytes]) -> None:
        BOOL.write(value is not None, parts)
        if value is not None:
            self._form.write(value, parts)

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        is_there, at = BOOL.read(data, at)
        return self._form.read(data, at) if is_there else (None, at)


def optional(form: Form) -> Form:
    """Returns the form of a value that may be None: a byte says whether it is there."""
    return _Optional(form)


class Layout(Form, Generic[T]):
    """The fields of one kind of structure. `make` gets them by name; it is mostly the class.

    >>> from typing import NamedTuple
    >>> class Seat(NamedTuple):
    ...     row: int
    ...     name: str
    >>> seat = Layout("seat", Seat, row=U8, name=TEXT)
    >>> seat.encode(Seat(7, "ann")), seat.decode(b"\\7\\0\\3ann")
    (b'\\x07\\x00\\x03ann', Seat(row=7, name='ann'))
    >>> seat.decode(b"\\7\\0\\3an")
    Traceback (most recent call last):
    ...
    surecast.protocol.codec.CodecError: seat: name: it goes on to byte 6 of 5
    """

    def __init__(self, kind: str, make: Callable[..., T], /, **fields: Form):
        self.kind = kind
        self._make = make
        self._steps = list(_steps(fields))
        self.size_min = sum(form.size_min for form in fields.values())

    def encode(self, value: T) -> bytes:
        """Returns the bytes of a structure; ValueError names the field whose value does not fit."""
        parts: list[bytes] = []
        self.write(value, parts)
        return b"".join(parts)

    def decode(self, data: bytes) -> T:
        """Returns the structure that some bytes are, all of which must be used up; CodecError where they are none."""
        value, at = self.read(data, 0)
        if at != len(data):
            raise CodecError(f"{self.kind}: it goes on for {len(data) - at} bytes after its end")
        return value

    def write(self, value: T, parts: list[bytes]) -> None:
        """Adds the bytes of a structure to the parts."""
        name = ""
        try:
            for run, name, form in self._steps:
                if run is None:
                    form.write(getattr(value, name), parts)
                    continue
                values = run.get(value)
                if run.to:
                    values = [*values]
                    for place, to in run.to:
                        values[place] = to(values[place])
                parts.append(run.pack(*values))
        except _MISTAKES as error:
            raise ValueError(f"{self.kind}: {name}: {error}") from error

    def read(self, data: bytes, at: int) -> tuple[T, int]:
        """Returns the structure at a place, and the place behind it."""
        values: dict[str, Any] = {}
        name = ""
        try:
            for run, name, form in self._steps:
                if run is None:
                    values[name], at = form.read(data, at)
                    continue
                if len(data) - at < run.size:
                    name = run.first_beyond(len(data) - at)
                    raise ValueError(f"it is cut off at byte {len(data)}")
                values.update(zip(run.names, run.unpack_from(data, at), strict=True))
                for name, of in run.of:
                    values[name] = of(values[name])
                at += run.size
        except CodecError:
            raise
        except _MISTAKES as error:
            raise CodecError(f"{self.kind}: {name}: {error}") from error
        try:
            return self._make(**values), at
        except _MISTAKES as error:
            raise CodecError(f"{self.kind}: {error}") from error


class _Run:
    """Fields of fixed size that follow each other: one call of `struct` for all, and what conversions there are."""

    def __init__(self, fields: Mapping[str, Fixed]):
        self.names = tuple(fields)
        self._forms = tuple(fields.values())
        layout = struct.Struct(">" + "".join(form.code for form in self._forms))
        self.size, self.pack, self.unpack_from = layout.size, layout.pack, layout.unpack_from
        self.to = [(place, form.to) for place, form in enumerate(self._forms) if form.to is not None]
        self.of = [(name, form.of) for name, form in fields.items() if form.of is not None]
        get: Callable[[Any], Any] = attrgetter(*self.names)
        self.get: Callable[[Any], Any] = get if len(self.names) > 1 else lambda value: (get(value),)

    def first_beyond(self, size: int) -> str:
        """Returns the first field that so few bytes have no room for."""
        for name, form in zip(self.names, self._forms, strict=True):
            size -= form.size
            if size < 0:
                return name
        return self.names[-1]


def _steps(fields: Mapping[str, Form]) -> Iterator[tuple[_Run | None, str, Form]]:
    """Yields the fields in order, with those of fixed size that follow each other as one."""
    fixed: dict[str, Fixed] = {}
    for name, form in fields.items():
        if isinstance(form, Fixed):
            fixed[name] = form
            continue
        if fixed:
            yield _Run(fixed), ", ".join(fixed), form
            fixed = {}
        yield None, name, form
    if fixed:
        yield _Run(fixed), ", ".join(fixed), U8  # the run is read and written whole
