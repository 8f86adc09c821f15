"""What the doctor finds in the pods of this node: probes and hooks by which kubelet would ask the hub for a pod."""

from __future__ import annotations

import json
from collections.abc import Iterator

from addons.install.checks.findings import Finding, ok, warning
from addons.install.cloud import TIMEOUT
from kube.http.client import Client
from kube.json_type import Json

NAMED_PODS = 5
"""Pods that the finding names."""


async def check_pods(client: Client, node: str, port: int) -> Finding:
    """Whether a pod of the node has kubelet ask the plain port; errors as `kube.http.client.Client.request`."""
    query = {"fieldSelector": f"spec.nodeName={node}"}
    document: Json = await (
        await client.request("GET", "/api/v1/pods", query=query, timeout=TIMEOUT)
    ).decoded(json.loads)
    asking = [
        f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        for item in document["items"]
        if asks(item["spec"], port)
    ]
    if not asking:
        return ok("pods", f"none has kubelet ask port {port} for it")
    named = ", ".join(asking[:NAMED_PODS]) + ", ..." * (len(asking) > NAMED_PODS)
    return warning(
        "pods",
        f"{named}: by a probe or a hook kubelet asks port {port} for the pod, with this node's identity; forbid it by "
        "an admission policy",
    )


def asks(spec: Json, port: int) -> bool:
    """Whether a probe or hook of a pod leads to this port of the node: of a host that it names, or of its own one."""
    return any(
        (bool(http.get("host")) or bool(spec.get("hostNetwork")))
        and _number(http.get("port"), container) == port
        for container in _containers(spec)
        for http in _requests(container)
    )


def _containers(spec: Json) -> Iterator[Json]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def _requests(container: Json) -> Iterator[Json]:
    """What kubelet asks by HTTP because of a container."""
    hooks = container.get("lifecycle") or {}
    actions = [container.get(kind) for kind in ("livenessProbe", "readinessProbe", "startupProbe")]
    for action in [*actions, hooks.get("postStart"), hooks.get("preStop")]:
        if action and action.get("httpGet"):
            yield action["httpGet"]


def _number(port: object, container: Json) -> object:
    """The number of a port, which may be the name of one of the container's own."""
    ports = container.get("ports") or ()
    named = {port.get("name"): port["containerPort"] for port in ports}
    return named.get(port, port)
