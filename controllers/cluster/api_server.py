"""The addresses at which the API server serves: its Service's, its endpoints', and those that the manager uses."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

from controllers.cluster.nodes import parse_address
from controllers.runtime.informer import WatchedResource, one_object
from controllers.runtime.unstructured import mapping, objects, strings
from kube.json_type import Json
from kube.requests.request_info import ResourceType

NAMESPACE, SERVICE = "default", "kubernetes"
RESOLVING = 5.0
"""Seconds in which the name of the API server must resolve."""


def read_service(obj: Json) -> frozenset[str]:
    """The ClusterIPs of a Service in canonical form; none of a headless one."""
    return frozenset(filter(None, map(parse_address, strings(mapping(obj.get("spec")).get("clusterIPs")))))


def read_slice(obj: Json) -> frozenset[str]:
    """The IP addresses of an EndpointSlice in canonical form."""
    addresses = (
        address
        for endpoint in objects(obj.get("endpoints"))
        for address in strings(endpoint.get("addresses"))
    )
    return frozenset(filter(None, map(parse_address, addresses)))


async def addresses_of(server: str) -> frozenset[str]:
    """The IP addresses of a URL's host; OSError where its name does not resolve."""
    host = urlsplit(server).hostname or ""
    async with asyncio.timeout(RESOLVING):
        addresses = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return frozenset(filter(None, (parse_address(str(info[4][0])) for info in addresses)))


API_SERVICE = one_object(ResourceType("", "v1", "services"), NAMESPACE, SERVICE, read_service)
API_SLICES = WatchedResource(
    ResourceType("discovery.k8s.io", "v1", "endpointslices"),
    read_slice,
    namespace=NAMESPACE,
    label_selector=f"kubernetes.io/service-name={SERVICE}",
)
