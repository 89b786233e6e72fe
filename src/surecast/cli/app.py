"""The commands of Surecast. Each is a module of this package, which is imported when the command is asked for."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from surecast import __version__

__all__ = ["app"]

# In the order of `surecast --help`.
_NAMES = (
    "scenario",
    "predict",
    "simulate",
    "run",
    "compare",
    "advise",
    "plan",
    "size",
    "sweep",
    "drop",
    "report",
    "broker",
    "cluster",
    "overlay",
    "passwd",
    "pub",
    "sub",
    "load",
    "calibrate",
    "cast",
    "zap",
    "pipeline",
    "learn",
    "demo",
)


class _Commands(MutableMapping[str, Any]):
    """The commands by name, each built when it is first looked up: a broker need not build those of the models."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = dict.fromkeys(_NAMES)

    def __getitem__(self, name: str) -> Any:
        if self._built[name] is None:
            self._built[name] = _build(name)
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        return name in self._built

    def __iter__(self) -> Iterator[str]:
        return iter(self._built)

    def __len__(self) -> int:
        return len(self._built)

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]


def _build(name: str) -> Any:
    """Returns the command of a module: its `app`, or its function of the same name."""
    module = import_module(f"surecast.cli.{name}")
    group = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
        group.command(name)(getattr(module, name))
    command = typer.main.get_command(group)
    command.name = name
    return command


class _Group(TyperGroup):
    def __init__(self, **options: Any):
        super().__init__(**options)
        self.commands = _Commands()


app = typer.Typer(
    name="surecast",
    help="A publish/subscribe system that knows its quality of service before it is deployed.",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"surecast {__version__}")
        raise typer.Exit


@app.callback()
def surecast(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
