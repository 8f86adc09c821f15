"""Approves and denies the serving certificates that hubs request from the cluster; kube-controller-manager signs them.

A hub serves its pool as its node. So the request must come from that node, in the node's name, for addresses of the
Node object or for link-local IPv4 addresses. A node can write any addresses to its Node. If another node, or the API
server, has one of them too, the decision is left to a person: with such a certificate the hub could impersonate that
node or server.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from controllers.cluster.kinds import NODES, Node, parse_address
from controllers.runtime.controller import Context, Controller
from controllers.runtime.informer import ObjectSelection, WatchedResource, one_object
from controllers.runtime.unstructured import mapping, metadata, objects, strings, text, texts, timestamp
from controllers.runtime.write_client import ObjectReference
from kube.json_type import Json
from kube.peers import (
    NODE_PREFIX,
    NODES_GROUP,
    PEER_ANNOTATION,
    SERVING_SIGNER,
    is_link_local,
    may_be_certified,
)
from kube.requests.request_info import ResourceType
from kube.store.store import Key

NAMESPACE, SERVICE = "default", "kubernetes"
RESOLVING = 5.0
"""Timeout in seconds for resolving the API server's name."""


def read_service(obj: Json) -> frozenset[str]:
    """Return the ClusterIPs of a Service in canonical form; none for a headless one."""
    return frozenset(filter(None, map(parse_address, strings(mapping(obj.get("spec")).get("clusterIPs")))))


def read_slice(obj: Json) -> frozenset[str]:
    """Return the IP addresses of an EndpointSlice in canonical form."""
    addresses = (
        address
        for endpoint in objects(obj.get("endpoints"))
        for address in strings(endpoint.get("addresses"))
    )
    return frozenset(filter(None, map(parse_address, addresses)))


async def addresses_of(server: str) -> frozenset[str]:
    """Resolve the IP addresses of a URL's host; OSError if its name does not resolve."""
    host = urlsplit(server).hostname or ""
    async with asyncio.timeout(RESOLVING):
        addresses = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return frozenset(filter(None, (parse_address(str(info[4][0])) for info in addresses)))


API_SERVICE = one_object(ResourceType("", "v1", "services"), NAMESPACE, SERVICE, read_service)
API_SLICES = WatchedResource(
    ResourceType("discovery.k8s.io", "v1", "endpointslices"),
    read_slice,
    selection=ObjectSelection(NAMESPACE, f"kubernetes.io/service-name={SERVICE}"),
)


REQUEST_TYPE = ResourceType("certificates.k8s.io", "v1", "certificatesigningrequests")
MAX_REQUEST = 16 * 1024
"""Bytes of a PEM request that the manager parses; a request with a hundred names has 5 KB."""
EXTENSION_REQUEST = x509.ObjectIdentifier("1.2.840.113549.1.9.14")
"""The CSR attribute that holds the subject alternative names (RFC 2985)."""


