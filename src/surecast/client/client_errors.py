"""The exceptions of a client."""

from __future__ import annotations

from surecast.errors import SurecastError
from surecast.protocol.mqtt import ReasonCode

__all__ = ["ClientError", "LostError", "RefusedError"]


class ClientError(SurecastError):
    """A broker cannot be reached, or does not do what it was asked for."""


class LostError(ClientError):
    """The connection is over; the message says why."""


class RefusedError(ClientError):
    """The broker refused; `reason` is its reason code.

    >>> print(RefusedError("publish to 'plant'", ReasonCode.NOT_AUTHORIZED))
    publish to 'plant': the broker refused it: not authorized
    """

    def __init__(self, request: str, reason: ReasonCode, text: str | None = None):
        self.reason = reason
        words = reason.name.lower().replace("_", " ")
        super().__init__(f"{request}: the broker refused it: {words}{f' ({text})' if text else ''}")
