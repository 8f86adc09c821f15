"""Whole answers as aiohttp sends them: one object, or a Status."""

from __future__ import annotations

from aiohttp import web

from kube.errors import StatusError
from kube.wire.encoded_objects import Encoded

HEADERS = {"Cache-Control": "no-cache, private"}
"""On every answer that the hub makes itself, as on kube-apiserver's."""


def object_response(obj: Encoded, status: int = 200) -> web.Response:
    """An object as the whole answer."""
    headers = {**HEADERS, "Content-Type": obj.codec.content_type}
    return web.Response(status=status, body=obj.body(), headers=headers)


def status_response(error: StatusError) -> web.Response:
    """A Status as the whole answer."""
    headers = dict(HEADERS)
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return web.Response(
        status=error.code, body=error.to_json(), content_type="application/json", headers=headers
    )
