"""Content filters see a message by our own limits, strictly by RFC 8259, and whatever the interpreter does."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from surecast.protocol.broker.content import (
    ATTRIBUTE_NAME_MAX,
    JSON_BYTES_MAX,
    JSON_COMMAS_MAX,
    JSON_DEPTH_MAX,
    NUMBER_CHARACTERS_MAX,
    attributes_of,
)
from surecast.protocol.broker.message import Message
from surecast.protocol.filters import FilterSyntaxError, parse
from surecast.protocol.mqtt import Properties, encode_properties

T = TypeVar("T")
EVERYTHING = type("Everything", (), {"__contains__": lambda self, name: True})()


def fields(payload: bytes, content_type: str = "application/json", names: Any = EVERYTHING) -> dict[str, Any]:
    properties = encode_properties(Properties(content_type=content_type), 3)
    return attributes_of(Message(1, "t", b"", payload, properties=properties), names)


def at_depth(frames: int, call: Callable[[], T]) -> T:
    """Calls a function with so many frames on the stack."""
    return call() if frames <= 0 else at_depth(frames - 1, call)


def nested(depth: int, rest: bytes = b'"price": 40') -> bytes:
    """An object with a number of levels, itself included."""
    return b"{" + rest + b', "in": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (b'{"a": 1, "b": 1.5, "c": "x", "d": true, "e": null, "f": [1]}', {"a": 1, "b": 1.5, "c": "x", "d": "true"}),
        (b'{"a": {"b": {"c": 3}}, "a.b": 1}', {"a.b.c": 3, "a.b": 1}),
        (b' \t\r\n{"a": -0}\n', {"a": 0}),
        # Of two fields with the same name the later counts, and the deeper before that.
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'{"a": 1, "a": null}', {}),
        (b'{"a": {"x": 1}, "a": {"y": 2}}', {"a.y": 2}),
        (b'{"a": {"b": 1}, "a.b": 2}', {"a.b": 1}),
        (b'{"a.b": {"c": 1}, "a": {"b.c": 2}}', {"a.b.c": 2}),
        (b'{"": {"": 1}}', {".": 1}),
        # Escapes: a pair is one character; half of one stays what it is, and no filter can name it.
        (rb'{"a": "\ud83d\ude00"}', {"a": "\U0001f600"}),
        (rb'{"a": "\ud83d", "b": 1}', {"a": "\ud83d", "b": 1}),
        (rb'{"\u0061": 1}', {"a": 1}),
        # No JSON by RFC 8259, though some parsers take it.
        (b'{"a": NaN}', {}),
        (b'{"a": Infinity}', {}),
        (b'{"a": -Infinity, "b": 1}', {}),
        (b'{"a": 01}', {}),
        (b'{"a": +1}', {}),
        (b'{"a": .5}', {}),
        (b'{"a": 1.}', {}),
        (b'{"a": 0x10}', {}),
        ('{"a": \uff11}'.encode(), {}),
        (b'{"a": 1,}', {}),
        (b"{'a': 1}", {}),
        (b'{"a": "\t"}', {}),
        (b'{"a": 1} {"b": 2}', {}),
        (b'{"a": 1} // c', {}),
        (b'\xef\xbb\xbf{"a": 1}', {}),
        ('{"a": 1}'.encode("utf-16"), {}),
        ('{"a": 1}'.encode("utf-16-le"), {}),
        ('{"a": 1}'.encode("utf-32-be"), {}),
        (b'{"a": "\xff"}', {}),
        (b'{"a": "\xed\xa0\x80"}', {}),  # half of a pair as UTF-8
        (b'{"a": "\xc0\x80"}', {}),  # more bytes than needed
        (b"\xa0{}", {}),
        (b"[1, 2]", {}),
        (b"40", {}),
        (b"", {}),
        # Numbers beyond a float are no attributes; the other fields are.
        (b'{"a": 1e999, "b": 2}', {"b": 2}),
        (b'{"a": 1' + b"0" * 301 + b', "b": 2}', {"b": 2}),
    ],
)
def test_fields_of_json(payload: bytes, found: dict[str, Any]) -> None:
    assert fields(payload) == found


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("application/json", True),
        ("Application/JSON ; charset=utf-8", True),
        ("application/json;charset=utf-16", True),  # the payload is UTF-8, whatever is said
        ("text/json", False),
        ("application/\u017fson", False),
        ("\u00a0application/json", False),
        ("", False),
    ],
)
def test_the_content_type_is_ascii(content_type: str, is_json: bool) -> None:
    assert bool(fields(b'{"a": 1}', content_type)) is is_json


def test_depth() -> None:
    assert fields(nested(JSON_DEPTH_MAX)) == {"price": 40}
    assert fields(nested(JSON_DEPTH_MAX + 1)) == {}
    wide = b'{"price": 40, "in": [' + b",".join([b"[]"] * 1_000) + b"]}"
    assert fields(wide) == {"price": 40}
    # Brackets in text are no brackets, whatever stands around them.
    for text in (b"[" * 999, b'\\"' + b"[" * 999, b"\\\\", b"\\\\\\\\", b'\\\\\\"' + b"{" * 99):
        assert fields(b'{"price": 40, "text": "' + text + b'", "in": [[{}]]}')["price"] == 40
    deep = b'{"text": "\\\\", "price": 40, "in": ' + b"[" * 99 + b"]" * 99 + b"}"
    assert fields(deep) == {}


def test_commas_bytes_and_digits() -> None:
    values = b'{"price": 40, "in": [' + b",".join([b"1"] * JSON_COMMAS_MAX) + b"]}"
    assert values.count(b",") == JSON_COMMAS_MAX
    assert fields(values) == {"price": 40}
    assert fields(values.replace(b"[", b"[1,")) == {}
    whole = b'{"price": 40' + b" " * (JSON_BYTES_MAX - 13) + b"}"
    assert len(whole) == JSON_BYTES_MAX
    assert fields(whole) == {"price": 40}
    assert fields(whole + b" ") == {}
    for digits in (b"0." + b"1" * (NUMBER_CHARACTERS_MAX - 2), b"0." + b"1" * (NUMBER_CHARACTERS_MAX - 1)):
        found = fields(b'{"price": 40, "long": ' + digits + b"}")
        assert ("long" in found) is (len(digits) <= NUMBER_CHARACTERS_MAX)
        assert found["price"] == 40


def test_long_names_are_no_attributes() -> None:
    name = "n" * ATTRIBUTE_NAME_MAX
    assert fields(json.dumps({name: 1, name + "n": 2}).encode()) == {name: 1}
    outer = "o" * (ATTRIBUTE_NAME_MAX - 2)
    assert fields(json.dumps({outer: {"i": 1, "ii": 2}}).encode()) == {f"{outer}.i": 1}


@pytest.mark.parametrize(
    "payload",
    [
        json.dumps({"p" * 8_000: {f"{n:x}": 0 for n in range(8_000)}}).encode(),
        json.dumps({"p" * 250: {f"{n:x}": 0 for n in range(8_000)}}).encode(),
        b'{"":' * 31 + json.dumps({f"{n:x}": 0 for n in range(8_000)}).encode() + b"}" * 31,
    ],
    ids=["one long name", "one name just short enough", "many short ones"],
)
def test_memory_is_linear_in_the_payload(payload: bytes) -> None:
    fields(payload, names=("price",))
    tracemalloc.start()
    try:
        fields(payload, names=("price",))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(payload) + 100_000, f"{peak} bytes for a payload of {len(payload)}"


@pytest.mark.parametrize("frames", [0, 300, 700])
def test_the_depth_of_the_stack_decides_nothing(frames: int) -> None:
    room = sys.getrecursionlimit()
    depth = sum(1 for _ in _frames())
    for payload in (nested(JSON_DEPTH_MAX), nested(JSON_DEPTH_MAX + 1), nested(900), nested(999), nested(100_000)):
        assert at_depth(min(frames, room - depth - 150), partial(fields, payload)) == fields(payload)


def _frames() -> Any:
    frame: Any = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


@pytest.mark.skipif(not hasattr(sys, "set_int_max_str_digits"), reason="this Python has no limit of digits")
@pytest.mark.parametrize("limit", [0, 640, 4_300])
def test_the_limit_of_digits_decides_nothing(limit: int) -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        for digits in (300, 640, 641, 4_300, 4_301, 100_000):
            short = {"n": int("1" * 300)} if digits == 300 else {}
            assert fields(b'{"price": 40, "n": ' + b"1" * digits + b"}") == {"price": 40} | short
        with pytest.raises(FilterSyntaxError, match="at most 400 characters"):
            parse("price > " + "0" * 640 + "1")
        assert parse("price > " + "0" * 398 + "1") == parse("price > 1")
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("name", ["caf\u00e9", "\u01c5", "\ua7d0", "\U0001e4d0", "\u0660", "a\u00a0b", "price\u2003"])
def test_names_in_filters_do_not_depend_on_the_tables_of_unicode(name: str) -> None:
    assert parse(f"{name} > 1") == parse(f"`{name}` > 1")


def test_a_filter_decides_alike_at_every_depth_of_the_stack(make_world: Any) -> None:
    """300 publications nested 900 to 999 deep: how many a filter took was a matter of the stack."""
    queued = []
    for frames in (0, 60):
        world = make_world()
        sub, pub = world.client("sub").lasting(), world.client("pub").online()
        sub.subscribe("stocks", 1, user=(("filter", "price > 30"),))
        sub.drop()
        for n in range(300):
            payload = nested(900 + n % 100)
            at_depth(frames, partial(pub.publish, "stocks", payload, 1, content_type="application/json"))
        queued.append(world.broker.accounts().queued)
    assert queued == [0, 0]
