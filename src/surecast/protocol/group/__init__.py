"""A broker replicated on several machines, without sockets, clocks and disks."""

from surecast.protocol.group.application import Application, Publication
from surecast.protocol.group.commands import Item
from surecast.protocol.group.edge import Edge
from surecast.protocol.group.machine import GroupMachine, Port
from surecast.protocol.group.member import Member

__all__ = ["Application", "Edge", "GroupMachine", "Item", "Member", "Port", "Publication"]
