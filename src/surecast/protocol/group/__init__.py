"""A broker replicated on several machines, without sockets, clocks and disks."""

from surecast.protocol.group.application import Application, Publication
from surecast.protocol.group.commands import Item
from surecast.protocol.group.front_end import FrontEnd
from surecast.protocol.group.machine import GroupMachine, Port
from surecast.protocol.group.member import Member

__all__ = ["Application", "FrontEnd", "GroupMachine", "Item", "Member", "Port", "Publication"]
