"""A list or watch that the hub answers with the cloud's own words, piece by piece, and keeps nothing of."""

from __future__ import annotations

from aiohttp import web

from addons.requests.object_read import ObjectRead
from addons.views.responses import HEADERS
from kube.errors import unavailable
from kube.http.client import Client, Unreachable
from kube.wire.negotiation import METADATA_KIND, Representation

LONGEST = 3600.0
"""Seconds that such a watch may last; kube-apiserver ends one after an hour at the latest."""


async def relayed_read(client: Client, read: ObjectRead, request: web.BaseRequest) -> web.StreamResponse:
    """The cloud's answer to the request's target. StatusError: the cloud's refusal, or 503 where there is no answer."""
    accept = ",".join(_media_type(form, read.verb) for form in read.accepted)
    response = web.StreamResponse(headers=HEADERS)
    try:
        async with client.watch(request.raw_path, query={}, accept=accept, timeout=LONGEST) as stream:
            response.content_type = stream.content_type
            response.enable_chunked_encoding()
            await response.prepare(request)
            async for chunk in stream.chunks:
                await response.write(chunk)
    except Unreachable as error:
        if not response.prepared:
            raise unavailable(f"the cloud cannot be reached: {error}", retry_after=1) from error
        # What has been written is no whole answer, and the client must not take it for one.
        if request.transport is not None:
            request.transport.abort()
    return response


def _media_type(form: Representation, verb: str) -> str:
    if not form.kind:
        return str(form.encoding)
    kind = f"{form.kind}List" if (form.kind, verb) == (METADATA_KIND, "list") else form.kind
    return f"{form.encoding};as={kind};g={form.group};v={form.version}"
