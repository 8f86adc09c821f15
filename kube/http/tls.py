"""The TLS settings of a kubeconfig as Python's `ssl` takes them, for clients that speak to the cloud directly."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from kube.http.kubeconfig import Credentials


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """The TLS context of these credentials; ValueError when their certificates are unusable."""
    try:
        authority = credentials.authority.read().decode()
        context = ssl.create_default_context(cadata=authority or None)
        # Python 3.13 demands extensions that many clusters' CA certificates lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if credentials.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = credentials.certificate.read(), credentials.key.read()
        if certificate:
            load_pair(context, certificate, key)
    except (ssl.SSLError, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the certificates cannot be used: {error}") from error
    return context


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate through a private temporary file: OpenSSL reads certificates from files only."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(pair)
