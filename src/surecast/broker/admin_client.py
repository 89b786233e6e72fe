"""Asks a running broker: by its local socket, or over HTTP with a token."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from surecast.errors import ConfigurationError, SurecastError

__all__ = ["AdminError", "ask"]

_TIMEOUT_S = 30.0


class AdminError(SurecastError):
    """A broker does not answer, or refuses."""


class _LocalConnection(http.client.HTTPConnection):
    """HTTP by a local socket."""

    def __init__(self, path: Path):
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(str(self._path))


def ask(
    where: Path | str, path: str, query: dict[str, Any] | None = None, method: str = "GET", token: str | None = None
) -> dict[str, Any]:
    """The broker's answer to one request. `where` is its local socket, or the address of its HTTP listener."""
    if isinstance(where, Path):
        connection: http.client.HTTPConnection = _LocalConnection(where)
    else:
        address = urlsplit(where)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigurationError(f"{where} is not the address of a broker; write for example http://127.0.0.1:9883")
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        connection = kind(address.hostname, address.port, timeout=_TIMEOUT_S)
    target = f"{path}?{urlencode(query)}" if query else path
    try:
        connection.request(method, target, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        body = response.read()
    except FileNotFoundError:
        raise AdminError(
            f"{where}: no broker runs here; name one with --port, --folder or --socket, which it prints when it starts"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise AdminError(f"{where}: no broker answers: {getattr(error, 'strerror', None) or error}") from None
    finally:
        connection.close()
    try:
        data = json.loads(body)
    except ValueError:
        raise AdminError(f"{where}: this is not a Surecast broker") from None
    if response.status >= 400 or not isinstance(data, dict):
        raise AdminError(str(data.get("error", response.reason)) if isinstance(data, dict) else "no answer")
    return data
