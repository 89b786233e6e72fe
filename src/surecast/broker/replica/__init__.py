"""A replicated state machine as real processes: the shell around `surecast.protocol.paxos`."""

from surecast.broker.replica.addresses import Address, Book, Place, parse_address
from surecast.broker.replica.client_port import ClientPort
from surecast.broker.replica.group_file import GroupFileError, GroupSpec, PaxosSpec, ReplicaSpec, load_group
from surecast.broker.replica.node import ReplicaNode
from surecast.broker.replica.run import find_handler, make_node, new_loop, run_replica
from surecast.broker.replica.segment_store import SegmentStore
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
    "SegmentStore",
    "find_handler",
    "load_group",
    "make_node",
    "new_loop",
    "parse_address",
    "run_replica",
]
