"""Logs and streams of this node's pods while the cloud is away: who may ask kubelet for them, and where it has them.

kube-apiserver decides by the caller's right to the pod's subresource, and is then itself the one whom kubelet sees.
So is the hub, with a client certificate that its operator gives it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

from addons.link.identities.kubelet import KubeletAccess
from addons.offline.cached_responses import CachedResponses
from addons.offline.people.kept_discovery import KEPT
from addons.offline.people.kubelet_path import kubelet_target
from addons.offline.people.kubelet_reviews import KubeletReviews
from addons.requests.caller import Caller, digest_of
from addons.views.reviews import Reviews
from kube.errors import StatusError, forbidden, unavailable
from kube.json_type import Json
from kube.requests.request_info import RequestInfo, ResourceType, parse_request
from kube.store.made_forms import plain
from kube.store.store import Item

PODS, NODES = ResourceType("", "v1", "pods"), ResourceType("", "v1", "nodes")
VERBS = {"": "get", "log": "get", "exec": "create", "attach": "create", "portforward": "create"}
"""What kubectl needs a right to, by the subresource. Since Kubernetes 1.35 each stream needs `create`."""
PORT = 10250
"""kubelet's port where its Node names none."""


type Find = Callable[[RequestInfo], Awaitable[list[Item]]]
"""The newest copies of an object first."""


class AtKubelet(NamedTuple):
    """Where a request goes, and the target that it has there."""

    port: int
    target: str


class PodRequests:
    """Remembers who may see logs and enter containers, and leads them to kubelet."""

    def __init__(self, node: str, find: Find, reviews: Reviews, kubelet_reviews: KubeletReviews) -> None:
        self.kubelet_reviews = kubelet_reviews
        self._node = node
        self._find_item = find
        self._reviews = reviews
        self._learning: dict[str, asyncio.Task[None]] = {}
        """One for each token, by its digest."""

    @classmethod
    def of(
        cls, access: KubeletAccess | None, find: Find, reviews: Reviews, answers: CachedResponses
    ) -> PodRequests | None:
        """None where the hub has nothing to ask kubelet by."""
        if access is None:
            return None
        return cls(access.node, find, reviews, KubeletReviews(access.node, access, answers))

    async def at_kubelet(self, caller: Caller, info: RequestInfo, target: str) -> AtKubelet:
        """Where kubelet answers a request, of this target on the wire. StatusError where it may not, or cannot."""
        if not caller.authorization or caller.impersonates:
            raise forbidden(
                f"the node has no right to pods/{info.subresource}: ask with a token of your own, at the TLS port, "
                "or use crictl on the pod's node"
            )
        review = replace(info, verb=VERBS[info.subresource])
        await self._reviews.may_in_namespace(caller.authorization, review)
        pod = await self._find(PODS, info.namespace, info.name)
        if pod is None or pod.get("spec", {}).get("nodeName") != self._node:
            raise unavailable(
                f"the cloud cannot be reached, and pod {info.name} is none of node {self._node}, whose kubelet "
                "alone the hub can ask"
            )
        node = await self._find(NODES, "", self._node) or {}
        endpoint = node.get("status", {}).get("daemonEndpoints", {}).get("kubeletEndpoint", {})
        return AtKubelet(endpoint.get("Port") or PORT, kubelet_target(info, target.partition("?")[2], pod))

    def learn(self, caller: Caller, info: RequestInfo, status: int) -> None:
        """Have the hub know for an outage what a caller may do here, whom the cloud has just answered."""
        token = digest_of(caller.authorization)
        if not caller.authorization or caller.impersonates or status == 401 or token in self._learning:
            return
        task = asyncio.create_task(self._ask(caller, info), name="rights of who sees logs")
        self._learning[token] = task
        task.add_done_callback(lambda _: self._learning.pop(token))

    async def _ask(self, caller: Caller, info: RequestInfo) -> None:
        further = (replace(info, verb=verb, subresource=subresource) for subresource, verb in VERBS.items())
        with contextlib.suppress(StatusError):
            await self._reviews.identity(caller)
        for question in (*further, *(parse_request("GET", path) for path in KEPT)):
            with contextlib.suppress(StatusError):
                await self._reviews.may_in_namespace(caller.authorization, question)

    async def _find(self, type_: ResourceType, namespace: str, name: str) -> Json | None:
        item = await self._find_item(parse_request("GET", type_.path(namespace, name)))
        return plain(item[0]) if item else None
