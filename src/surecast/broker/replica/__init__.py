"""A replicated state machine as real processes: the shell around `surecast.protocol.paxos`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.lazy import lazy_names

if TYPE_CHECKING:
    from surecast.broker.replica.addresses import Address, Book, Place, parse_address
    from surecast.broker.replica.client_port import ClientPort
    from surecast.broker.replica.founding import found_replica, found_store
    from surecast.broker.replica.group_file import GroupFileError, GroupSpec, PaxosSpec, ReplicaSpec, load_group
    from surecast.broker.replica.node import ReplicaNode
    from surecast.broker.replica.node_user import NodeUser
    from surecast.broker.replica.replica_service import find_handler, make_node, new_loop, run_replica
    from surecast.broker.replica.status import NodeStatus, PeerStatus
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "surecast.broker.replica.addresses": ["Address", "Book", "Place", "parse_address"],
            "surecast.broker.replica.client_port": ["ClientPort"],
            "surecast.broker.replica.founding": ["found_replica", "found_store"],
            "surecast.broker.replica.group_file": [
                "GroupFileError",
                "GroupSpec",
                "PaxosSpec",
                "ReplicaSpec",
                "load_group",
            ],
            "surecast.broker.replica.node": ["ReplicaNode"],
            "surecast.broker.replica.node_user": ["NodeUser"],
            "surecast.broker.replica.replica_service": ["find_handler", "make_node", "new_loop", "run_replica"],
            "surecast.broker.replica.status": ["NodeStatus", "PeerStatus"],
        },
    )

__all__ = [
    "Address",
    "Book",
    "ClientPort",
    "GroupFileError",
    "GroupSpec",
    "NodeStatus",
    "NodeUser",
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
