"""The base of all models of a file, and validation errors in words that a reader of the file understands."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from surecast.documents.source import DocumentKind, FieldPath, Source, has_part
from surecast.errors import Problem

__all__ = [
    "Int",
    "Name",
    "Spec",
    "check_model",
    "field_hint",
    "path_in_data",
    "schema_nodes",
    "short_text",
    "value_at",
    "worded_problem",
]

Int = Annotated[int, Field(strict=True)]
Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
]


class Spec(BaseModel):
    """A part of a file: unknown fields are errors, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=BaseModel)

WORDS = {
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "dict_type": "should be a mapping of fields",
    "finite_number": "should be a finite number",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "greater_than": "should be above {gt}",
    "greater_than_equal": "should be at least {ge}",
    "int_from_float": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "less_than": "should be below {lt}",
    "less_than_equal": "should be at most {le}",
    "list_type": "should be a list",
    "model_attributes_type": "should be a mapping of fields",
    "model_type": "should be a mapping of fields",
    "string_pattern_mismatch": "should have no control characters",
    "string_too_long": "should have at most {max_length} characters",
    "string_too_short": "should not be empty",
    "string_type": "should be text",
    "too_long": "should have {max_length} entries",
    "too_short": "should have at least {min_length} entry",
    "tuple_type": "should be a list",
}
"""The message for each kind of pydantic's errors, with its context filled in."""


def path_in_data(data: Any, location: tuple[str | int, ...]) -> FieldPath:
    """Returns the part of an error's location that exists in the data: union tags and normalised forms drop out."""
    path: list[str | int] = []
    for step in location:
        if has_part(data, step):
            data = data[step]
            path.append(step)
    return tuple(path)


def field_hint(name: str | int, allowed: Iterable[str]) -> str:
    """Returns what to write in place of an unknown field.

    >>> field_hint("listener", ["listeners", "state"])
    'did you mean listeners?'
    >>> field_hint("colour", ["listeners", "state"])
    'allowed here: listeners, state'
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"did you mean {near[0]}?" if near else f"allowed here: {', '.join(names)}"


def check_model(source: Source, model: type[M], kind: DocumentKind) -> M:
    """Returns the checked model of a file's data; the error of its kind has every problem found, with its line."""
    if not isinstance(source.data, dict):
        raise kind.error([source.problem((), *kind.problem_of_fields())])
    try:
        return model.model_validate(source.data, context={"folder": source.folder})
    except ValidationError as error:
        # A list with wrong entries is also said to be too short, which it is not.
        details = [each for each in error.errors(include_url=False) if each["type"] != "too_short" or not each["input"]]
    schema = model.model_json_schema()
    raise kind.error(dict.fromkeys(_problem(source, detail, schema, kind) for detail in details)) from None


def _problem(source: Source, detail: ErrorDetails, schema: dict[str, Any], kind: DocumentKind) -> Problem:
    path = path_in_data(source.data, detail["loc"])
    if detail["type"] == "missing":
        path = (*path, detail["loc"][-1])
    return worded_problem(source, detail, path, schema, kind)


def worded_problem(
    source: Source, detail: ErrorDetails, path: FieldPath, schema: dict[str, Any], kind: DocumentKind
) -> Problem:
    """Returns one validation error in words: what is wrong and what would be right."""
    error, context = detail["type"], detail.get("ctx") or {}
    if error == "missing":
        return source.problem(path, "is missing", "add it")
    if error == "extra_forbidden":
        nodes = schema_nodes(schema, path[:-1], source.data)
        hint = field_hint(path[-1], {name for node in nodes for name in node.get("properties", {})})
        return source.problem(path, f"is not a field of {kind.one} at this place", hint)
    if error in ("literal_error", "enum"):
        return source.problem(path, f"{detail['input']!r} is not known here", f"write {context['expected']}")
    if error == "string_pattern_mismatch" and str(context["pattern"]).startswith("^/"):
        return source.problem(path, f"{short_text(detail['input'])} should begin with /")
    if error in WORDS:
        return source.problem(path, f"{short_text(detail['input'])} {WORDS[error].format(**context)}")
    message, _, hint = str(detail["msg"]).partition("; ")
    return source.problem(path, message, hint)


def short_text(value: Any) -> str:
    """Returns a value as people write it, cut where it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def value_at(data: Any, path: FieldPath) -> Any:
    """Returns the part of data at a path, None where there is none."""
    for step in path:
        data = data[step] if has_part(data, step) else None
    return data


def schema_nodes(schema: dict[str, Any], path: FieldPath, data: Any) -> list[dict[str, Any]]:
    """Returns the alternatives of a JSON schema at a place of the data, those ruled out by a tag left out."""
    nodes, place = _alternatives(schema, schema, data), data
    for step in path:
        place = value_at(place, (step,))
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
