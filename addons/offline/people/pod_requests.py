"""Logs and streams of this node's pods while the cloud is away: checks the caller's right, and forwards the request to
kubelet.

kube-apiserver decides by the caller's right to the pod's subresource, and is then itself kubelet's client. The hub does
the same, with a client certificate that its operator provides.

kubelet accepts a client certificate of the cluster's CA, and asks the cloud, through this hub, for its user's rights
(SubjectAccessReview). It caches a permission for some minutes, and answers 500 if the review fails. The hub caches the
cloud's answers about its own user for kubelet, and answers no other user's review without the cloud.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import orjson

from addons.link.identities.kubelet import KubeletAccess
from addons.offline.cached_response import unpacked
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_request import OfflineRequest
from addons.offline.people.cached_discovery import Question
from addons.requests.answers import HEADERS, Answer
from addons.requests.caller import Caller, digest_of
from addons.requests.offline_policy import DISCOVERY_PATHS, JSON
from addons.views.reviews import Reviews
from kube.errors import StatusError, bad_request, forbidden, unavailable
from kube.json_type import Json
from kube.requests.query import parse_bool
from kube.requests.request_info import RequestInfo, ResourceType, parse_request
from kube.schemas.json_objects import json_object
from kube.store.made_forms import plain
from kube.store.store import Item
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object

PODS, NODES = ResourceType("", "v1", "pods"), ResourceType("", "v1", "nodes")
VERBS = {"": "get", "log": "get", "exec": "create", "attach": "create", "portforward": "create"}
"""The verb that kubectl needs for each subresource. Since Kubernetes 1.35 each stream needs `create`."""
PORT = 10250
"""kubelet's port if its Node names none."""

type Find = Callable[[RequestInfo], Awaitable[list[Item]]]
"""The newest copies of an object first."""
PATHS = {"log": "containerLogs", "exec": "exec", "attach": "attach", "portforward": "portForward"}
"""The first segment of kubelet's path for each subresource."""
FLAGS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "log": {parameter: (parameter, "true") for parameter in ("follow", "previous", "timestamps")},
    "exec": {
        "stdin": ("input", "1"),
        "stdout": ("output", "1"),
        "stderr": ("error", "1"),
        "tty": ("tty", "1"),
    },
    "portforward": {},
}
"""Boolean parameters: kubelet's name of each, and its text for true."""
TEXTS: Mapping[str, Mapping[str, str]] = {
    "log": {
        parameter: parameter
        for parameter in ("sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream")
    },
    "exec": {"command": "command"},
    "portforward": {"ports": "port"},
}
"""Parameters that are passed on unchanged: kubelet's name of each."""
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
KUBELET_VERBS = ("get", "create")
"""The verb on nodes/proxy that kubelet derives from the HTTP method: GET for logs and a WebSocket, POST for SPDY."""


class AtKubelet(NamedTuple):
    """The kubelet's server for a request, and the request's target there."""

    port: int
    target: str


