"""Damaged traffic over real sockets, while a well-behaved client goes on as if nothing were."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[2] / "tools"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_damaged_traffic_hurts_nobody_else(running: Any) -> None:
    fuzz = load("fuzz_mqtt")

    async def main() -> None:
        async with running() as service:
            cases = [f"live:{number}" for number in range(400)]
            found = await fuzz.attack("127.0.0.1", service.listeners[0].port, cases)
            assert found.cases == 400
            assert found.good_messages >= 10
            assert service.server.broker.counters.protocol_errors > 50
            service.server.broker.routes.settle()
            for session in service.server.broker.sessions.by_key.values():
                assert session.accounts.queued == session.queued

    asyncio.run(main())
