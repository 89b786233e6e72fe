"""Replicated brokers for tests: real processes, and the load of `tools/group_load.py`."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.patience import PATIENCE_S

TOOLS = Path(__file__).parents[3] / "tools"


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def kills() -> ModuleType:
    """`tools/group_kills.py`."""
    load_tool("group_load")
    return load_tool("group_kills")


@pytest.fixture(scope="session")
def clock_tool() -> ModuleType:
    """`tools/fault_clock.py`."""
    load_tool("group_load")
    return load_tool("fault_clock")


@pytest.fixture(scope="session")
def content_kills() -> ModuleType:
    """`tools/fault_content_kills.py`."""
    return load_tool("fault_content_kills")


@pytest.fixture(scope="session")
def run() -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Runs a coroutine function, not for longer than tests may take."""

    def call(main: Callable[[], Awaitable[Any]]) -> Any:
        async def limited() -> Any:
            async with asyncio.timeout(PATIENCE_S):
                return await main()

        return asyncio.run(limited())

    return call