@dataclass(frozen=True, slots=True)
class ServingRequest:
    """A CertificateSigningRequest and its sender. The API server writes `user` and `groups`; the spec is immutable."""

    name: str
    version: str
    user: str
    groups: frozenset[str]
    usages: frozenset[str]
    pem: bytes
    is_of_hub: bool
    is_open: bool
    """Whether the request is neither approved nor denied, and has no certificate yet."""
    uid: str = ""

    @property
    def reference(self) -> ObjectReference:
        kind = "CertificateSigningRequest"
        return ObjectReference(REQUEST_TYPE.api_version, kind, "", self.name, self.uid)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The names and usages that a request asks to have certified."""

    common_names: tuple[str, ...]
    organisations: tuple[str, ...]
    has_more_subject: bool
    """Whether the subject has other attributes than common names and organisations."""
    dns: tuple[str, ...]
    addresses: tuple[str, ...]
    """IP addresses in canonical form."""
    has_other_names: bool
    """Whether the request has e-mail addresses, URIs or other names."""


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
    """Parse a PEM request; ValueError if it is malformed, or is not signed by its own key."""
    if len(pem) > MAX_REQUEST:
        raise ValueError(f"it has {len(pem)} bytes, more than {MAX_REQUEST}")
    try:
        return _wanted(x509.load_pem_x509_csr(pem))
    except (UnsupportedAlgorithm, x509.UnsupportedGeneralNameType, x509.InvalidVersion, KeyError) as error:
        # the library raises KeyError for a name in an unknown type of text
        raise ValueError(f"it asks for something unsupported: {error}") from error


def _wanted(request: x509.CertificateSigningRequest) -> Wanted:
    # Of several extension requests this library reads the first, and the signer another, which may have other names.
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
        raise ValueError(f"it has an extension twice: {error}") from error


def _attributes(request: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    values = (attribute.value for attribute in request.subject.get_attributes_for_oid(oid))
    return tuple(value if isinstance(value, str) else value.decode(errors="replace") for value in values)


def _texts(value: object) -> frozenset[str]:
    return frozenset(filter(None, map(text, value))) if isinstance(value, list) else frozenset()


SERVING_REQUESTS = WatchedResource(
    REQUEST_TYPE, read_request, selection=ObjectSelection(fields=f"spec.signerName={SERVING_SIGNER}")
)
"""All requests to this signer, including kubelets', because annotations cannot be selected."""


SERVING = "server auth"
USAGES = frozenset({SERVING, "digital signature", "key encipherment"})
"""The key usages that the signer allows; `server auth` is required."""
LEFT = ""
"""The type of a decision that is left to a person."""
API_SERVER_NAMES = frozenset({"kubernetes", "kubernetes.default"})
"""The short names at which pods reach the API server. Its long names contain the label `svc`, like those of all
Services."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The condition to set on a request: `type` is Approved, Denied, or LEFT for none."""

    type: str
    reason: str
    message: str


type OtherHolder = Callable[[str], str]
"""Finds another holder of an address, "" for none. LookupError, with the reason, while that is unknown."""


def node_of(request: ServingRequest) -> str:
    """Return the name of the node that sent a request; "" if the sender is not a node."""
    return request.user.removeprefix(NODE_PREFIX) if request.user.startswith(NODE_PREFIX) else ""


def decide(request: ServingRequest, node: Node | None, holder: OtherHolder) -> Decision:
    """Approve or deny a hub's request, or leave it to a person. `node` is the requester's Node, None if it does not
    exist."""
    try:
        wanted = parse_wanted(request.pem)
        if fault := _fault(request, wanted, node):
            return Decision("Denied", "NotTheNodes", fault)
    except ValueError as error:
        return Decision("Denied", "NotTheNodes", f"the request cannot be read: {error}")
    if doubt := _doubt(wanted, holder):
        return Decision(LEFT, "NotApproved", f"{doubt}: `kubectl certificate approve` or deny it")
    return Decision("Approved", "HubOfNode", f"the request is of the hub of node {node_of(request)}")


def _fault(request: ServingRequest, wanted: Wanted, node: Node | None) -> str:
    """Return why the request is denied; "" if it is not."""
    if not node_of(request) or NODES_GROUP not in request.groups:
        return f"the requester {request.user} is not a node"
    if wanted.common_names != (request.user,):
        return f"the common name is {_quoted(wanted.common_names)} and the requester {request.user}"
    if wanted.organisations != (NODES_GROUP,) or wanted.has_more_subject:
        return f"the subject must have the organisation {NODES_GROUP} and a common name, and nothing else"
    if SERVING not in request.usages or request.usages - USAGES:
        allowed = _quoted(sorted(USAGES))
        return f"the usages are {_quoted(sorted(request.usages))}: {SERVING} is needed, and {allowed} allowed"
    if node is None or node.deleting:
        return f"there is no node {node_of(request)}, or it is being deleted"
    if wanted.has_other_names or not (wanted.dns or wanted.addresses):
        return "the names must be DNS names and IP addresses, and at least one of them"
    strange = sorted(name for name in (*wanted.dns, *wanted.addresses) if not _is_own(name, wanted, node))
    return f"node {node.name} does not have the names {_quoted(strange)}" if strange else ""


