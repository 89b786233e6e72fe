"""Groups of options: what several commands take is written once, and reaches them as one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

__all__ = ["takes_groups"]


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces each parameter of a command whose type is a dataclass by one option for each of its fields.

    >>> from surecast.cli.options import Limit
    >>> from surecast.cli.scenario_options import ScenarioInput
    >>> @takes_groups
    ... def predict(source: ScenarioInput, limit: Limit = 10) -> None:
    ...     print(source.file, limit)
    >>> list(signature(predict).parameters)
    ['file', 'overrides', 'limit']
    >>> predict(file="shop.yaml", overrides=None, limit=3)
    shop.yaml 3
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters = []
    for parameter in signature(command).parameters.values():
        annotation = hints[parameter.name]
        if isinstance(annotation, type) and is_dataclass(annotation):
            groups[parameter.name] = annotation
            parameters += _parameters(annotation)
        else:
            parameters.append(parameter.replace(annotation=annotation, kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        command(**values)

    del run.__wrapped__
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(group: type[Any]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(group)
    ]
