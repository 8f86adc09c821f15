"""Samples for stores, clouds and flows: objects as JSON, filled stores, parsed requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.object_read import ObjectRead, parse_read
from addons.requests.request_context import RelayUpstream, RequestContext, ServerConnections
from addons.requests.route_decision import Route, RouteKind
from addons.telemetry.observation import Observation
from kube.json_type import Json
from kube.requests.request_info import parse_request
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.support.objects import obj

SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
CONFIG_MAPS = "/api/v1/configmaps"

HUB = Caller(CredentialSource.HUB)
"""A caller with the hub's identity: a component of this node."""
POD = Caller(CredentialSource.OWN, "Bearer pod")
"""A pod with its own token."""
NOBODY = Caller(CredentialSource.NONE)


def service(
    name: str = "web", version: int = 0, annotations: Mapping[str, str] | None = None, **spec: Any
) -> Json:
    spec = {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}], **spec}
    return obj("Service", name, "default", version, annotations=dict(annotations or {}), spec=spec)


def cloud_service(name: str = "lb", version: int = 0) -> Json:
    """Return a Service that `discardcloudservice` hides."""
    return service(name, version, type="LoadBalancer")


def endpoint_slice(
    name: str, nodes: Iterable[str], version: int = 0, service_name: str = "web", ready: bool = True
) -> Json:
    """Return a slice with one endpoint on each of these nodes."""
    endpoints = [
        {"addresses": [f"10.0.0.{number}"], "conditions": {"ready": ready}, "nodeName": node}
        for number, node in enumerate(nodes, 1)
    ]
    made = obj("EndpointSlice", name, "default", version, labels={"kubernetes.io/service-name": service_name})
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    return {**made, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}


def node(name: str, version: int = 0, **labels: str) -> Json:
    found = {key.replace("__", "/"): value for key, value in labels.items()}
    return obj("Node", name, "", version, labels=found)


def node_pool(name: str, nodes: Iterable[str], version: int = 0) -> Json:
    return obj("NodePool", name, "", version, status={"nodes": list(nodes)})


def config_map(data: Mapping[str, str], version: int = 0, name: str = "yurt-hub-cfg") -> Json:
    return obj("ConfigMap", name, "kube-system", version, data=dict(data))


def secret(name: str = "s", namespace: str = "default", **data: str) -> Json:
    """Return a Secret; the values of `data` are in base64."""
    return obj("Secret", name, namespace, data=data)


def raw(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def fill(
    store: Store, values: Iterable[Json], version: int, *, kind: str = "", api_version: str = "v1"
) -> None:
    """Fill a store with a complete list, as from the cloud in JSON."""
    found = list(values)
    kind, api_version = (found[0]["kind"], found[0]["apiVersion"]) if found else (kind, api_version)
    store.replace(codec_for(Encoding.JSON), api_version, kind, version, map(raw, found))


def request_context(
    target: str = SERVICES,
    *,
    method: str = "GET",
    component: str = "kube-proxy",
    caller: Caller = HUB,
    listener: Listener = Listener.PLAIN,
    accept: str | None = "application/json",
) -> RequestContext:
    """Return the context of a request as the first two addons leave it."""
    made = RequestContext(parse_request(method, target), component, listener, accept)
    made.caller = caller
    return made


def lead(context: RequestContext, connections: ServerConnections) -> None:
    """Send a request over these connections, like `addons.egress`."""
    context.route = context.route or Route(RouteKind.RELAY, "test")
    context.upstream = RelayUpstream(context.route, connections)


def read_of(target: str, accept: str | None = "application/json") -> ObjectRead:
    return parse_read(parse_request("GET", target), accept)


SEEN = Observation(
    *(100.0, "kube-proxy", "list", "services", "", "default", "", "viewed", 200, 543, 0.0051),
    *("cloud", "view", "cached component", 42, ()),
)
"""A list that a view has served."""
