"""The named tuples of `compiled_state` by reference.

Passed as such through many functions, hundreds of array parts would be copied with each call, and compiling that takes
minutes.
"""
# Numba's decorators are untyped.
# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.experimental import structref

from surecast.simulation.coding.compiled_state import Net, Scheme, State

__all__ = ["NetRef", "SchemeRef", "StateRef"]


class _Fields(types.StructRef):
    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


@structref.register
class _NetType(_Fields):
    pass


@structref.register
class _SchemeType(_Fields):
    pass


@structref.register
class _StateType(_Fields):
    pass


class NetRef(structref.StructRefProxy):
    """A `Net` inside compiled code."""


class SchemeRef(structref.StructRefProxy):
    """A `Scheme` inside compiled code."""


class StateRef(structref.StructRefProxy):
    """A `State` inside compiled code."""


structref.define_proxy(NetRef, _NetType, list(Net._fields))
structref.define_proxy(SchemeRef, _SchemeType, list(Scheme._fields))
structref.define_proxy(StateRef, _StateType, list(State._fields))
