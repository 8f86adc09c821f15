"""Answers reads from the node's copies while the cloud is away, and warns people of the copies' age."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

from addons.link.health import Cloud
from addons.offline.cached_response import CachedResponse
from addons.offline.offline_reads import OfflineReads
from addons.offline.offline_request import OfflineRequest
from addons.offline.people.cached_discovery import Discovery
from addons.requests.answers import Answer, ClientRequest, ClientStream
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.requests.object_read import OBJECT_VERBS, ObjectRead, parse_read
from addons.requests.offline_policy import USER_TOOLS
from kube.errors import unavailable
from kube.requests.request_info import RequestInfo

DATED_AFTER = timedelta(hours=20)
"""Age from which a warning gives the date as well as the time of day."""


class CopyAnswers:
    """Answers from copies of objects, and from the cached discovery."""

    def __init__(self, objects: OfflineReads, discovery: Discovery, cloud: Cloud) -> None:
        self._objects = objects
        self._discovery = discovery
        self._cloud = cloud

    def relayed(self, info: RequestInfo, answer: CachedResponse) -> None:
        """Record that a client has got the cloud's own answer."""
        self._objects.relayed(info, answer)

    async def watch(
        self,
        identity: CloudIdentity,
        wanted: ClientRequest,
        stream: ClientStream,
        may: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Serve a watch for as long as `may` raises no StatusError."""
        read = _read_of(wanted)
        assert read is not None
        await self._objects.watch(identity.user, wanted.component, read, stream, may)

    async def answer(self, identity: CloudIdentity, wanted: ClientRequest, request: OfflineRequest) -> Answer:
        """Return the node's newest answer to a read; StatusError 503 if it has none."""
        read = _read_of(wanted)
        response = await self._objects.answer(identity, request, read)
        # People see the node's own state: their right to it is known by then.
        is_person = wanted.component in USER_TOOLS
        if response is None and is_person and not identity.is_hub:
            identity = HUB_IDENTITY
            response = await self._objects.answer(identity, request, read)
        if response is None and request.info.type is None:
            response = await self._discovery.answer(request)
        is_partial = response is None and is_person
        if is_partial:
            response = await self._objects.partial_answer(identity, read)
        if response is not None:
            now, away = datetime.now().astimezone(), self._cloud.seconds_away
            since = now - timedelta(seconds=away) if away is not None else None
            heard = self._objects.heard(identity, request.info.type)
            warning = copy_warning(wanted.component, now, heard, since, is_partial=is_partial)
            return replace(response, headers={**response.headers, **warning})
        what = request.info.type.group_resource if request.info.type is not None else request.info.path
        what += f" {request.info.name}" if request.info.name else ""
        raise unavailable(f"the cloud cannot be reached, and the hub has no copy of {what}")


def _read_of(wanted: ClientRequest) -> ObjectRead | None:
    """Return the read that a copy may answer; None for other requests. StatusError for one that no server accepts."""
    if wanted.route.read is not None:  # of the client: a filtered one asks the cloud for another form
        return wanted.route.read
    if wanted.info.type is None or wanted.info.verb not in OBJECT_VERBS:
        return None
    return parse_read(wanted.info, wanted.headers.get("Accept"))


def copy_warning(
    component: str, now: datetime, copied: datetime | None, away: datetime | None, *, is_partial: bool
) -> dict[str, str]:
    """Return the Warning header with the age of an answer from a copy, which kubectl prints.

    None for programs, which would log it at each request.

    `copied` is when the cloud last confirmed the copy, None if this process does not know it. `away` is when the last
    server went down, None while servers answer.
    """
    if component not in USER_TOOLS:
        return {}
    copy = f"copy of {_time(copied, now)}" if copied is not None else "copy"
    since = f" since {_time(away, now)}" if away is not None else ""
    part = ", and the list has this node's objects only" if is_partial else ""
    return {"Warning": f'299 - "{copy}, the cloud is away{since}{part}"'}


def _time(when: datetime, now: datetime) -> str:
    return when.strftime("%H:%M:%S" if now - when < DATED_AFTER else "%Y-%m-%d %H:%M:%S")
