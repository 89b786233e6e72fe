"""From a scenario file to a checked scenario: all that is wrong with it is found at once and said together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from surecast.documents.reading import parse_source, read_source, set_fields
from surecast.documents.source import FieldPath, Source, has_part
from surecast.documents.validation import WORDS, field_hint, path_in_data
from surecast.errors import Problem, ScenarioError
from surecast.scenario.build import build, find_problems
from surecast.scenario.spec.scenario import Scenario
from surecast.scenario.system import System

__all__ = ["load_system", "parse_scenario", "parse_text", "scenario_schema"]

MAX_ROUNDS = 50


def load_system(path: str | Path, settings: Mapping[str, object] | None = None) -> tuple[Scenario, System]:
    """Reads a scenario file as `Scenario.load` does: the checked scenario, and the system it means."""
    source = read_source(Path(path))
    set_fields(source, settings or {})
    return parse_scenario(source)


def parse_text(text: str) -> Scenario:
    """Returns a checked scenario from YAML text."""
    return parse_scenario(parse_source(text, "scenario", Path()))[0]


def parse_scenario(source: Source) -> tuple[Scenario, System]:
    """Returns the scenario and its system from a source; ScenarioError with all problems if it is wrong."""
    if not isinstance(source.data, dict):
        hint = "write fields such as name: and overlay:"
        raise ScenarioError([source.problem((), "a scenario is a mapping of fields", hint)])
    problems: list[Problem] = []
    scenario = _validate(source, problems)
    if problems:
        if scenario is not None:
            scenario.attach(source)
            problems += find_problems(scenario)
        raise ScenarioError(problems)
    if scenario is None:
        raise ScenarioError([source.problem((), "cannot be understood")])
    scenario.attach(source)
    system = build(scenario)
    scenario.attach(source, system)
    return scenario, system


@cache
def scenario_schema() -> dict[str, Any]:
    """Returns the JSON schema of a scenario file, for editors."""
    schema = Scenario.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Surecast scenario"}


class _Entries(list[Any]):
    """A list that remembers the original indices of its entries when some are left out."""

    def __init__(self, items: list[Any]):
        super().__init__(items)
        self.kept = list(range(len(items)))

    def drop(self, gone: set[int]) -> None:
        stay = [i for i in range(len(self)) if i not in gone]
        self.kept = [self.kept[i] for i in stay]
        self[:] = [self[i] for i in stay]


def _copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copy(value) for key, value in data.items()}
    return _Entries([_copy(value) for value in data]) if isinstance(data, list) else data


def _validate(source: Source, problems: list[Problem]) -> Scenario | None:
    """Validates; on errors, leaves out the wrong parts until the rest is valid, so that the rest can be checked too."""
    data = _copy(source.data)
    for round_number in range(MAX_ROUNDS):
        try:
            return Scenario.model_validate(data)
        except ValidationError as error:
            details = error.errors(include_url=False)
        paths = [_data_path(data, detail["loc"], detail["type"]) for detail in details]
        if round_number == 0:
            problems += _merged([_problem(source, detail, path) for detail, path in zip(details, paths, strict=True)])
        cuts = {path[:-1] if d["type"] == "missing" else path for d, path in zip(details, paths, strict=True)}
        if () in cuts:
            return None
        _leave_out(data, cuts, source)
    return None


def _merged(problems: list[Problem]) -> list[Problem]:
    """Returns one problem for each field: where several forms are allowed, each complains about the same value."""
    by_field: dict[str, Problem] = {}
    for problem in problems:
        first = by_field.get(problem.field)
        if first is None:
            by_field[problem.field] = problem
        elif problem.hint and problem.hint not in first.hint:
            hint = f"{first.hint}, or {problem.hint}" if first.hint else problem.hint
            by_field[problem.field] = replace(first, hint=hint)
    return list(by_field.values())


def _leave_out(data: Any, cuts: set[FieldPath], source: Source) -> None:
    """Takes the wrong parts out of the data and notes in the source what is gone."""
    by_list: dict[FieldPath, set[int]] = {}
    for cut in cuts:
        place = _value_at(data, cut[:-1])
        if isinstance(place, _Entries) and isinstance(cut[-1], int):
            by_list.setdefault(cut[:-1], set()).add(cut[-1])
        elif isinstance(place, dict):
            place.pop(cut[-1], None)
            if len(cut) <= 2:
                source.damaged.add(cut)
    # Inner lists first: taking entries out of an outer one renumbers it.
    for path, gone in sorted(by_list.items(), key=lambda item: -len(item[0])):
        entries = _value_at(data, path)
        entries.drop(gone)
        source.kept[path] = entries.kept


def _value_at(data: Any, path: FieldPath) -> Any:
    for step in path:
        data = data[step] if has_part(data, step) else None
    return data


def _data_path(data: Any, loc: tuple[str | int, ...], kind: str) -> FieldPath:
    """Returns the place of an error in the data; a missing field has the place where it belongs."""
    path = path_in_data(data, loc)
    if kind == "missing" and (isinstance(_value_at(data, path), dict) or isinstance(loc[-1], int)):
        return (*path, loc[-1])
    return path


def _problem(source: Source, detail: ErrorDetails, path: FieldPath) -> Problem:
    """Returns one validation error in words: what is wrong and what would be right."""
    kind, context = detail["type"], detail.get("ctx") or {}
    if kind == "missing" and isinstance(path[-1], int):
        return source.problem(
            path[:-1], f"{_short(_value_at(source.data, path[:-1]))} has too few entries", "name two ends"
        )
    if kind == "missing":
        return source.problem(path, "is missing", "add it")
    if kind == "extra_forbidden":
        hint = field_hint(path[-1], _allowed_fields(path[:-1], source.data))
        return source.problem(path, "is not a field of a scenario at this place", hint)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _tag_problem(source, detail, path)
    if kind in ("literal_error", "enum"):
        value = detail["input"]
        return source.problem(path, f"{value!r} is not known here", f"write {context['expected']}")
    if kind in WORDS:
        return source.problem(path, f"{_short(detail['input'])} {WORDS[kind].format(**context)}")
    message, _, hint = str(detail["msg"]).partition("; ")
    return source.problem(path, message, hint)


def _tag_problem(source: Source, detail: ErrorDetails, path: FieldPath) -> Problem:
    context = detail.get("ctx") or {}
    name = str(context.get("discriminator", "'kind'")).strip("'")
    expected = str(context.get("expected_tags", ""))
    if detail["type"] == "union_tag_invalid" and isinstance(detail["input"], dict):
        tag = detail["input"].get(name)
        return source.problem((*path, name), f"{tag!r} is not known here", f"write one of {expected}")
    if not isinstance(detail["input"], dict):
        return source.problem(path, f"{_short(detail['input'])} should be a mapping", f"it begins with {name}:")
    alternatives = ", ".join(_tags(path, source.data, name))
    return source.problem((*path, name), "is missing", f"write one of {alternatives}")


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _allowed_fields(path: FieldPath, data: Any) -> set[str]:
    """Returns the names that the schema allows at a place."""
    return {name for node in _schema_nodes(path, data) for name in node.get("properties", {})}


def _tags(path: FieldPath, data: Any, discriminator: str) -> list[str]:
    nodes = _schema_nodes(path, data)
    return [
        str(n["properties"][discriminator]["const"])
        for n in nodes
        if "const" in n.get("properties", {}).get(discriminator, {})
    ]


def _schema_nodes(path: FieldPath, data: Any) -> list[dict[str, Any]]:
    """Returns the alternatives of the JSON schema at a place of the data, those ruled out by a tag left out."""
    schema = scenario_schema()
    nodes, place = _alternatives(schema, schema, data), data
    for step in path:
        place = _value_at(place, (step,))
        if isinstance(step, int):
            inner = [node["items"] for node in nodes if isinstance(node.get("items"), dict)]
        else:
            inner = [_property(node, step) for node in nodes]
        nodes = [a for node in inner if node for a in _alternatives(schema, node, place)]
    return nodes


def _property(node: dict[str, Any], name: str) -> dict[str, Any]:
    subschema = node.get("properties", {}).get(name) or node.get("additionalProperties")
    return subschema if isinstance(subschema, dict) else {}


def _alternatives(schema: dict[str, Any], node: dict[str, Any], data: Any) -> list[dict[str, Any]]:
    if "$ref" in node:
        return _alternatives(schema, schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], data)
    for key in ("anyOf", "oneOf"):
        if key in node:
            return [a for option in node[key] for a in _alternatives(schema, option, data)]
    for name in ("kind", "distribution"):
        constant = node.get("properties", {}).get(name, {}).get("const")
        if constant and isinstance(data, dict) and data.get(name, constant) != constant:
            return []
    return [node]
