"""Public names of a package that are imported when they are first used: nobody loads what they do not ask for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from surecast.extras import missing_extra

__all__ = ["lazy_names"]


def lazy_names(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package. `names` has the public names of each module that defines some.

    A package lists them for type checkers too, under TYPE_CHECKING. Where a package of an extra is missing, the error
    says what to install.

    >>> lazy_names("surecast.lazy", {"surecast.errors": ["UserError"]})("UserError")
    <class 'surecast.errors.UserError'>
    """
    modules = {name: module for module, listed in names.items() for name in listed}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(modules[name]), name)
        except ModuleNotFoundError as error:
            message = missing_extra(error.name)
            if message is None:
                raise
            raise ModuleNotFoundError(message, name=error.name) from error
        setattr(sys.modules[package], name, value)  # found without this function from now on
        return value

    return get
