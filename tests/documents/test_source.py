"""Reading YAML: the dialect, the lines, and whatever bytes somebody throws at it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.documents.reading import parse_source, read_source, set_fields, with_fields
from surecast.documents.source import field_name, parse_field
from surecast.errors import ScenarioError
from surecast.scenario import load_system


def parse(text: str) -> object:
    return parse_source(text, "x.yaml", Path()).data


def test_words_stay_words() -> None:
    assert parse("{on: 20s, off: no, y: yes}") == {"on": "20s", "off": "no", "y": "yes"}


def test_numbers_and_text() -> None:
    assert parse("[1, 1.5, 1e3, 1_000, '1', 1:30, true, ~, 0x1F, 2026-01-01]") == [
        1, 1.5, 1000.0, 1000, "1", "1:30", True, None, "0x1F", "2026-01-01",
    ]  # fmt: skip


def test_every_field_knows_its_line() -> None:
    source = parse_source("a: 1\nb:\n  - x: 1\n  - x: 2\n    y: 3\n", "x.yaml", Path())
    assert source.line_of(("b", 1, "y")) == 5
    assert source.line_of(("b", 1, "nothing", "there")) == 4
    assert source.line_of(("b", 0)) == 3


def test_anchors_and_merges() -> None:
    text = "base: &base {a: 1, b: 2}\nuse:\n  <<: *base\n  b: 3\n"
    assert parse(text) == {"base": {"a": 1, "b": 2}, "use": {"a": 1, "b": 3}}


def test_an_explosion_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(ScenarioError, match="more than"):
        parse("\n".join(lines))


@pytest.mark.parametrize("text", ["&a [*a]", "[" * 5000, "{" * 5000, "a: &x\n  b: *x\n"])
def test_what_contains_itself_or_is_too_deep_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError):
        parse(text)


@given(st.binary(max_size=200))
def test_any_bytes_load_or_raise_the_scenario_error(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    file = tmp_path_factory.mktemp("junk") / "x.yaml"
    file.write_bytes(junk)
    with pytest.raises(ScenarioError):
        load_system(file)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 10)
    | st.floats()
    | st.sampled_from(
        ["random", "5s", "1/s", "a", "b", "nearest", "exponential", "spanning-tree", "ring", "all", "by-popularity", ""]
    )
)
keys = st.sampled_from(
    ["name", "count", "at", "home", "topics", "rate", "capacity", "service", "kind", "routers", "build", "links",
     "brokers", "each", "mtbf", "mttr", "availability", "classes", "clients", "locality", "hot_spot", "on", "off"]
)  # fmt: skip
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=8
)


@given(
    st.dictionaries(
        st.sampled_from(["network", "overlay", "availability", "workload", "delivery", "targets", "experiment"]), junk
    ),
    st.booleans(),
)
def test_any_structure_loads_or_raises_the_scenario_error(data: dict[str, object], valid_overlay: bool) -> None:
    import json

    overlay = {"overlay": {"brokers": [{"name": "a"}, {"name": "b"}], "links": [["a", "b"]]}} if valid_overlay else {}
    text = json.dumps({"surecast": 1, "name": "x", **data, **overlay})
    from surecast.scenario import parse_text

    try:
        parse_text(text)
    except ScenarioError as error:
        assert error.problems


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no such file"):
        read_source(tmp_path / "absent.yaml")
    with pytest.raises(ScenarioError, match="folder"):
        read_source(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ScenarioError, match="UTF-8"):
        read_source(tmp_path / "latin.yaml")


def test_field_names() -> None:
    path = ("overlay", "brokers", 0, "capacity")
    assert parse_field(field_name(path)) == path
    for name in ("", "a..b", "a[x]", "[", "a]"):
        with pytest.raises(ScenarioError):
            parse_field(name)


def test_overrides() -> None:
    source = parse_source("a: {b: [1, 2]}\n", "x.yaml", Path())
    set_fields(source, {"a.b[1]": "[5, 6]", "c.d": 7})
    assert source.data == {"a": {"b": [1, [5, 6]]}, "c": {"d": 7}}
    for name in ("a.b[9]", "a.b.c", "a.b[9].c"):
        with pytest.raises(ScenarioError, match="no such field"):
            set_fields(source, {name: "1"})


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (
            "a:\n  - id: 1 # one\n    b: [x]\n  - id: 2\n",
            "a:\n  - joins: true\n    id: 7 # one\n    b: [x]\n  - id: 2\n",
        ),
        ("a: [{b: 1, id: 3}, {id: 2}] # both\n", "a: [{joins: true, b: 1, id: 7}, {id: 2}] # both\n"),
        ("# é\na:\n- b: x\n\n  # no\n  joins: false\n  id: 1\n", "# é\na:\n- b: x\n\n  # no\n  joins: true\n  id: 7\n"),
    ],
)
def test_fields_are_changed_in_the_text_and_all_else_stays(text: str, edited: str) -> None:
    assert with_fields(text, ("a", 0), {"id": "7", "joins": "true"}) == edited
