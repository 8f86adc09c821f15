"""Checks of the cloud with the hub's own identity: reachability, clock, version, permissions, node, rules and pods."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from addons.install.checks.findings import Finding, failed, ok, warning
from addons.install.cloud import TIMEOUT, cloud, get, may
from addons.rules.table import parse_rules
from addons.startup.own_node import node_in
from addons.views.source_log import RBAC, RBAC_OF_NODES
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.http.kubeconfig import Credentials
from kube.json_type import Json

TESTED_MINOR = 36
"""Minor version of Kubernetes 1 against which the tests run."""
OLDEST_MINOR = 30
"""Oldest minor version against which the tests ran: docs/supported.md."""
KUBELET_SKEW = 3
"""Minor versions by which kubelet may be older than kube-apiserver. Kubernetes does not allow a newer kubelet."""
CLOCK_WARNING = 5.0
"""Seconds of difference between the clocks of this node and the cloud that cause a warning."""
CLOCK_FAILED = 60.0
"""Seconds of difference at which new certificates and tokens are not valid yet."""
READ_RESOURCES = (
    ("", "services"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
    ("apps.openyurt.io", "nodepools"),
    ("networking.k8s.io", "servicecidrs"),
)
"""Group and resource of each kind that a hub lists and watches in all namespaces."""

RULES = ("kube-system", "yurt-hub-cfg")
"""Namespace and name of the rules ConfigMap to which the manifest grants access."""
NAMED_PODS = 5
"""Maximum pods named in the finding."""


@dataclass(frozen=True, slots=True)
class OwnNode:
    """The node and the rules ConfigMap that the hub's identity must be able to read, and the plain port."""

    name: str
    rules: tuple[str, str]
    """Namespace and name of the ConfigMap."""
    port: int
    """The plain port; 0 if it is off."""


async def check_cloud(credentials: Credentials, node: OwnNode | None) -> list[Finding]:
    """Run the checks in order. If no server answers, run only the first.

    `node` is None if the node has no identity yet: then only its bootstrap token is checked.
    """
    server, findings = credentials.cluster.server, list[Finding]()
    async with cloud(credentials) as client:
        try:
            reached, version = await _check_reach(client, server)
            findings += reached
            if version is None:
                return findings
            if node is None:
                findings.append(await _check_token(client))
                return findings
            is_node = bool(node_in(credentials))
            async for finding in _check_rights(client, node.name, node.rules, is_node=is_node):
                findings.append(finding)
            findings.append(await _check_node(client, node.name, version))
            findings.append(await _check_rules(client, node.rules))
            if node.port:
                findings.append(await check_pods(client, node.name, node.port))
        except (StatusError, Unreachable) as error:
            findings.append(failed("cloud", f"{server}: {error}"))
    return findings


async def _check_reach(client: Client, server: str) -> tuple[list[Finding], str | None]:
    """Check that the server answers, its clock and its version. Return the findings and the version; None if it does
    not answer.
    """
    began = datetime.datetime.now(datetime.UTC)
    try:
        answer = await client.relay("GET", "/version", headers=(), body=b"", timeout=TIMEOUT)
    except Unreachable as error:
        return [failed("cloud", f"{server} cannot be reached: {error}")], None
    took = datetime.datetime.now(datetime.UTC) - began
    if answer.status != 200:
        return [failed("cloud", f"{server} answers {answer.status}: are the credentials still good?")], None
    served: Json = json.loads(answer.body)
    version = str(served.get("gitVersion") or "unknown")
    return [
        ok("cloud", f"{server} answers in {took.total_seconds() * 1000:.0f} ms"),
        _check_clock(answer.headers.get("Date", ""), began + took / 2),
        _check_version(version, str(served.get("minor"))),
    ], version


def _check_clock(date: str, now: datetime.datetime) -> Finding:
    try:
        # The header is truncated to whole seconds.
        differs = abs((now - parsedate_to_datetime(date)).total_seconds() - 0.5)
    except ValueError:
        return warning("clock", "the cloud's answer has no Date header")
    text = f"{differs:.0f} s from the cloud's"
    if differs >= CLOCK_FAILED:
        return failed("clock", f"{text}: certificates and tokens will not hold; set the clock (NTP)")
    if differs >= CLOCK_WARNING:
        return warning("clock", f"{text}: is NTP running?")
    return ok("clock", text)


def _check_version(version: str, minor: str) -> Finding:
    """Check the version. `minor` may have a suffix, such as `36+` from some cloud providers."""
    digits = "".join(filter(str.isdigit, minor))
    if not digits or not OLDEST_MINOR <= int(digits) <= TESTED_MINOR:
        tested = f"the hub is tested with 1.{OLDEST_MINOR} and 1.{TESTED_MINOR}"
        return warning("version", f"Kubernetes {version}: {tested}")
    return ok("version", f"Kubernetes {version}")


async def _check_token(client: Client) -> Finding:
    asks: Json = {"group": "certificates.k8s.io", "resource": "certificatesigningrequests"}
    if await may(client, {**asks, "verb": "create"}):
        return ok("token", "may request the identity of a node")
    return failed(
        "token", "may not request an identity: bind its group to the ClusterRole system:node-bootstrapper"
    )


