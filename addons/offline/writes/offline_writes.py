"""Decides which writes the hub accepts while the cloud is away: kubelet's reports and events only.

The hub replays each write that it accepts, except the creation of a mirror pod, which kubelet repeats.
"""

from __future__ import annotations

from collections.abc import Mapping

from addons.offline.offline_request import OfflineRequest
from addons.offline.writes.event_writes import EventWrites
from addons.offline.writes.journal import Journal
from addons.offline.writes.offline_creates import OfflineCreates, mirrored
from addons.offline.writes.replay import Replay, RetryLater
from addons.offline.writes.status_writes import StatusWrites
from addons.requests.answers import Answer
from addons.requests.caller import Caller, CredentialSource
from addons.requests.cloud_identity import CloudIdentity
from addons.requests.offline_policy import (
    is_event,
    is_pod_creation,
    is_registration,
    is_status_write,
    is_token_request,
)
from kube.errors import entity_too_large, unavailable
from kube.requests.request_info import RequestInfo

MAX_WRITE = 3 * 1024 * 1024
"""Bytes of a body; kube-apiserver's own limit."""


class OfflineWrites:
    """Passes each write to the component that accepts it, and knows which writes wait for the cloud."""

    def __init__(
        self, status: StatusWrites, creations: OfflineCreates, journal: Journal, replay: Replay
    ) -> None:
        self._status = status
        self._creations = creations
        self._events = EventWrites(journal)
        self._journal = journal
        self._replay = replay

    def is_pending(self, info: RequestInfo) -> bool:
        """Whether the journal holds writes of this object, which the cloud must get before this one."""
        is_journalled = is_status_write(info) or (is_event(info) and info.verb == "patch")
        return is_journalled and self._journal.is_pending(_path(info))

    async def flush(self, info: RequestInfo) -> bool:
        """Replay the object's pending writes now; return False if the cloud did not accept them."""
        if self.is_pending(info):
            try:
                await self._replay.flush(_path(info))
            except RetryLater:
                return False
        return True

    def cache_created(
        self, identity: str, request: OfflineRequest, headers: Mapping[str, str], body: bytes
    ) -> None:
        """Store the cloud's answer to a creation, if it can answer a later request."""
        self._creations.cache_created(identity, request, headers, body)
        if is_event(request.info) and not identity:
            self._events.cache_event(request)

    async def answer(
        self, caller: Caller, identity: CloudIdentity, request: OfflineRequest, *, was_sent: bool = False
    ) -> Answer:
        """Return the hub's own answer; StatusError 503 if only the cloud can answer.

        `was_sent`: a server may have accepted the write, and its answer was lost.
        """
        info = request.info
        if len(request.body) > MAX_WRITE:
            raise entity_too_large(f"limit is {MAX_WRITE}")
        if request.is_for_cloud:
            raise unavailable(f"the cloud cannot be reached, and only it takes {request.content_type}")
        if is_token_request(info):
            return await self._creations.token(identity.user, request)
        is_dry = "dryRun=" in request.target  # which only the cloud can answer
        if (
            is_event(info)
            and not is_dry
            and identity.is_hub is (caller.credential_source is CredentialSource.HUB)
        ):
            # The caller has this right at the cloud: the node replays for itself, and a token of the user for others.
            accept = self._events.create if info.verb == "create" else self._events.patch
            return await accept(request, identity.user)
        # Statuses are replayed with the hub's identity, so a caller with a token of its own cannot write any.
        if caller.credential_source is CredentialSource.HUB and not is_dry:
            if is_status_write(info):
                return await self._status.accept(request, was_sent=was_sent)
            if is_pod_creation(info):
                return mirrored(request)
            if is_registration(info):
                raise await self._creations.refusal(identity, request)
        raise unavailable("the cloud cannot be reached, and this write needs it")


def _path(info: RequestInfo) -> str:
    assert info.type is not None
    return info.type.path(info.namespace, info.name)
