"""Groups of replicas for tests: in this process on real sockets, or as real processes."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.replica import Address, NodeUser, Place, ReplicaNode, found_store, new_loop
from surecast.protocol.paxos import ExampleStore, PaxosSettings

TOOLS = Path(__file__).parents[3] / "tools"
SECRET = b"a secret for tests only"


@pytest.fixture(scope="session")
def tool() -> ModuleType:
    """`tools/replica_group.py`."""
    spec = importlib.util.spec_from_file_location("replica_group", TOOLS / "replica_group.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def processes(tool: ModuleType, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes groups of real processes, which end with the test."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        group = tool.Group(tmp_path, **options)
        made.append(group)
        return group

    yield make
    for group in made:
        group.end()


@pytest.fixture
def run(groups: list[LocalGroup]) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Runs a coroutine function on the loop that replicas use.

    A test that fails leaves replicas behind, and uvloop does not close under them: they are stopped in any case.
    """

    def call(main: Callable[[], Awaitable[Any]]) -> Any:
        async def limited() -> Any:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await main()
            finally:
                for group in groups:
                    await group.stop()

        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(limited())

    return call


class Watcher(NodeUser):
    """Tells a test what a node tells."""

    def __init__(self, on_turn: Callable[[], None], on_failed: Callable[[Exception], None]):
        self.end_turn, self.give_up = on_turn, on_failed  # type: ignore[method-assign]


class LocalGroup:
    """Replicas in this process."""

    def __init__(self, ports: list[int], **options: Any):
        self.places = {at + 1: Place(Address("127.0.0.1", port)) for at, port in enumerate(ports)}
        self.options = options
        self.nodes: dict[int, ReplicaNode] = {}
        self.made: list[ReplicaNode] = []

    async def start(self, number: int, **options: Any) -> ReplicaNode:
        given = {"group": "test", "secret": SECRET, **self.options, **options}
        places = given.pop("places", self.places)
        watcher = Watcher(given.pop("on_turn", lambda: None), given.pop("on_failed", lambda error: None))
        store = given.get("store")
        if store is not None and not given.get("join") and not list(store.items()):
            found_store(store, given.get("founding", ""))
        node = ReplicaNode(number, given.pop("handler", None) or ExampleStore(), places, **given)
        self.made.append(node)
        node.serve(watcher)
        await node.start()
        self.nodes[number] = node
        return node

    async def leader(self) -> ReplicaNode:
        while True:
            for node in self.nodes.values():
                if node.leads and all(other.leader == node.id for other in self.nodes.values()):
                    return node
            await asyncio.sleep(0.01)

    async def ask(self, node: ReplicaNode, client: int, sequence: int, command: bytes) -> bytes | None:
        answered = asyncio.get_running_loop().create_future()
        node.submit([(client, sequence, command)], answered.set_result)
        reply: bytes | None = (await answered)[0][2]
        return reply

    async def equal(self, *numbers: int) -> None:
        nodes = [self.nodes[number] for number in numbers or self.nodes]
        while len({(node.replica.applied, node.replica.hash) for node in nodes}) > 1:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Stops every node that was made, those that a test has put aside too."""
        for node in self.made:
            await node.stop()


@pytest.fixture
def groups() -> list[LocalGroup]:
    """The groups that `local` made."""
    return []


@pytest.fixture
def local(tool: ModuleType, groups: list[LocalGroup]) -> Callable[..., LocalGroup]:
    """Makes groups in this process: `group = local(3)`, then `await group.start(1)`."""

    def make(count: int, **options: Any) -> LocalGroup:
        options.setdefault("settings", PaxosSettings())
        groups.append(LocalGroup(tool.free_ports(count), **options))
        return groups[-1]

    return make
