"""Writes docs/reference/options.md from the command line itself, so that no option is missing there."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from surecast.cli.app import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "options.md"
VERTICAL = "\\|"
HEAD = """# Every option of every command

This page is written from the command line by `tools/command_reference.py`; `surecast COMMAND --help` says the
same. What commands are for is under [commands](commands.md). Options marked * may be repeated.
"""


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        sys.exit(0 if current else f"{PAGE} is stale: run tools/command_reference.py")
    PAGE.write_text(text, encoding="utf-8")


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(path, command) for path, command in commands())])


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be run, with its whole name."""
    yield from _below("surecast", typer.main.get_command(app))


def section(path: str, command: Any) -> str:
    """Returns the section of a command: its purpose, arguments and options."""
    lines = [f"## {path}\n", " ".join((command.help or "").split()) + "\n"]
    kinds = get_type_hints(inspect.unwrap(command.callback))
    rows = [_row(each, kinds.get(each.name)) for each in command.params if each.name != "help" and not each.hidden]
    if rows:
        lines += ["| option | value | default | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    if path != "surecast" and (not inner or command.invoke_without_command):
        yield path, command
    for name, each in inner.items():
        if not each.hidden:
            yield from _below(f"{path} {name}", each)


def _row(parameter: Any, kind: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.metavar or parameter.name.upper()]
    shown = ", ".join(f"`{name}`" for name in names) + (" \\*" if parameter.multiple else "")
    meaning = " ".join((parameter.help or "").split())
    cells = (shown, _value(parameter, kind), _default(parameter), meaning)
    return f"| {' | '.join(cell.replace('|', VERTICAL) for cell in cells)} |"


def _value(parameter: Any, kind: Any) -> str:
    """Returns the kind of value that an option takes, by its name or its type."""
    kinds = [each for each in _plain(kind) if each is not type(None)]
    if kinds and not any(isinstance(each, type) for each in kinds):
        return ", ".join(f"`{each}`" for each in kinds)
    if parameter.metavar:
        return f"`{parameter.metavar}`"
    words = {int: "whole number", float: "number", str: "text", Path: "path", bool: ""}
    return next((words[each] for each in kinds if each in words), "text")


def _plain(kind: Any) -> list[Any]:
    """The types behind a union or a list, or the values of a literal."""
    if get_origin(kind) is None:
        return [kind]
    inner = get_args(kind)
    return list(inner) if get_origin(kind) is Literal else [each for part in inner for each in _plain(part)]


def _default(parameter: Any) -> str:
    if parameter.required:
        return "**required**"
    value = parameter.default
    if value is None or value is False or value == () or callable(value) or isinstance(value, list):
        return ""
    return f"`{str(getattr(value, 'value', value)).lower() if value is True else getattr(value, 'value', value)}`"


if __name__ == "__main__":
    main()
