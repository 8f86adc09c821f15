"""Certificate requests as a hub makes them, and as an attacker does."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube.json_type import Json

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kubelet-serving"
USAGES = ("digital signature", "server auth")
MARK = {"edgehub.io/peer": "true"}


def pem_of(
    common_name: str,
    names: Sequence[str],
    organisations: Sequence[str] = ("system:nodes",),
    *,
    unit: str = "",
    extra: Sequence[x509.GeneralName] = (),
) -> bytes:
    """A request in PEM with a new key, for these DNS names and IP addresses."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations]
    attributes += [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    attributes += [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)] if unit else []
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    shown = [*map(_general_name, names), *extra]
    if shown:
        builder = builder.add_extension(x509.SubjectAlternativeName(shown), critical=False)
    request = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def request(
    name: str, pem: bytes, *, usages: Sequence[str] = USAGES, annotations: dict[str, str] | None = None
) -> Json:
    """A CertificateSigningRequest, by default of a hub."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name, "annotations": MARK if annotations is None else annotations},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": SIGNER,
            "usages": list(usages),
        },
    }


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
