"""The lease of a node on a scripted cloud, with kubelet's requests and a clock that the test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from multidict import CIMultiDict

from addons.link.health import Cloud
from addons.offline.cached_responses import CachedResponses
from addons.offline.node_lease import NodeLease
from addons.requests.answers import ClientRequest, ClientStream
from addons.requests.caller import Caller, CredentialSource
from addons.requests.route_decision import Route, RouteKind
from kube.concurrency.notifier import Notifier
from kube.errors import StatusError
from kube.json_type import Json
from tests.addons.support.offline_parts import JSON, QueuedAnswers, asked, body_of, in_protobuf
from tests.support.background import beside
from tests.support.objects import obj

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE = f"{LEASES}/n1"
GONE = StatusError(404, "NotFound", "no lease")
NO_STREAM = cast(ClientStream, None)
"""A placeholder for a stream: the Lease has complete responses only."""


def lease(name: str = "n1", version: int = 0, duration: int = 40) -> Json:
    time = "2026-01-02T03:04:05.000000Z"
    spec = {"holderIdentity": name, "leaseDurationSeconds": duration, "renewTime": time}
    return obj("Lease", name, "kube-node-lease", version, uid="u", spec=spec)


def protobuf_lease(name: str = "n1") -> bytes:
    obj = in_protobuf("coordination.k8s.io/v1", "Lease", name, "kube-node-lease", uid="u")
    obj.fields.child("spec").set("holderIdentity", name)
    obj.fields.child("spec").set("leaseDurationSeconds", 40)
    return body_of(obj)


class World:
    """The lease of a node in its hub."""

    def __init__(self, answers: CachedResponses) -> None:
        self.cloud = QueuedAnswers()
        """A client that answers each request with the lease, unless a test queues another response."""
        self.cloud.usual = lease(version=3)
        self.is_up = True
        self.changed = Notifier()
        self.now = 1000.0
        self.answers = answers
        self.lease = self.fresh()

    def fresh(self) -> NodeLease:
        """Build a new NodeLease, as after a restart."""
        self.lease = NodeLease("n1", self.cloud, self.answers, cast(Cloud, self), lambda: self.now)
        return self.lease

    async def ask(
        self, method: str, body: Json | bytes = b"", accept: str | None = JSON, content_type: str = JSON
    ) -> tuple[int, Any, str]:
        """Return code, body and media type of a response; StatusError as the lease raises it."""
        target = LEASES if method == "POST" else LEASE
        request = asked(method, target, body, accept=accept, content_type=content_type)
        given = {"Accept": accept, "Content-Type": content_type}
        wanted = ClientRequest(
            *(request.info, "kubelet", Caller(CredentialSource.HUB), Route(RouteKind.LOCAL, "test")),
            target=target,
            headers=CIMultiDict({name: value for name, value in given.items() if value is not None}),
            body=request.body,
        )
        answer = await self.lease.answer(wanted, NO_STREAM)
        return answer.status, answer.body, answer.headers["Content-Type"]

    async def put(self, uid: str = "u", **labels: str) -> None:
        """Send a renewal by kubelet."""
        sent = lease()
        sent["metadata"]["uid"] = uid
        if labels:
            sent["metadata"]["labels"] = labels
        await self.ask("PUT", sent)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with beside(self.lease.run()):
            yield

    async def written(self) -> None:
        await self.answers.written()
