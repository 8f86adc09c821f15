"""Checks of the cloud with the hub's own identity: reach, clock, versions, rights, node, rules and pods."""

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
"""The minor version of Kubernetes 1 that the tests run against."""
OLDEST_MINOR = 30
"""The oldest that they ran against: docs/supported.md."""
KUBELET_BEHIND = 3
"""How many minor versions kubelet may be older than kube-apiserver. Kubernetes' policy allows no newer kubelet."""
CLOCK_WARNING = 5.0
"""Seconds between this node's clock and the cloud's."""
CLOCK_FAILED = 60.0
"""Seconds at which certificates and tokens that are new count as not valid yet."""
READ_RESOURCES = (
    ("", "services"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
    ("apps.openyurt.io", "nodepools"),
    ("networking.k8s.io", "servicecidrs"),
)
"""(group, resource) of each kind that a hub lists and watches in all namespaces."""

RULES = ("kube-system", "yurt-hub-cfg")
"""The ConfigMap of the rules that the manifest names."""
NAMED_PODS = 5
"""Pods that the finding names."""


@dataclass(frozen=True, slots=True)
class OwnNode:
    """The objects that the hub's identity should be able to see: its node, the ConfigMap of the rules, and pods by a
    port."""

    name: str
    rules: tuple[str, str]
    """Namespace and name."""
    port: int
    """The plain one; 0 where it is off."""


async def check_cloud(credentials: Credentials, node: OwnNode | None) -> list[Finding]:
    """Run the checks in order; if no server answers, only the first.

    `node` is None if the node has no identity yet: then its bootstrap token is checked.
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
    """Check that the server answers, its clock and its version. Also return the version, None if it does not answer."""
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
        # The header has whole seconds, cut off.
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
    """`minor` may be `36+`, as the clouds of some providers have it."""
    digits = "".join(filter(str.isdigit, minor))
    if not digits or not OLDEST_MINOR <= int(digits) <= TESTED_MINOR:
        tested = f"the hub is tested with 1.{OLDEST_MINOR} and 1.{TESTED_MINOR}"
        return warning("version", f"Kubernetes {version}: {tested}")
    return ok("version", f"Kubernetes {version}")


async def _check_token(client: Client) -> Finding:
    asks: Json = {"group": "certificates.k8s.io", "resource": "certificatesigningrequests"}
    if await may(client, {**asks, "verb": "create"}):
        return ok("token", "may ask for the identity of a node")
    return failed(
        "token", "may not ask for an identity: bind its group to the ClusterRole system:node-bootstrapper"
    )


def _cure(missing: list[str], rules: tuple[str, str], *, is_node: bool) -> str:
    """The remedy for missing rights: the manifest, where it gives them to this identity."""
    apply = f"`kubectl apply -f {RBAC}`"
    if not is_node:
        return f"{apply} gives it to the group system:nodes, of which this identity is not: name a node's kubeconfig"
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
        yield failed("rights", f"may not {', '.join(missing)}; {_cure(missing, rules, is_node=is_node)}")
    else:
        yield ok("rights", f"all that {RBAC} gives")
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
    """Which of these the client's user may not list or watch."""
    return [
        f"{verb} {read['resource']}"
        for read in reads
        for verb in ("list", "watch")
        if not await may(client, {**read, "verb": verb})
    ]


async def _check_node(client: Client, node: str, served: str) -> Finding:
    """`served` is the version of kube-apiserver."""
    try:
        document = await get(client, f"/api/v1/nodes/{node}")
    except StatusError as error:
        if error.code == 404:
            return warning("node", f"{node} has not joined the cluster yet; is --node its name there?")
        raise
    kubelet = str(document.get("status", {}).get("nodeInfo", {}).get("kubeletVersion") or "unknown")
    if _minor(kubelet) and _minor(served) and not 0 <= _minor(served) - _minor(kubelet) <= KUBELET_BEHIND:
        return warning(
            "node",
            f"{node}, kubelet {kubelet}: kube-apiserver {served} takes kubelets of its minor version and of "
            f"{KUBELET_BEHIND} before",
        )
    return ok("node", f"{node}, kubelet {kubelet}")


def _minor(version: str) -> int:
    """The minor version in `v1.36.3`; 0 where there is none."""
    match = re.match(r"v?1\.(\d+)", version)
    return int(match[1]) if match else 0


async def _check_rules(client: Client, rules: tuple[str, str]) -> Finding:
    namespace, name = rules
    try:
        document = await get(client, f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    except StatusError as error:
        if error.code in (403, 404):
            return ok("rules", f"no ConfigMap {namespace}/{name} to be read: the built-in rules hold")
        raise
    if (problems := parse_rules(document.get("data")).problems).named:
        first = problems.named[0]
        return warning(
            "rules",
            f"{problems.total} bad entries in {namespace}/{name}, the first in {first.key}: {first.why}",
        )
    return ok("rules", f"{namespace}/{name} can be read, every entry of it")


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
    """The HTTP requests of kubelet for a container: probes and hooks."""
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
