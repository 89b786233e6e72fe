"""One link between two brokers of an overlay: a resumable session of numbered frames, with credit, and its detector."""

from surecast.protocol.link.link_detector import DetectorTimes, LinkDetector
from surecast.protocol.link.link_session import (
    CONTROL,
    LinkAck,
    LinkHello,
    LinkSession,
    NumberedFrame,
    Resumption,
    SessionName,
)

__all__ = [
    "CONTROL",
    "DetectorTimes",
    "LinkAck",
    "LinkDetector",
    "LinkHello",
    "LinkSession",
    "NumberedFrame",
    "Resumption",
    "SessionName",
]
