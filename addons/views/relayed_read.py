"""A list or watch that the hub answers with the cloud's own words, piece by piece, and keeps nothing of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from addons.requests.answers import HEADERS, ClientStream
from addons.requests.object_read import ObjectRead
from kube.errors import unavailable
from kube.http.client import Client, Unreachable
from kube.wire.negotiation import Representation

LONGEST = 3600.0
"""Seconds that such a watch may last; kube-apiserver ends one after an hour at the latest."""


class Relay:
    """One such read under way. It ends as soon as the rules filter what it reads, or the cloud is another."""

    def __init__(self, resource: str, is_filtered: Callable[[], bool]) -> None:
        self.resource = resource
        self.is_filtered = is_filtered
        self.time = asyncio.timeout(None)
        self.why = ""

    def end(self, why: str) -> None:
        self.why = why
        self.time.reschedule(asyncio.get_running_loop().time())


class Relays:
    """All such reads under way. The cloud bounds them: each is a stream of the hub's connection."""

    def __init__(self) -> None:
        self._open: dict[Relay, None] = {}

    @contextmanager
    def open(self, resource: str, is_filtered: Callable[[], bool]) -> Iterator[Relay]:
        """`resource` is named as in `endpointslices.discovery.k8s.io`."""
        relay = Relay(resource, is_filtered)
        self._open[relay] = None
        try:
            yield relay
        finally:
            del self._open[relay]

    def end_filtered(self) -> None:
        for relay in list(self._open):
            if relay.is_filtered():
                relay.end("the rules have changed meanwhile")

    def end_former(self, resource: str) -> None:
        """End what is read of a resource: it may be of a client of a former history."""
        for relay in list(self._open):
            if relay.resource == resource:
                relay.end("the cloud was restored from a backup")


async def relayed_read(
    client: Client, read: ObjectRead, target: str, stream: ClientStream, relay: Relay
) -> None:
    """The cloud's answer to the request's target, until `relay` is ended.

    StatusError: the cloud's refusal, or 503 where there is no answer, or none to the end.
    """
    accept = ",".join(map(_media_type, read.accepted))
    try:
        async with (
            relay.time,
            client.watch(target, query={}, accept=accept, timeout=LONGEST) as answer,
        ):
            await stream.begin({**HEADERS, "Content-Type": answer.content_type})
            async for chunk in answer.chunks:
                await stream.write(chunk)
    except (Unreachable, TimeoutError) as error:
        why = relay.why if relay.time.expired() else "the cloud cannot be reached"
        raise unavailable(f"{why}: {error}" if str(error) else why, retry_after=1) from error


def _media_type(form: Representation) -> str:
    return (
        f"{form.encoding};as={form.kind};g={form.group};v={form.version}" if form.kind else str(form.encoding)
    )
