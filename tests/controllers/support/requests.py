"""Certificate requests as made by a hub, and by an attacker."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube.certificate_authority import general_name
from kube.json_type import Json

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kubelet-serving"
USAGES = ("digital signature", "server auth")
MICROSOFT = bytes.fromhex("060a2b06010401823702010e")
STANDARD = bytes.fromhex("06092a864886f70d01090e")
ECDSA_WITH_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
MARK = {"edgehub.io/peer": "true"}


def pem_of(
    common_name: str,
    names: Sequence[str],
    organisations: Sequence[str] = ("system:nodes",),
    *,
    unit: str = "",
    extra: Sequence[x509.GeneralName] = (),
) -> bytes:
    """Return a request in PEM with a new key, for these DNS names and IP addresses."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations]
    attributes += [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    attributes += [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)] if unit else []
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    shown = [*map(general_name, names), *extra]
    if shown:
        builder = builder.add_extension(x509.SubjectAlternativeName(shown), critical=False)
    request = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def misread_by_the_signer(common_name: str, shown: str, signed: str) -> bytes:
    """Return a request in PEM with two extension requests: `shown` in Microsoft's attribute, `signed` in the standard
    one. cryptography reads the first attribute of either type; Go, and so the signer, reads only the standard one."""
    key = ec.generate_private_key(ec.SECP256R1())
    bare = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
    )
    attributes = b""
    for oid, name in ((MICROSOFT, shown), (STANDARD, signed)):
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        (found,) = bare.add_extension(names, critical=False).sign(key, hashes.SHA256()).attributes
        attributes += _der(0x30, oid, _der(0x31, _der(0x30, found.value)))
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    subject = bare.sign(key, hashes.SHA256()).subject.public_bytes()
    info = _der(0x30, bytes.fromhex("020100"), subject, public, _der(0xA0, attributes))
    return _signed(info, key)


def named_in_an_unknown_type(common_name: str) -> bytes:
    """Return a request in PEM whose common name is an ObjectDescriptor, which Go reads and cryptography does not."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    plain = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    text = _der(0x0C, common_name.encode())
    return _signed(plain.tbs_certrequest_bytes.replace(text, b"\x07" + text[1:]), key)


def _signed(info: bytes, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Sign the request info in DER; return PEM."""
    signature = _der(0x03, b"\0", key.sign(info, ec.ECDSA(hashes.SHA256())))
    encoded = _der(0x30, info, ECDSA_WITH_SHA256, signature)
    return x509.load_der_x509_csr(encoded).public_bytes(serialization.Encoding.PEM)


def _der(tag: int, *parts: bytes) -> bytes:
    """Encode one value in DER."""
    body = b"".join(parts)
    size = len(body).to_bytes((len(body).bit_length() + 7) // 8)
    return bytes([tag]) + (bytes([0x80 + len(size)]) if len(body) > 0x7F else b"") + size + body


def request(
    name: str, pem: bytes, *, usages: Sequence[str] = USAGES, annotations: dict[str, str] | None = None
) -> Json:
    """Return a CertificateSigningRequest, by default of a hub."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name, "annotations": MARK if annotations is None else annotations},
        "spec": {"request": base64.b64encode(pem).decode(), "signerName": SIGNER, "usages": list(usages)},
    }