def _is_own(name: str, wanted: Wanted, node: Node) -> bool:
    if name in wanted.dns:
        return name == node.name
    return may_be_certified(name, node.name) and (name in node.addresses or is_link_local(name))


def _doubt(wanted: Wanted, holder: OtherHolder) -> str:
    """Return why only a person can decide; "" if the manager can."""
    try:
        for name in (*wanted.dns, *wanted.addresses):
            if name in API_SERVER_NAMES or "svc" in name.split("."):
                return f"a Service of the cluster has the name {name}, too"
            if not is_link_local(name) and (other := holder(name)):
                return f"{other} has {name}, too"
    except LookupError as error:
        return str(error.args[0])
    return ""


def _quoted(values: tuple[str, ...] | list[str]) -> str:
    """Quote untrusted values for a message."""
    return ", ".join(f"{value!r:.80}" for value in values[:5]) or "nothing"


logger = logging.getLogger(__name__)


class HubCertificatesController(Controller):
    """Decides hubs' certificate requests, and ignores others. Key: a CertificateSigningRequest.

    A request that is left to a person is decided again when addresses of nodes or of the API server change.
    """

    name = "hubcertificates"
    debounce = 1.0
    """Seconds. The hub read its Node before it sent the request, so by then the manager's watch has the same state."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._left: set[Key] = set()
        self._requests = self.watch(SERVING_REQUESTS, open_requests)
        self._nodes = self.watch(NODES, self._other_addresses)
        self._services = self.watch(API_SERVICE, self._other_servers)
        self._slices = self.watch(API_SLICES, self._other_servers)

    async def reconcile(self, key: Key) -> None:
        self._left.discard(key)
        request = self._requests.get(key)
        if request is None or not request.is_of_hub or not request.is_open:
            return
        node = self._nodes.get(("", node_of(request)))
        holder = partial(self._holder, node_of(request), await self._of_server())
        decision = decide(request, node, holder)
        logger.info("%s: %s %s: %s", self.name, request.name, decision.type or "left", decision.message)
        if decision.type == LEFT:
            self._left.add(key)
            await self._context.events.warning(request.reference, decision.reason, decision.message)
            return
        condition = {
            "type": decision.type,
            "status": "True",
            "reason": decision.reason,
            "message": decision.message,
            "lastUpdateTime": timestamp(datetime.now(UTC)),
        }
        # The resourceVersion prevents an approval after another client has denied the request meanwhile.
        patch = {"metadata": {"resourceVersion": request.version}, "status": {"conditions": [condition]}}
        await self.patch(self._requests, key, patch, "approval")

    async def _of_server(self) -> frozenset[str] | None:
        """Return the host name and addresses of the API server that the manager uses; None if the name does not resolve
        now."""
        server = self._context.server()
        try:
            return await addresses_of(server) | {urlsplit(server).hostname or ""}
        except OSError as error:
            logger.warning("%s: the name of %s does not resolve: %s", self.name, server, error)
            return None

    def _holder(self, asking: str, of_server: frozenset[str] | None, name: str) -> str:
        """Implement `OtherHolder`: find a holder of a name other than the requesting node."""
        others = [node.name for _, node in self._nodes.by_index("address", name) if node.name != asking]
        if others:
            return f"node {others[0]}"
        slices = [addresses for _, addresses in self._slices.items()]
        services = [addresses for _, addresses in self._services.items()]
        if not slices or not services or of_server is None:
            raise LookupError("the addresses of the API server are not known")
        return "the API server" if any(name in names for names in (*slices, *services, of_server)) else ""

    def _other_addresses(self, _key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        return tuple(self._left) if (old and old.addresses) != (new and new.addresses) else ()

    def _other_servers(
        self, _key: Key, old: frozenset[str] | None, new: frozenset[str] | None
    ) -> Iterable[Key]:
        return tuple(self._left) if old != new else ()


def open_requests(key: Key, _old: ServingRequest | None, new: ServingRequest | None) -> Iterable[Key]:
    """MapFunc: the key of a hub's open request."""
    return [key] if new is not None and new.is_of_hub and new.is_open else []
