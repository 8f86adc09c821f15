"""The webhook's certificates: the manager's own CA and a serving certificate, as the data of a Secret. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from cryptography import x509

from kube.certificate_authority import (
    CertificateAuthority,
    certificate_pem,
    key_of,
    key_pem,
    make_authority,
    names_of,
)

CERTIFICATE, KEY, AUTHORITY, AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"
"""Keys of the Secret's data. `ca.crt` has the current CA and, after a change, the previous one."""
AUTHORITY_DAYS = 365
SERVING_DAYS = 90
RENEWED_AT = 2 / 3
"""The fraction of its lifetime after which a certificate is replaced."""
BACKDATING = datetime.timedelta(minutes=5)
"""The start of a certificate's validity before its creation, because the API server's clock may be behind."""
AUTHORITY_NAME = "edgehub-manager webhook CA"


def renewed(data: Mapping[str, bytes], hosts: frozenset[str], now: datetime.datetime) -> dict[str, bytes]:
    """Return the Secret's data, unchanged while both certificates are valid for the hosts, otherwise with new ones."""
    bundle = _authorities(data.get(AUTHORITY, b""))
    authority = _authority(bundle, data.get(AUTHORITY_KEY, b""), now)
    if authority is None:
        ends = now + datetime.timedelta(days=AUTHORITY_DAYS)
        authority = make_authority(AUTHORITY_NAME, now - BACKDATING, ends)
        # The API server trusts both until no manager serves a certificate of the older one.
        bundle = [authority.certificate, *bundle][:2]
    if _is_good(data, authority.certificate, hosts, now):
        certificate, key = data[CERTIFICATE], data[KEY]
    else:
        ends = now + datetime.timedelta(days=SERVING_DAYS)
        issued, issued_key = authority.issue("edgehub-manager", sorted(hosts), now - BACKDATING, ends)
        certificate, key = certificate_pem(issued), key_pem(issued_key)
    return {
        CERTIFICATE: certificate,
        KEY: key,
        AUTHORITY: b"".join(map(certificate_pem, bundle)),
        AUTHORITY_KEY: key_pem(authority.key),
    }


def _authorities(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _authority(
    bundle: list[x509.Certificate], key: bytes, now: datetime.datetime
) -> CertificateAuthority | None:
    """Return the first CA of the bundle with its key; None if it cannot sign or must be replaced."""
    if not bundle or _is_due(bundle[0], now):
        return None
    try:
        return CertificateAuthority(bundle[0], key_of(bundle[0], key))
    except ValueError:
        return None


def _is_good(
    data: Mapping[str, bytes], authority: x509.Certificate, hosts: frozenset[str], now: datetime.datetime
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(data.get(CERTIFICATE, b""))
        certificate.verify_directly_issued_by(authority)
        key_of(certificate, data.get(KEY, b""))
        names = names_of(certificate)
    except Exception:
        # Any fault in it: a new one is made.
        return False
    return frozenset(names) == hosts and not _is_due(certificate, now)


def _is_due(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return (
        now >= certificate.not_valid_before_utc + life * RENEWED_AT or now < certificate.not_valid_before_utc
    )
