"""A replicated state machine without sockets, clocks and disks: Multi-Paxos, Batch Paxos and Fast Paxos."""

from surecast.protocol.paxos.example_store import ExampleStore
from surecast.protocol.paxos.handler import Context, Handler, InPlace, WithEffects
from surecast.protocol.paxos.journal import Record
from surecast.protocol.paxos.log_values import Request, pack_requests
from surecast.protocol.paxos.machine import Answer
from surecast.protocol.paxos.membership import Configuration, replace_command
from surecast.protocol.paxos.node import Turn
from surecast.protocol.paxos.paxos_messages import Message
from surecast.protocol.paxos.paxos_settings import VARIANTS, PaxosSettings, Variant
from surecast.protocol.paxos.replica import Replica
from surecast.protocol.paxos.wire import decode, encode

__all__ = [
    "VARIANTS",
    "Answer",
    "Configuration",
    "Context",
    "ExampleStore",
    "Handler",
    "InPlace",
    "Message",
    "PaxosSettings",
    "Record",
    "Replica",
    "Request",
    "Turn",
    "Variant",
    "WithEffects",
    "decode",
    "encode",
    "pack_requests",
    "replace_command",
]
