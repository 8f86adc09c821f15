"""Writes while the cloud is gone: kubelet's reports are taken, what else is written waits for the cloud.

Nothing is taken that is not brought to the cloud afterwards, but for mirror pods, which kubelet makes anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from addons.offline.offline_request import OfflineRequest
from addons.offline.writes.event_writes import take_event, take_event_patch
from addons.offline.writes.journal import Journal
from addons.offline.writes.registration import Registration
from addons.offline.writes.replay import Later, Replay
from addons.offline.writes.status_writes import StatusWrites
from addons.offline.writes.tokens import Tokens
from addons.requests.caller import Lending
from addons.requests.offline_policy import (
    is_event,
    is_pod_creation,
    is_registration,
    is_status_write,
    is_token_request,
)
from addons.requests.request_context import RequestContext
from kube.errors import entity_too_large, unavailable
from kube.requests.request_info import RequestInfo

MAX_BODY = 3 * 1024 * 1024
"""Bytes, as kube-apiserver takes."""
MIRROR = "kubernetes.io/config.mirror"
"""On pods that only show what kubelet runs from its own files."""


class OfflineWrites:
    """Sends each write to what takes it, and knows what the cloud has not got yet."""

    def __init__(
        self,
        status: StatusWrites,
        tokens: Tokens,
        registration: Registration,
        journal: Journal,
        replay: Replay,
    ) -> None:
        self._tokens = tokens
        self._registration = registration
        self._status = status
        self._journal = journal
        self._replay = replay

    def owes(self, info: RequestInfo) -> bool:
        """Whether the node took a write of this object that the cloud does not have yet: a later one comes after."""
        return is_status_write(info) and _path(info) in self._journal.statuses

    async def settled(self, info: RequestInfo) -> bool:
        """Whether the cloud has all that the node took of this object, now at the latest."""
        if self.owes(info):
            try:
                await self._replay.settle(_path(info))
            except Later:
                return False
        return True

    def keep(self, identity: str, asked: OfflineRequest, headers: Mapping[str, str], body: bytes) -> None:
        """Copy what the cloud made of a creation."""
        if is_token_request(asked.info):
            self._tokens.keep(identity, asked, headers, body)
        elif is_registration(asked.info):
            self._registration.keep(identity, asked, headers, body)

    async def answer(self, context: RequestContext, identity: str, asked: OfflineRequest) -> web.Response:
        """The node's answer; StatusError 503 where the cloud is needed."""
        info = asked.info
        if len(asked.body) > MAX_BODY:
            raise entity_too_large(f"limit is {MAX_BODY}")
        if is_token_request(info):
            return await self._tokens.take(identity, asked)
        # Who writes with a token of its own would be replayed with the hub's rights; a trial is only for the cloud.
        if context.caller.lending is Lending.HUB and "dryRun=" not in asked.target:
            if is_status_write(info):
                return await self._status.take(asked)
            if is_event(info):
                take = take_event if info.verb == "create" else take_event_patch
                return await take(asked, self._journal)
            if is_pod_creation(info):
                return _mirrored(asked)
            if is_registration(info):
                raise await self._registration.refuse(identity, asked)
        raise unavailable("the cloud cannot be reached, and this write needs it")


def _mirrored(asked: OfflineRequest) -> web.Response:
    codec, obj = asked.named("Pod")
    if MIRROR not in obj.annotations:
        raise unavailable("the cloud cannot be reached, and only it creates pods")
    return asked.echo(codec, obj, 201)


def _path(info: RequestInfo) -> str:
    assert info.type is not None
    return info.type.path(info.namespace, info.name)
