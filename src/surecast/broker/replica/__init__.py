"""A replicated state machine as real processes: the shell around `surecast.protocol.paxos`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surecast.broker.replica.addresses import Address, Book, Place, parse_address
    from surecast.broker.replica.client_port import ClientPort
    from surecast.broker.replica.founding import found_replica, found_store
    from surecast.broker.replica.group_file import GroupFileError, GroupSpec, PaxosSpec, ReplicaSpec, load_group
    from surecast.broker.replica.node import ReplicaNode
    from surecast.broker.replica.replica_service import find_handler, make_node, new_loop, run_replica
    from surecast.broker.replica.status import NodeStatus, PeerStatus

__all__ = [
    "Address",
    "Book",
    "ClientPort",
    "GroupFileError",
    "GroupSpec",
    "NodeStatus",
    "PaxosSpec",
    "PeerStatus",
    "Place",
    "ReplicaNode",
    "ReplicaSpec",
    "find_handler",
    "found_replica",
    "found_store",
    "load_group",
    "make_node",
    "new_loop",
    "parse_address",
    "run_replica",
]

_MODULES = {
    "addresses": ("Address", "Book", "Place", "parse_address"),
    "client_port": ("ClientPort",),
    "founding": ("found_replica", "found_store"),
    "group_file": ("GroupFileError", "GroupSpec", "PaxosSpec", "ReplicaSpec", "load_group"),
    "node": ("ReplicaNode",),
    "replica_service": ("find_handler", "make_node", "new_loop", "run_replica"),
    "status": ("NodeStatus", "PeerStatus"),
}
_HOME = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: clients need little of this package, and start faster so."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