class PodRequests:
    """Learns who may read logs and open streams, forwards their requests to kubelet, and answers kubelet's reviews of
    the hub's user."""

    def __init__(self, access: KubeletAccess, find: Find, reviews: Reviews, answers: CachedResponses) -> None:
        self._access = access
        self._node = access.node
        self._find_item = find
        self._reviews = reviews
        self._answers = answers
        self._learning: dict[str, asyncio.Task[None]] = {}
        """The running task for each token, by its digest."""

    async def at_kubelet(self, caller: Caller, info: RequestInfo, target: str) -> AtKubelet:
        """Return where kubelet answers a request with this target; StatusError if the caller has no right, or kubelet
        cannot be asked."""
        if not caller.authorization or caller.impersonates:
            raise forbidden(
                f"the node has no right to pods/{info.subresource}: ask with a token of your own, at the TLS port, "
                "or use crictl on the pod's node"
            )
        review = info._replace(verb=VERBS[info.subresource])
        await self._reviews.may_in_namespace(caller.authorization, review)
        pod = await self._find(PODS, info.namespace, info.name)
        if pod is None or pod.get("spec", {}).get("nodeName") != self._node:
            raise unavailable(
                f"the cloud cannot be reached, and pod {info.name} does not run on node {self._node}: the hub can ask "
                "only this node's kubelet"
            )
        try:
            self._access.check()
        except ValueError as error:
            raise unavailable(
                f"the cloud cannot be reached, and kubelet of this node does not answer: {error}"
            ) from None
        node = await self._find(NODES, "", self._node) or {}
        endpoint = node.get("status", {}).get("daemonEndpoints", {}).get("kubeletEndpoint", {})
        return AtKubelet(endpoint.get("Port") or PORT, kubelet_target(info, target.partition("?")[2], pod))

    def learn(self, caller: Caller, info: RequestInfo, status: int) -> None:
        """Record for an outage that the cloud has just permitted this request to the caller."""
        token = digest_of(caller.authorization)
        if not caller.authorization or caller.impersonates or status == 401 or token in self._learning:
            return
        task = asyncio.create_task(self._ask(caller, info), name="access review of logs")
        self._learning[token] = task
        task.add_done_callback(lambda _: self._learning.pop(token))

    async def _ask(self, caller: Caller, info: RequestInfo) -> None:
        further = (info._replace(verb=verb, subresource=subresource) for subresource, verb in VERBS.items())
        with contextlib.suppress(StatusError):
            await self._reviews.identity(caller)
        for question in (*further, *(parse_request("GET", path) for path in DISCOVERY_PATHS)):
            with contextlib.suppress(StatusError):
                await self._reviews.may_in_namespace(caller.authorization, question)

    async def _find(self, type_: ResourceType, namespace: str, name: str) -> Json | None:
        item = await self._find_item(parse_request("GET", type_.path(namespace, name)))
        return plain(item[0]) if item else None

    def questions(self) -> Iterator[Question]:
        """Return the reviews that kubelet will request for the hub's own user; none if the certificate is
        unreadable."""
        try:
            user, groups = self._access.user()
        except (OSError, ValueError):
            return
        for verb in KUBELET_VERBS:
            yield _question(
                user, groups, {"verb": verb, "resource": "nodes", "subresource": "proxy", "name": self._node}
            )

    async def review(self, request: OfflineRequest) -> Answer:
        """Return the cloud's last answer to kubelet's review; StatusError 503 if there is no readable one."""
        review = _review_in(request)
        spec = review.get("spec") or {}
        attributes = spec.get("resourceAttributes") or {}
        # RBAC looks at no version, and the questions of the hub name none.
        attributes = {name: text for name, text in attributes.items() if text and name != "version"}
        question = _question(spec.get("user", ""), spec.get("groups") or [], attributes)
        answer = await self._answers.get(question.key)
        if answer is not None:
            with contextlib.suppress(ValueError, LookupError, TypeError):
                status = orjson.loads(unpacked(answer.headers, answer.body))["status"]
                return Answer(
                    orjson.dumps({**review, "status": status}), {**HEADERS, "Content-Type": JSON}, 201
                )
        raise unavailable("the cloud cannot be reached, and only it authorizes callers other than the hub")


def _question(user: str, groups: list[str], attributes: Json) -> Question:
    spec = {"user": user, "groups": sorted(set(groups)), "resourceAttributes": attributes}
    return Question(
        "POST", REVIEWS, JSON, orjson.dumps({**REVIEW, "spec": spec}, option=orjson.OPT_SORT_KEYS)
    )


def _review_in(request: OfflineRequest) -> Json:
    """Decode the review in the body; StatusError 400 or 415 if it is none."""
    codec, obj = request.decoded(REVIEW["kind"])
    if codec.encoding is Encoding.JSON:
        return parse_object(obj.encode())
    return json_object(REVIEW["apiVersion"], REVIEW["kind"], obj.encode())


def kubelet_target(info: RequestInfo, query: str, pod: Json) -> str:
    """Return kubelet's path and query for a request to a pod, mapped as in kube-apiserver (registry/core/pod).

    StatusError 400 as kube-apiserver's.
    """
    kind = "exec" if info.subresource == "attach" else info.subresource
    pairs = parse_qsl(query, keep_blank_values=True)
    given = dict(reversed(pairs))  # the first one of a name counts
    sent = [FLAGS[kind][name] for name, value in given.items() if name in FLAGS[kind] and parse_bool(value)]
    sent += [(TEXTS[kind][name], value) for name, value in pairs if name in TEXTS[kind]]
    steps = [PATHS[info.subresource], info.namespace, info.name]
    if kind != "portforward":
        steps.append(_container(given.get("container", ""), pod))
    return "/" + "/".join(quote(step, safe="") for step in steps) + (f"?{urlencode(sent)}" if sent else "")


def _container(wanted: str, pod: Json) -> str:
    """Return the requested container: if the pod has several, the client must name one."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    if not wanted and len(spec["containers"]) == 1:
        return str(spec["containers"][0]["name"])
    names = [str(container["name"]) for kind in CONTAINERS for container in spec.get(kind) or ()]
    if not wanted:
        choices = " ".join(names)
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")
    if wanted not in names:
        raise bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted
