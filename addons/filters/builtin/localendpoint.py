"""Points the Endpoints and slices of default/kubernetes at an address of the node itself (SuperEdge's local rewrite).

Needs: both annotations superedge.io/local-endpoint (an IP literal) and superedge.io/local-port (1 to 65535) on the
object (SuperEdge), or the hub's own option, which takes precedence. Changes: all subsets become one with that address
and a TCP port https; all endpoints and ports of a slice likewise. The object is kept if neither is set, if an
annotation is invalid, or if the address family differs from the object's: a slice's family never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from addons.filters.builtin.kubernetesservice import HTTPS, is_kubernetes, say_address
from addons.filters.builtin.pruning import SLICE
from addons.filters.filter import ENDPOINT_SLICES, ENDPOINTS, LIST_AND_WATCH
from addons.filters.inputs import HubAddress, Inputs, family_of
from addons.filters.verdict import Note, Verdict, changed, ignore_note, kept
from kube.wire.api_objects import ApiObject
from kube.wire.fields import Fields

ADDRESS = "superedge.io/local-endpoint"
PORT = "superedge.io/local-port"


@dataclass(frozen=True)
class LocalEndpoint:
    """`forced` is the hub's option: an address per family; None means that the annotations apply."""

    forced: HubAddress | None = None

    name = "localendpoint"
    resources = frozenset({ENDPOINTS, ENDPOINT_SLICES})
    components = frozenset({"kube-proxy"})
    verbs = LIST_AND_WATCH
    reasons = frozenset(
        {
            "other-service",
            "no-local-endpoint",
            "bad-local-endpoint",
            "other-family",
            "local-address",
        }
    )

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if not is_kubernetes(obj):
            return kept("other-service")
        try:
            local = self.forced or parse_local_endpoint(obj.annotations)
        except ValueError:
            return kept("bad-local-endpoint")
        if local is None:
            return kept("no-local-endpoint")
        host = local.host_of(_family(obj) or family_of(local.hosts[0]))
        if host is None:
            return kept("other-family")
        differs = (
            _rewrite_slice(obj.fields, host, local.port)
            if obj.kind == SLICE
            else _rewrite(obj.fields, host, local.port)
        )
        say_address(note, obj, differs, f"{host} port {local.port}")
        return changed("local-address") if differs else kept("local-address")


def parse_local_endpoint(annotations: dict[str, str]) -> HubAddress | None:
    """Parse both annotations; None unless both exist, ValueError if one of them is unreadable."""
    address, port = annotations.get(ADDRESS), annotations.get(PORT)
    if address is None or port is None:
        return None
    if "%" in address:
        raise ValueError(f"{ADDRESS} must be an IP address without a zone, not {address!r}")
    if not (len(port) <= 5 and port.isascii() and port.isdecimal() and 0 < int(port) <= 65535):
        raise ValueError(f"{PORT} must be a port number from 1 to 65535, not {port!r}")
    return HubAddress((str(ip_address(address)),), int(port))


def _family(obj: ApiObject) -> str:
    """Return the family of the object's addresses, "" for Endpoints without any."""
    if obj.kind == SLICE:
        return obj.fields.text("addressType")
    for subset in obj.fields.children("subsets"):
        for address in subset.children("addresses") or subset.children("notReadyAddresses"):
            return family_of(address.text("ip"))
    return ""


def _rewrite(endpoints: Fields, host: str, port: int) -> bool:
    subsets = endpoints.children("subsets")
    if len(subsets) == 1:
        only = subsets[0]
        ips = [address.text("ip") for address in only.children("addresses")]
        if ips == [host] and not only.has("notReadyAddresses") and _is_only_port(only, port):
            return False
    endpoints.clear("subsets")
    subset = endpoints.add("subsets")
    subset.add("addresses").set("ip", host)
    _add_port(subset, port)
    return True


def _rewrite_slice(endpoint_slice: Fields, host: str, port: int) -> bool:
    addresses = [endpoint.texts("addresses") for endpoint in endpoint_slice.children("endpoints")]
    if addresses == [[host]] and _is_only_port(endpoint_slice, port):
        return False
    endpoint_slice.clear("endpoints")
    endpoint_slice.clear("ports")
    endpoint_slice.add("endpoints").set_texts("addresses", [host])
    _add_port(endpoint_slice, port)
    return True


def _is_only_port(owner: Fields, number: int) -> bool:
    ports = [
        (port.text("name"), port.text("protocol"), port.number("port")) for port in owner.children("ports")
    ]
    return ports == [(HTTPS, "TCP", number)]


def _add_port(owner: Fields, number: int) -> None:
    port = owner.add("ports")
    port.set("name", HTTPS)
    port.set("protocol", "TCP")
    port.set("port", number)
