"""Runs one replica of a group until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import importlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

from surecast.broker.replica.client_port import ClientPort
from surecast.broker.replica.clock_watch import wrong_clock
from surecast.broker.replica.founding import check_store
from surecast.broker.replica.group_file import GroupSpec, load_group
from surecast.broker.replica.node import ReplicaNode
from surecast.broker.replica.node_user import NodeUser
from surecast.broker.segment_store import SegmentStore
from surecast.broker.service_log import BrokerLog
from surecast.errors import ConfigurationError
from surecast.protocol.paxos import Handler

__all__ = ["EXIT_FAILED", "find_handler", "make_node", "new_loop", "run_replica"]

EXIT_FAILED = 3
"""The replica could not go on: its store cannot be written, or its handler raised. It said nothing after that."""


def find_handler(name: str) -> Callable[[], Handler]:
    """Returns the function that makes a handler, by the name of its module and its own.

    >>> find_handler("surecast.protocol.paxos:ExampleStore").__name__
    'ExampleStore'
    """
    module, colon, factory = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), factory) if module and colon and factory else None
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"handler {name!r}: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"handler {name!r}: write package.module:factory, such as my_service.store:Store")
    made: Callable[[], Handler] = found
    return made


def make_node(group: GroupSpec, replica: int, handler: Handler, log: BrokerLog | None = None) -> ReplicaNode:
    """A node as the group's file wants it, with its store. It is not started yet."""
    spec = group.replica(replica)
    remedy = group.remedy(replica)
    store = SegmentStore(group.folder(replica), group.durability, remedy=remedy)
    try:
        check_store(group, replica, store)
    except ConfigurationError:
        store.close()
        raise
    if log is not None:
        for text in store.warnings:
            log.warning("store", replica=replica, text=text)
    return ReplicaNode(
        replica,
        handler,
        group.places(replica),
        group=group.name,
        secret=group.read_secret(),
        founding=group.founding or "",
        plan=group.plan_name,
        store=store,
        settings=group.paxos.settings,
        join=spec.joins,
        link_delay_s=group.link_delay,
        queue_bytes_max=int(group.peer_queue),
        wall=time.time if spec.clock_offset is None else wrong_clock(spec.clock_offset),
        clock_alarm_s=group.clock_alarm,
        remedy=remedy,
        log=log,
    )


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_replica(
    group: GroupSpec | Path, replica: int, make_handler: Callable[[], Handler], log: BrokerLog | None = None
) -> int:
    """Runs a replica in this process until SIGTERM or SIGINT; returns the exit code.

    ConfigurationError and StoreError say why it could not start.
    """
    spec = load_group(group) if isinstance(group, Path) else group
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(spec, replica, make_handler(), log or BrokerLog("info")))


class _Stopper(NodeUser):
    """Stops the process when its node gives up."""

    def __init__(self, stopping: asyncio.Event):
        self._stopping = stopping

    def give_up(self, error: Exception) -> None:
        """The node has said why."""
        self._stopping.set()


async def _serve(group: GroupSpec, replica: int, handler: Handler, log: BrokerLog) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    node = make_node(group, replica, handler, log)
    node.serve(_Stopper(stopping))
    port = ClientPort(node, group.read_client_secret(), int(group.request_size))
    try:
        await node.start()
        wanted = group.client_address(group.replica(replica))
        client = None if wanted is None else await port.start(wanted)
        log.info("started", group=group.name, replica=replica, peer=node.address, client=client, sync=group.sync)
        # The process is the replica's own: what was found at the start stays, and need not be looked through again.
        gc.collect()
        gc.freeze()
        await stopping.wait()
    finally:
        await port.stop()
        await node.stop()
    log.info("stopped", replica=replica)
    return 0 if node.failure is None else EXIT_FAILED
