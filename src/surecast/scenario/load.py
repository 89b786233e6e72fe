"""From a scenario file to a checked scenario: all that is wrong with it is found at once and said together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from surecast.documents.reading import parse_source, read_source, set_fields
from surecast.documents.source import SCENARIO, FieldPath, Source
from surecast.documents.validation import path_in_data, schema_nodes, short_text, value_at, worded_problem
from surecast.errors import Problem, ScenarioError
from surecast.scenario.build import build, find_problems
from surecast.scenario.estimates import take_estimates
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
        raise ScenarioError([source.problem((), *SCENARIO.problem_of_fields())])
    estimates, problems = take_estimates(source)
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
    scenario.attach(source, system, estimates)
    return scenario, system


@cache
def scenario_schema() -> dict[str, Any]:
    """Returns the JSON schema of a scenario file, for editors."""
    schema = Scenario.model_json_schema()
    _allow_estimates(schema)
    schema["$defs"]["Estimate"] = _ESTIMATE
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Surecast scenario"}


_ESTIMATE: dict[str, Any] = {
    "type": "object",
    "description": "An estimate with the ends of its 95 % interval, which predictions reflect.",
    "properties": {
        "estimate": {"type": ["string", "number"], "description": "The value."},
        "low": {"type": ["string", "number"], "description": "The lower end."},
        "high": {"type": ["string", "number"], "description": "The upper end."},
    },
    "required": ["estimate", "low", "high"],
    "additionalProperties": False,
}


def _allow_estimates(node: Any) -> None:
    """Allows an estimate with its interval wherever a schema has a duration, a rate or a share."""
    if isinstance(node, list):
        for part in node:
            _allow_estimates(part)
    elif isinstance(node, dict):
        for part in node.values():
            _allow_estimates(part)
        if node.get("type") in (["string", "number"], ["number", "string"]):
            node["anyOf"] = [{"type": node.pop("type")}, {"$ref": "#/$defs/Estimate"}]


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
        part = value_at(data, cut[:-1])
        if isinstance(part, _Entries) and isinstance(cut[-1], int):
            by_list.setdefault(cut[:-1], set()).add(cut[-1])
        elif isinstance(part, dict):
            part.pop(cut[-1], None)
            if len(cut) <= 2:
                source.damaged.add(cut)
    # Inner lists first: taking entries out of an outer one renumbers it.
    for path, gone in sorted(by_list.items(), key=lambda item: -len(item[0])):
        entries = value_at(data, path)
        entries.drop(gone)
        source.kept[path] = entries.kept


def _data_path(data: Any, loc: tuple[str | int, ...], kind: str) -> FieldPath:
    """Returns the place of an error in the data; a missing field has the place where it belongs."""
    path = path_in_data(data, loc)
    if kind == "missing" and (isinstance(value_at(data, path), dict) or isinstance(loc[-1], int)):
        return (*path, loc[-1])
    return path


def _problem(source: Source, detail: ErrorDetails, path: FieldPath) -> Problem:
    """Returns one validation error in words: what is wrong and what would be right."""
    kind = detail["type"]
    if kind == "missing" and isinstance(path[-1], int):
        written = short_text(value_at(source.data, path[:-1]))
        return source.problem(path[:-1], f"{written} has too few entries", "name two ends")
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _tag_problem(source, detail, path)
    return worded_problem(source, detail, path, scenario_schema(), SCENARIO)


def _tag_problem(source: Source, detail: ErrorDetails, path: FieldPath) -> Problem:
    context = detail.get("ctx") or {}
    name = str(context.get("discriminator", "'kind'")).strip("'")
    expected = str(context.get("expected_tags", ""))
    if detail["type"] == "union_tag_invalid" and isinstance(detail["input"], dict):
        tag = detail["input"].get(name)
        return source.problem((*path, name), f"{tag!r} is not known here", f"write one of {expected}")
    if not isinstance(detail["input"], dict):
        return source.problem(path, f"{short_text(detail['input'])} should be a mapping", f"it begins with {name}:")
    alternatives = ", ".join(_tags(path, source.data, name))
    return source.problem((*path, name), "is missing", f"write one of {alternatives}")


def _tags(path: FieldPath, data: Any, discriminator: str) -> list[str]:
    nodes = schema_nodes(scenario_schema(), path, data)
    return [
        str(n["properties"][discriminator]["const"])
        for n in nodes
        if "const" in n.get("properties", {}).get(discriminator, {})
    ]
