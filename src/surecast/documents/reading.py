"""Reads YAML text as plain data, with the line of every part of it.

The dialect is YAML 1.2's core schema: `on`, `off`, `yes` and `no` are words, and `1:30` is text, not 90.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from surecast.documents.source import SCENARIO, DocumentKind, FieldPath, Source, field_name, has_part, parse_field
from surecast.errors import Problem, ScenarioError

__all__ = ["parse_source", "read_source", "set_fields", "with_fields", "yaml_text"]

MAX_BYTES = 16 * 1024 * 1024
MAX_PARTS = 1_000_000
_INT = re.compile(r"[-+]?\d[\d_]*$")
_FLOAT = re.compile(r"[-+]?(?:\d[\d_]*\.[\d_]*|\.\d[\d_]*|\d[\d_]*)(?:[eE][-+]?\d+)?$")
CORE_TYPES = ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value")
CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in CORE_TYPES}

_OTHER_LINE_ENDS = ("\x85", "\u2028", "\u2029")


def read_source(path: Path, kind: DocumentKind = SCENARIO) -> Source:
    """Reads a file; whatever is wrong with it as YAML becomes the error of its kind, with its line."""
    file = str(path)

    def refuse(message: str, hint: str = "") -> ScenarioError:
        return kind.error([Problem(file, None, "", message, hint)])

    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise refuse(f"is larger than {MAX_BYTES // 2**20} MiB")
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise refuse("there is no such file", kind.start) from None
    except IsADirectoryError:
        raise refuse(f"is a folder; name {kind.one} in it") from None
    except UnicodeDecodeError as error:
        raise refuse(f"is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}") from None
    return parse_source(text, file, path.resolve().parent, kind)


def parse_source(text: str, file: str, folder: Path, kind: DocumentKind = SCENARIO) -> Source:
    """Parses the text of a file; `file` names it in errors, and relative paths in it start at `folder`."""
    reader = _Reader(file, kind)
    data = reader.read(text)
    return Source(file, folder, data, reader.lines)


def yaml_text(data: Any, **style: Any) -> str:
    """Returns data as the text of a file, with its fields in order; `style` are options of PyYAML.

    >>> yaml_text({"name": "plant", "replicas": [1, 2]})
    'name: plant\\nreplicas:\\n- 1\\n- 2\\n'
    """
    text: str = yaml.safe_dump(data, sort_keys=False, **style)
    if any(end in text for end in _OTHER_LINE_ENDS):  # PyYAML would not read these back as it wrote them
        text = yaml.safe_dump(data, sort_keys=False, **{**style, "allow_unicode": False})
    return text


def with_fields(text: str, place: FieldPath, fields: Mapping[str, str]) -> str:
    """Returns the text of a file with other fields in the mapping at a place, each as YAML; all else is as it was.

    >>> with_fields("replicas:\\n- id: 3  # in the cellar\\n", ("replicas", 0), {"id": "4", "joins": "true"})
    'replicas:\\n- joins: true\\n  id: 4  # in the cellar\\n'
    """
    node = yaml.compose(text, yaml.SafeLoader)
    for step in place:
        node = node.value[step] if isinstance(step, int) else _fields_of(node)[step]
    first, present = node.value[0][0].start_mark, _fields_of(node)
    edits = []
    for name, value in fields.items():
        if name in present:
            edits.append((present[name].start_mark.index, present[name].end_mark.index, value))
        else:
            following = ", " if node.flow_style else "\n" + " " * first.column
            edits.append((first.index, first.index, f"{name}: {value}{following}"))
    for begin, end, words in sorted(edits, reverse=True):
        text = text[:begin] + words + text[end:]
    return text


def _fields_of(mapping: yaml.MappingNode) -> dict[str, yaml.Node]:
    return {key.value: value for key, value in mapping.value}


def set_fields(source: Source, settings: Mapping[str, object]) -> None:
    """Sets fields by name. A text is read as YAML, as in a file; parts of a name that do not exist are made."""
    for name, value in settings.items():
        try:
            text = value if isinstance(value, str) else json.dumps(value)
        except (TypeError, ValueError):
            hint = "give text, a number, true or false, or a list or mapping of these"
            problem = Problem(f"`settings` {name}", None, "", f"{value!r} cannot be written in a scenario", hint)
            raise ScenarioError([problem]) from None
        _set_field(source, name, text)


def _set_field(source: Source, name: str, text: str) -> None:
    path = parse_field(name)
    value = _Reader(f"`settings` {name}").read(text) if text.strip() else None
    part: Any = source.data
    for step, following in itertools.pairwise(path):
        if isinstance(part, dict) and isinstance(step, str) and not isinstance(part.get(step), (dict, list)):
            part[step] = {} if isinstance(following, str) else []
        part = part[step] if has_part(part, step) else None
    if not has_part(part, path[-1]) and not (isinstance(part, dict) and isinstance(path[-1], str)):
        hint = f"the list has {len(part)} entries, from [0]" if isinstance(part, list) else "check the name"
        raise ScenarioError([Problem(f"`settings` {name}", None, "", "there is no such field to set", hint)])
    part[path[-1]] = value
    source.overridden[path] = f"`settings` {name}"


class _Reader:
    """Turns one YAML document into data, noting lines and collecting problems."""

    def __init__(self, file: str, kind: DocumentKind = SCENARIO):
        self.file = file
        self.kind = kind
        self.lines: dict[FieldPath, int] = {}
        self.problems: list[Problem] = []
        self.parts = 0

    def read(self, text: str) -> Any:
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = f"is not valid YAML: {error.problem or error.context}"
            raise self.kind.error([Problem(self.file, mark.line + 1 if mark else None, "", message)]) from None
        except (yaml.YAMLError, RecursionError) as error:
            reason = getattr(error, "reason", None) or "nested too deeply"
            raise self.kind.error([Problem(self.file, None, "", f"is not valid YAML: {reason}")]) from None
        if node is None:
            raise self.kind.error([Problem(self.file, None, "", "is empty", self.kind.start)])
        try:
            data = self._value(node, ())
        except RecursionError:
            raise self.kind.error([Problem(self.file, None, "", "is nested too deeply, or contains itself")]) from None
        if self.problems:
            raise self.kind.error(self.problems)
        return data

    def _value(self, node: yaml.Node, path: FieldPath) -> Any:
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise self.kind.error([Problem(self.file, None, "", f"has more than {MAX_PARTS} parts")])
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if node.tag not in CORE_TAGS:
            message = f"the tag {node.tag.replace('tag:yaml.org,2002:', '!!')} means nothing here"
            self.problems.append(Problem(self.file, line, field_name(path), message, "remove it"))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, i)) for i, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        own: set[str] = set()
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                self._merge(value_node, path, result)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(self.file, line, field_name(path), "a field name must be plain text"))
                continue
            key = str(key_node.value)
            if key in own:
                first = self.lines[(*path, key)]
                message = f"is given twice, first in line {first}"
                self.problems.append(Problem(self.file, line, field_name((*path, key)), message))
                continue
            own.add(key)
            self.lines[(*path, key)] = line
            result[key] = self._value(value_node, (*path, key))
        return result

    def _merge(self, node: yaml.Node, path: FieldPath, result: dict[str, Any]) -> None:
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            merged = self._value(part, path)
            if isinstance(merged, dict):
                for key, value in merged.items():
                    result.setdefault(key, value)


def _scalar(node: yaml.Node) -> Any:
    """The value of a scalar by the core schema; quoted text stays text."""
    text = str(node.value)
    if getattr(node, "style", None) in ("'", '"', "|", ">"):
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if _INT.match(text):
        return int(text.replace("_", ""))
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return text