def _remedy(missing: list[str], rules: tuple[str, str], *, is_node: bool) -> str:
    """Return the remedy for missing permissions: the manifest, if it grants them to this identity."""
    apply = f"`kubectl apply -f {RBAC}`"
    if not is_node:
        return f"{apply} grants it to the group system:nodes, which this identity is not in: name a node's kubeconfig"
    if rules != RULES and all(right.endswith(" configmaps") for right in missing):
        return (
            f"{RBAC} gives it for {'/'.join(RULES)}: write {'/'.join(rules)} into its Role edgehub:hub-rules"
        )
    return f"apply it in the cloud: {apply}, or `edgehub manifests hub-rbac | kubectl apply -f -`"


async def _check_rights(
    client: Client, node: str, rules: tuple[str, str], *, is_node: bool
) -> AsyncIterator[Finding]:
    namespace, name = rules
    reads: list[Json] = [{"group": group, "resource": resource} for group, resource in READ_RESOURCES]
    reads.append({"resource": "configmaps", "namespace": namespace, "name": name})
    if missing := await _refused(client, reads):
        yield failed("rights", f"may not {', '.join(missing)}; {_remedy(missing, rules, is_node=is_node)}")
    else:
        yield ok("rights", f"everything that {RBAC} grants")
    if await _refused(client, [{"resource": "nodes"}]):
        cure = (
            f"filters by nodes' labels need `kubectl apply -f {RBAC_OF_NODES}`, or "
            "`edgehub manifests hub-nodes | kubectl apply -f -`"
        )
        yield warning("rights", f"may not read other nodes; {cure}")
    lease: Json = {"group": "coordination.k8s.io", "resource": "leases", "namespace": "kube-node-lease"}
    own: list[Json] = [
        {"resource": "nodes", "subresource": "status", "name": node, "verb": "patch"},
        {**lease, "name": node, "verb": "update"},
    ]
    if all([await may(client, attributes) for attributes in own]):
        yield ok("identity", f"may write the status and the lease of {node}")
    else:
        yield failed(
            "identity", f"may not write status and lease of {node}: the kubeconfig must be this node's own"
        )


async def _refused(client: Client, reads: list[Json]) -> list[str]:
    """Return which of these resources the client's user may not list or watch."""
    return [
        f"{verb} {read['resource']}"
        for read in reads
        for verb in ("list", "watch")
        if not await may(client, {**read, "verb": verb})
    ]


async def _check_node(client: Client, node: str, served: str) -> Finding:
    """Check the Node and kubelet's version; `served` is kube-apiserver's version."""
    try:
        document = await get(client, f"/api/v1/nodes/{node}")
    except StatusError as error:
        if error.code == 404:
            return warning("node", f"{node} has not joined the cluster yet; is --node its name there?")
        raise
    kubelet = str(document.get("status", {}).get("nodeInfo", {}).get("kubeletVersion") or "unknown")
    if _minor(kubelet) and _minor(served) and not 0 <= _minor(served) - _minor(kubelet) <= KUBELET_SKEW:
        return warning(
            "node",
            f"{node}, kubelet {kubelet}: kube-apiserver {served} takes kubelets of its minor version and of "
            f"{KUBELET_SKEW} before",
        )
    return ok("node", f"{node}, kubelet {kubelet}")


def _minor(version: str) -> int:
    """Return the minor version in a text such as `v1.36.3`; 0 if there is none."""
    match = re.match(r"v?1\.(\d+)", version)
    return int(match[1]) if match else 0


async def _check_rules(client: Client, rules: tuple[str, str]) -> Finding:
    namespace, name = rules
    try:
        document = await get(client, f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    except StatusError as error:
        if error.code in (403, 404):
            return ok("rules", f"no ConfigMap {namespace}/{name} can be read: the built-in rules apply")
        raise
    if (problems := parse_rules(document.get("data")).problems).named:
        first = problems.named[0]
        return warning(
            "rules",
            f"{problems.total} bad entries in {namespace}/{name}, the first in {first.key}: {first.why}",
        )
    return ok("rules", f"{namespace}/{name} has no bad entry")


async def check_pods(client: Client, node: str, port: int) -> Finding:
    """Check whether a pod makes kubelet send requests to the plain port. Errors as in
    `kube.http.client.Client.request`.
    """
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
    """Whether a probe or hook of a pod calls this port of the node, by an explicit host or through the host's
    network.
    """
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
    """Yield the HTTP requests that kubelet makes for a container: probes and hooks."""
    hooks = container.get("lifecycle") or {}
    actions = [container.get(kind) for kind in ("livenessProbe", "readinessProbe", "startupProbe")]
    for action in [*actions, hooks.get("postStart"), hooks.get("preStop")]:
        if action and action.get("httpGet"):
            yield action["httpGet"]


def _number(port: object, container: Json) -> object:
    """Return the number of a port, which may be given by the name of a container port."""
    ports = container.get("ports") or ()
    named = {port.get("name"): port["containerPort"] for port in ports}
    return named.get(port, port)
