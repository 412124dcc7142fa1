"""The certificate of a service's API: files that an operator has, and what its commands trust."""

from __future__ import annotations

import ssl
from pathlib import Path

from skedge.core.errors import InputError


def certificate(cert: str | None, key: str | None) -> tuple[str | None, str | None]:
    """The absolute paths of a certificate and its key.

    Raises
    ------
    InputError
        If only one is given, or they cannot be read or do not belong together.
    """
    if cert is None and key is None:
        return None, None
    if cert is None or key is None:
        raise InputError("--tls-cert and --tls-key go together: a certificate and its key")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        reason = error.reason or "one of them is no PEM file"
        raise InputError(
            f"--tls-cert {cert}, --tls-key {key}: cannot be used: {reason.lower().replace('_', ' ')}"
        ) from error
    except OSError as error:
        raise InputError(f"--tls-cert {cert}, --tls-key {key}: cannot be read: {error.strerror}") from error
    return str(Path(cert).absolute()), str(Path(key).absolute())


def trusting(cert: str) -> ssl.SSLContext:
    """What a command of the same machine trusts: this certificate only, whatever name it is for."""
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
