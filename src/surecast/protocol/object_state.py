"""The state of plain objects as bytes, so that others which were made alike go on exactly where these stand.

An `ObjectState` walks from an object to all that it refers to. Numbers, texts and tuples are written as they are.
Objects, lists, dictionaries and deques are written once, and from then on by their number: where two parts share one,
they share it afterwards. So whoever adds an attribute to one of these objects need not think of snapshots.

    objects of the classes in `packages`      all their attributes, in order
    classes in `forms`                        what a pair of functions makes of them: caches stay out, and what can be
                                              found again
    functions, and objects of `given` classes nothing: the object into which a state is read has its own

Equal states give equal bytes: sets are sorted, and no address or hash of a text is written. To read a state there must
be an object that was made with the same arguments; it is filled in place.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from surecast.errors import PeerError

__all__ = ["ObjectState", "OwnForm"]

_NUMBER: Final = struct.Struct(">I")
_FLOAT: Final = struct.Struct(">d")
(_NONE, _FALSE, _TRUE, _INT, _FLOATING, _TEXT, _BYTES, _TUPLE, _NAMED, _LIST, _DICT, _COUNTER, _SET, _DEQUE, _OBJECT,
 _FORM, _VALUE, _AGAIN, _GIVEN, _ABSENT) = (bytes((n,)) for n in range(20))  # fmt: skip
_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)
_MISSING: Final = object()
_MISTAKES: Final = (struct.error, LookupError, ValueError, TypeError, AttributeError, OverflowError)


class OwnForm(NamedTuple):
    """The form of a class that is not written attribute by attribute.

    `reduce` returns what to write of an object: texts, numbers, bytes, and tuples of these or of classes that are
    values. `build` returns an object of it, given the one that is there already, or None. With `is_value` objects are
    compared by what they are, and are written wherever they are met.
    """

    reduce: Callable[[Any], Any]
    build: Callable[[Any, Any], Any]
    is_value: bool = False


class ObjectState:
    """Writes and reads the state of objects.

    >>> from surecast.protocol.overlay.event_id import SeenEvents, EventId
    >>> state = ObjectState(packages=("surecast.protocol.overlay",))
    >>> seen, again = SeenEvents(), SeenEvents()
    >>> seen.add(EventId("b1", 1, 7))
    >>> state.read(state.write(seen), again)
    >>> again.look(EventId("b1", 1, 7)), state.write(again) == state.write(seen)
    ('seen', True)
    """

    def __init__(
        self,
        packages: Sequence[str],
        forms: Mapping[type, OwnForm] | None = None,
        given: tuple[type, ...] = (),
        caches: Mapping[type, Sequence[str]] | None = None,
    ):
        self.packages = tuple(f"{package}." for package in packages)
        self.forms = dict(forms or {})
        self.given = given
        self.caches = {cls: frozenset(names) for cls, names in (caches or {}).items()}

    def write(self, root: object) -> bytes:
        """Returns the state of an object and of all that belongs to it; TypeError names a class that has no form."""
        writer = _Writer(self)
        writer.write(root)
        return b"".join(writer.parts)

    def read(self, data: bytes, root: object) -> None:
        """Gives an object, which was made alike, the state that was written; PeerError where the bytes are none."""
        reader = _Reader(self, data)
        try:
            if reader.read(root) is not root or reader.at != len(data):
                raise ValueError(f"the state of another object, or bytes after its end at {reader.at}")
        except _MISTAKES as error:
            raise PeerError(f"state of {type(root).__name__}: at byte {reader.at}: {error}") from error

    def class_of(self, module: str, name: str) -> type:
        """Returns a class by its names; ValueError where its objects are not written."""
        cls = getattr(sys.modules.get(module), name, None)
        if not isinstance(cls, type) or not (cls in self.forms or f"{module}.".startswith(self.packages)):
            raise ValueError(f"the class {name} of {module}, which this version does not have")
        return cls

    def names_of(self, value: object) -> tuple[str, ...]:
        """Returns the attributes of an object that are written, in order."""
        skipped = self.caches.get(type(value), ())
        return tuple(name for name in vars(value) if name not in skipped)

    def fields_of(self, cls: type) -> tuple[str, ...]:
        """Returns the attributes of a class with slots that are written."""
        skipped = self.caches.get(cls, ())
        names = [name for base in reversed(cls.__mro__) for name in getattr(base, "__slots__", ())]
        return tuple(name for name in names if name not in skipped and not name.startswith("__"))


class _Writer:
    def __init__(self, state: ObjectState):
        self.parts: list[bytes] = []
        self._state = state
        self._places: dict[int, int] = {}
        self._classes: dict[type, int] = {}
        self._slots: dict[type, tuple[str, ...]] = {}
        self._writers: dict[type, Callable[[Any], None]] = {
            type(None): lambda _: self.parts.append(_NONE),
            bool: lambda value: self.parts.append(_TRUE if value else _FALSE),
            int: self._write_int,
            float: lambda value: self.parts.append(_FLOATING + _FLOAT.pack(value)),
            str: lambda value: self._write_bytes(_TEXT, value.encode("utf-8", "surrogatepass")),
            bytes: lambda value: self._write_bytes(_BYTES, value),
            tuple: lambda value: self._write_all(_TUPLE, value),
            list: lambda value: self._write_once(value, lambda: self._write_all(_LIST, value)),
            deque: lambda value: self._write_once(value, lambda: self._write_all(_DEQUE, value)),
            set: lambda value: self._write_once(value, lambda: self._write_all(_SET, sorted(value))),
            dict: lambda value: self._write_once(value, lambda: self._write_pairs(_DICT, value)),
            Counter: lambda value: self._write_once(value, lambda: self._write_pairs(_COUNTER, value)),
        }

    def write(self, value: Any) -> None:
        """Adds the bytes of a value."""
        kind = type(value)
        writer = self._writers.get(kind)
        if writer is None:
            writer = self._writers[kind] = self._writer_of(kind)
        writer(value)

    def _writer_of(self, kind: type) -> Callable[[Any], None]:
        state = self._state
        if (form := state.forms.get(kind)) is not None:
            if form.is_value:
                return lambda value: self._write_form(_VALUE, kind, form.reduce(value))
            return lambda value: self._write_once(
                value, lambda: self._write_form(_FORM, kind, form.reduce(value))
            )  # fmt: skip
        if issubclass(kind, (*_FUNCTIONS, *state.given)):
            return lambda _: self.parts.append(_GIVEN)
        if not f"{kind.__module__}.".startswith(state.packages):
            raise TypeError(f"the state of objects: {kind.__module__}.{kind.__qualname__} has no form")
        if issubclass(kind, tuple):
            return self._write_named
        return lambda value: self._write_once(value, lambda: self._write_object(value))

    def _write_int(self, value: int) -> None:
        self._write_bytes(_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))

    def _write_bytes(self, tag: bytes, data: bytes) -> None:
        self.parts += (tag, _NUMBER.pack(len(data)), data)

    def _write_all(self, tag: bytes, values: Sequence[Any]) -> None:
        self.parts += (tag, _NUMBER.pack(len(values)))
        for value in values:
            self.write(value)

    def _write_pairs(self, tag: bytes, values: Mapping[Any, Any]) -> None:
        self.parts += (tag, _NUMBER.pack(len(values)))
        for key, value in values.items():
            self.write(key)
            self.write(value)

    def _write_once(self, value: object, write: Callable[[], None]) -> None:
        place = self._places.get(id(value))
        if place is not None:
            self.parts.append(_AGAIN + _NUMBER.pack(place))
            return
        self._places[id(value)] = len(self._places)
        write()

    def _write_class(self, tag: bytes, kind: type) -> None:
        number = self._classes.get(kind)
        if number is not None:
            self.parts.append(tag + _NUMBER.pack(number))
            return
        number = self._classes[kind] = len(self._classes)
        self.parts.append(tag + _NUMBER.pack(number))
        self._write_bytes(_TEXT, f"{kind.__module__}:{kind.__qualname__}".encode())

    def _write_form(self, tag: bytes, kind: type, reduced: Any) -> None:
        self._write_class(tag, kind)
        self.write(reduced)

    def _write_named(self, value: tuple[Any, ...]) -> None:
        self._write_class(_NAMED, type(value))
        self._write_all(_TUPLE, value)

    def _write_object(self, value: Any) -> None:
        kind = type(value)
        self._write_class(_OBJECT, kind)
        attributes = getattr(value, "__dict__", None)
        if attributes is None:
            names = self._slots.get(kind)
            if names is None:
                names = self._slots[kind] = self._state.fields_of(kind)
        else:
            names = self._state.names_of(value)
        self.parts.append(_NUMBER.pack(len(names)))
        for name in names:
            self._write_bytes(_TEXT, name.encode()) if attributes is not None else None
            each = getattr(value, name, _MISSING)
            if each is _MISSING:
                self.parts.append(_ABSENT)
            else:
                self.write(each)


class _Reader:
    def __init__(self, state: ObjectState, data: bytes):
        self.at = 0
        self._state = state
        self._data = data
        self._made: list[Any] = []
        self._classes: list[type] = []
        self._slots: dict[type, tuple[str, ...]] = {}
        self._readers: dict[bytes, Callable[[Any], Any]] = {
            _NONE: lambda _: None,
            _FALSE: lambda _: False,
            _TRUE: lambda _: True,
            _INT: lambda _: int.from_bytes(self._bytes(), "big", signed=True),
            _FLOATING: self._read_float,
            _TEXT: lambda _: self._bytes().decode("utf-8", "surrogatepass"),
            _BYTES: lambda _: self._bytes(),
            _TUPLE: self._read_tuple,
            _NAMED: self._read_named,
            _LIST: self._read_list,
            _DICT: lambda there: self._read_dict(there if type(there) is dict else {}),
            _COUNTER: lambda there: self._read_dict(there if type(there) is Counter else Counter()),
            _SET: self._read_set,
            _DEQUE: self._read_deque,
            _OBJECT: self._read_object,
            _FORM: self._read_form,
            _VALUE: lambda _: self._state.forms[self._class()].build(None, self.read()),
            _AGAIN: lambda _: self._made[self._number()],
            _GIVEN: self._keep,
            _ABSENT: lambda _: _MISSING,
        }

    def read(self, there: Any = None) -> Any:
        """Returns the next value: what is `there` already, filled anew, where it is of that kind."""
        tag = self._data[self.at : self.at + 1]
        self.at += 1
        return self._readers[tag](there)

    def _number(self) -> int:
        number: int = _NUMBER.unpack_from(self._data, self.at)[0]
        self.at += 4
        return number

    def _bytes(self) -> bytes:
        size = self._number()
        begin, self.at = self.at, self.at + size
        if self.at > len(self._data):
            raise ValueError(f"it goes on to byte {self.at} of {len(self._data)}")
        return self._data[begin : self.at]

    def _read_float(self, _: Any) -> float:
        self.at += 8
        value: float = _FLOAT.unpack_from(self._data, self.at - 8)[0]
        return value

    def _keep(self, there: Any) -> Any:
        if there is None or there is _MISSING:
            raise ValueError("what is given is not there")
        return there

    def _class(self) -> type:
        number = self._number()
        if number == len(self._classes):
            module, _, name = self.read().partition(":")
            self._classes.append(self._state.class_of(module, name))
        return self._classes[number]

    def _read_tuple(self, there: Any) -> tuple[Any, ...]:
        before = there if isinstance(there, tuple) else ()
        count = self._number()
        return tuple([self.read(before[n] if n < len(before) else None) for n in range(count)])

    def _read_named(self, there: Any) -> Any:
        cls: Any = self._class()
        return cls(*self.read(there))

    def _read_list(self, there: Any) -> list[Any]:
        values: list[Any] = there if type(there) is list else []
        self._made.append(values)
        before = [*values]
        values.clear()
        values.extend([self.read(before[n] if n < len(before) else None) for n in range(self._number())])
        return values

    def _read_dict(self, values: dict[Any, Any]) -> dict[Any, Any]:
        self._made.append(values)
        before = dict(values)
        values.clear()
        for _ in range(self._number()):
            key = self.read()
            values[key] = self.read(before.get(key))
        return values

    def _read_set(self, there: Any) -> set[Any]:
        values: set[Any] = there if type(there) is set else set()
        self._made.append(values)
        values.clear()
        values.update([self.read() for _ in range(self._number())])
        return values

    def _read_deque(self, there: Any) -> deque[Any]:
        values: deque[Any] = there if type(there) is deque else deque()
        self._made.append(values)
        values.clear()
        values.extend([self.read() for _ in range(self._number())])
        return values

    def _read_form(self, there: Any) -> Any:
        place = len(self._made)
        self._made.append(None)
        cls = self._class()
        made = self._made[place] = self._state.forms[cls].build(there if type(there) is cls else None, self.read())
        return made

    def _read_object(self, there: Any) -> Any:
        cls = self._class()
        made: Any = there if type(there) is cls else object.__new__(cls)
        self._made.append(made)
        has_names = hasattr(made, "__dict__")
        names: tuple[str, ...] = ()
        if not has_names:
            slots = self._slots.get(cls)
            names = self._slots[cls] = self._state.fields_of(cls) if slots is None else slots
        elif made is there:
            names = self._state.names_of(made)
        count = self._number()
        if names and count != len(names):
            raise ValueError(f"{count} attributes of {cls.__qualname__}; this version has {len(names)}")
        for n in range(count):
            name = self.read() if has_names else names[n]
            if names and name not in names:
                raise ValueError(f"{cls.__qualname__} has no attribute {name} in this version")
            value = self.read(getattr(made, name, None))
            if value is not _MISSING:
                object.__setattr__(made, name, value)  # frozen ones too
        return made
