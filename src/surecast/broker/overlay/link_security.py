"""TLS of links: each end shows a certificate whose common name is its name in the plan."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from surecast.broker.tls import load_certificate
from surecast.errors import ConfigurationError

__all__ = ["LinkSecurity"]


class LinkSecurity:
    """The TLS contexts of a broker's links, one for each direction, from a folder with `ca.pem`, `NAME.pem` and
    `NAME.key`. ConfigurationError says which file is wrong."""

    def __init__(self, folder: Path, broker: str):
        self._folder = folder
        self._broker = broker
        self.accepting, self.dialling = self._make()

    def reload(self) -> None:
        """Reads all files again, for connections from now on; if one is wrong all stays as it was."""
        self.accepting, self.dialling = self._make()

    def _make(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        accepting, dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority = self._folder / "ca.pem"
        for context in (accepting, dialling):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = False  # the name is that of the plan, and is compared in the handshake
            context.verify_mode = ssl.CERT_REQUIRED
            load_certificate(context, self._folder / f"{self._broker}.pem", self._folder / f"{self._broker}.key")
            if not os.access(authority, os.R_OK):
                raise ConfigurationError(f"{authority} is not there, or cannot be read")
            try:
                context.load_verify_locations(authority)
            except (ssl.SSLError, OSError) as error:
                raise ConfigurationError(f"{authority} holds no certificates: {error}") from None
        return accepting, dialling
