"""Answers requests from cached answers and copies while the cloud is away.

While the cloud is reachable, such a request is relayed like any other, and `keep_response` caches the answer. `answer`
handles requests without a server, and requests whose server failed during them (see `addons.server.serve`). It sends
them on to the cloud if that may still answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from multidict import CIMultiDict

from addons.link.cloud_access import CloudAccess
from addons.link.health import RETRY_REFUSED
from addons.offline.offline_answers import OfflineAnswers
from addons.offline.offline_request import OfflineRequest
from addons.offline.writes.minimal_status_patches import MinimalStatusPatches
from addons.offline.writes.offline_writes import OfflineWrites
from addons.requests.answers import Answer, ClientRequest, ClientStream, RelayToCloud
from addons.requests.caller import Caller, CredentialSource
from addons.requests.offline_policy import OfflinePolicy
from kube.errors import StatusError, unavailable
from kube.http.client import RawResponse, Unreachable
from kube.http.transport.request_fields import CONNECTION_HEADERS
from kube.requests.request_info import RequestInfo

ATTEMPTS = 4
"""Attempts to send a read before the hub answers it, because another server may be up."""


class CachedRelay:
    """Handles a cached relay before it is sent, and answers it if no server can."""

    def __init__(
        self,
        node: str,
        cloud: CloudAccess,
        answers: OfflineAnswers,
        writes: OfflineWrites,
        sparing: MinimalStatusPatches,
    ) -> None:
        self._node = node
        self._clients, self._cloud = cloud.clients, cloud.servers
        self.answers = answers
        self._writes = writes
        self._sparing = sparing

    def offline_policy(self, caller: Caller) -> OfflinePolicy:
        return OfflinePolicy(self._node, self._has_cloud(caller), self.answers.pod_requests is not None)

    def goes_to_cloud(self, info: RequestInfo, caller: Caller) -> bool:
        """Whether a request goes to the cloud unchanged: the cloud is up, has every earlier write that the hub accepted
        for the object, and the hub adds nothing to the answer."""
        is_full_object = not self._sends_minimal_patch(caller, info)
        return is_full_object and self._has_cloud(caller) and not self._writes.is_pending(info)

    def _sends_minimal_patch(self, caller: Caller, info: RequestInfo) -> bool:
        return caller.credential_source is CredentialSource.HUB and self._sparing.takes(info)

    async def written(
        self, caller: Caller, request: OfflineRequest, answer: RawResponse, *, was_sent: bool
    ) -> None:
        """Apply the answer to a caller's write, as `OfflineAnswers.written`."""
        reader = None
        if caller.credential_source is CredentialSource.HUB:
            reader = self._clients.hub
        elif caller.authorization:
            reader = self._clients.of_token(caller.authorization)
        await self.answers.written(request, answer, reader, was_sent=was_sent)

    def _has_cloud(self, caller: Caller) -> bool:
        return (
            self._cloud.is_up
            if caller.credential_source is CredentialSource.HUB
            else self._cloud.is_reachable
        )

    async def answer(self, wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        """Return the hub's own answer, or raise a StatusError; serve a watch until its end and return None.
        RelayToCloud if the cloud must be asked first."""
        request = OfflineRequest.of(wanted.info, wanted.target, wanted.headers, wanted.body)
        was_sent = wanted.sent > 0
        if await self._may_send(wanted) and self._has_cloud(wanted.caller):
            if not self._sends_minimal_patch(wanted.caller, wanted.info):
                await self.answers.begin_write(wanted.info)
                raise RelayToCloud
            was_sent, client = True, self._clients.relaying(wanted.caller)
            with contextlib.suppress(Unreachable):
                answer = await self._sparing.relay(client, request, [*wanted.headers.items()])
                await self.answers.written(request, answer)
                self.answers.keep_response(wanted.caller, request, answer, self.answers.accepted.count)
                wanted.served.source = "cloud"
                return Answer(answer.body, _end_to_end(answer.headers), answer.status)
        try:
            return await self.answers.answer(wanted, request, stream, was_sent=was_sent)
        except StatusError as error:
            if (
                error.code == 503
                and self._cloud.refusal
                and wanted.caller.credential_source is CredentialSource.HUB
            ):
                raise unavailable(f"{error.message} ({self._cloud.refusal})", RETRY_REFUSED) from None
            raise

    async def _may_send(self, wanted: ClientRequest) -> bool:
        """Whether to send the request: a read again, a write only once, and no write before a pending one of its
        object."""
        if wanted.info.verb == "watch":
            return False  # the hub answers it itself
        if wanted.info.method == "GET":
            return wanted.sent < ATTEMPTS
        return not wanted.sent and await self._writes.flush(wanted.info)


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers of a server's answer without the hop-by-hop headers and Content-Length."""
    left_out = CONNECTION_HEADERS | {b"content-length"}
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower().encode() not in left_out
    )
