"""One link between two brokers of an overlay: a resumable session of numbered frames, with credit."""

from surecast.protocol.link.link_session import (
    CONTROL,
    LinkAck,
    LinkHello,
    LinkSession,
    NumberedFrame,
    Resumption,
    SessionName,
)

__all__ = ["CONTROL", "LinkAck", "LinkHello", "LinkSession", "NumberedFrame", "Resumption", "SessionName"]
