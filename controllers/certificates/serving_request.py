"""The facts that the manager reads from a CertificateSigningRequest of a hub."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from controllers.runtime.events import ObjectReference
from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, objects, text, texts
from kube.json_type import Json
from kube.peers import PEER_ANNOTATION, SERVING_SIGNER
from kube.requests.request_info import ResourceType

REQUEST_TYPE = ResourceType("certificates.k8s.io", "v1", "certificatesigningrequests")
MAX_REQUEST = 16 * 1024
"""Bytes of the PEM form of a request that the manager parses; one with a hundred names has 5 KB."""
EXTENSION_REQUEST = x509.ObjectIdentifier("1.2.840.113549.1.9.14")
"""The attribute in which a request names its subject's alternative names (RFC 2985)."""


@dataclass(frozen=True, slots=True)
class ServingRequest:
    """A request, and who sent it: the API server writes `user` and `groups`, and nobody can change the spec."""

    name: str
    version: str
    user: str
    groups: frozenset[str]
    usages: frozenset[str]
    pem: bytes
    is_of_hub: bool
    is_open: bool
    """Nobody has approved or denied the request, and it has no certificate yet."""
    uid: str = ""

    @property
    def reference(self) -> ObjectReference:
        kind = "CertificateSigningRequest"
        return ObjectReference(REQUEST_TYPE.api_version, kind, "", self.name, self.uid)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks to be certified."""

    common_names: tuple[str, ...]
    organisations: tuple[str, ...]
    has_more_subject: bool
    """The subject has other attributes than common names and organisations."""
    dns: tuple[str, ...]
    addresses: tuple[str, ...]
    """IP addresses in canonical form."""
    has_other_names: bool
    """The request has e-mail addresses, URIs or other names."""


def read_request(obj: Json) -> ServingRequest:
    meta, spec, status = metadata(obj), mapping(obj.get("spec")), mapping(obj.get("status"))
    try:
        pem = base64.b64decode(text(spec.get("request")), validate=True)
    except ValueError:
        pem = b""
    return ServingRequest(
        name=text(meta.get("name")),
        version=text(meta.get("resourceVersion")),
        user=text(spec.get("username")),
        groups=_texts(spec.get("groups")),
        usages=_texts(spec.get("usages")),
        pem=pem,
        is_of_hub=texts(meta.get("annotations")).get(PEER_ANNOTATION) == "true",
        is_open=not objects(status.get("conditions")) and not status.get("certificate"),
        uid=text(meta.get("uid")),
    )


def parse_wanted(pem: bytes) -> Wanted:
    """What a request in PEM asks for; ValueError where it is none, or its signature is not by its own key."""
    if len(pem) > MAX_REQUEST:
        raise ValueError(f"it has {len(pem)} bytes, more than {MAX_REQUEST}")
    try:
        return _wanted(x509.load_pem_x509_csr(pem))
    except (UnsupportedAlgorithm, x509.UnsupportedGeneralNameType, x509.InvalidVersion) as error:
        raise ValueError(f"it has what nobody signs: {error}") from error


def _wanted(request: x509.CertificateSigningRequest) -> Wanted:
    # Of several requests for extensions this library reads the first, and the signer another one, with other names.
    if [attribute.oid for attribute in request.attributes] not in ([], [EXTENSION_REQUEST]):
        raise ValueError("it has attributes besides one request for extensions")
    if not isinstance(request.public_key(), ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise ValueError("its key is neither of an elliptic curve nor RSA")
    if not request.is_signature_valid:
        raise ValueError("its signature is not by its own key")
    names = _names(request)
    dns = names.get_values_for_type(x509.DNSName)
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return Wanted(
        common_names=_attributes(request, NameOID.COMMON_NAME),
        organisations=_attributes(request, NameOID.ORGANIZATION_NAME),
        has_more_subject=any(
            attribute.oid not in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
            for attribute in request.subject
        ),
        dns=tuple(dns),
        addresses=tuple(addresses),
        has_other_names=len(dns) + len(addresses) != len(list(names)),
    )


def _names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])
    except x509.DuplicateExtension as error:
        raise ValueError(f"it names itself twice: {error}") from error


def _attributes(request: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    values = (attribute.value for attribute in request.subject.get_attributes_for_oid(oid))
    return tuple(value if isinstance(value, str) else value.decode(errors="replace") for value in values)


def _texts(value: object) -> frozenset[str]:
    return frozenset(filter(None, map(text, value))) if isinstance(value, list) else frozenset()


SERVING_REQUESTS = WatchedResource(
    REQUEST_TYPE, read_request, field_selector=f"spec.signerName={SERVING_SIGNER}"
)
"""The requests to this signer, of kubelets too: annotations cannot be selected."""
