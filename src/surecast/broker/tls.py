"""TLS contexts of the broker's listeners: certificate, lowest version, whether a client certificate is required."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from surecast.broker.config_models import ListenerSpec
from surecast.errors import ConfigurationError

__all__ = ["certificate_context", "load_certificate", "tls_context"]


def certificate_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """TLS with a certificate; ConfigurationError says which file is wrong."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path | None, key: Path | None) -> None:
    """Takes a certificate for connections from now on; the key is in the certificate's file if it has none."""
    key = key or certificate
    if certificate is None:
        raise ConfigurationError("a TLS listener needs a certificate")
    for file in (certificate, key):
        if file is not None and not os.access(file, os.R_OK):
            raise ConfigurationError(f"{file} is not there, or cannot be read")
    try:
        # The password callback keeps OpenSSL from asking at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(f"{certificate} and {key} are no certificate with its key: {_reason(error)}") from None


def tls_context(listener: ListenerSpec) -> ssl.SSLContext:
    """The TLS settings of a listener; ConfigurationError says which file is wrong."""
    context = certificate_context(listener.certificate, listener.key)
    if listener.ca is not None:
        if not os.access(listener.ca, os.R_OK):
            raise ConfigurationError(f"{listener.ca} is not there, or cannot be read")
        try:
            context.load_verify_locations(listener.ca)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(f"{listener.ca} holds no certificates: {_reason(error)}") from None
        context.verify_mode = ssl.CERT_REQUIRED if listener.require_client_certificate else ssl.CERT_OPTIONAL
    return context


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error).lower().replace("_", " ")
