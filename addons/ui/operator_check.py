"""Decides who may see and do what is the operator's of this node: objects, the log, drills."""

from __future__ import annotations

import os
from ipaddress import ip_address

from aiohttp import web
from aiohttp.typedefs import Handler

from addons.requests.peer_user import peer_user
from addons.ui.handlers import HUB
from kube.errors import StatusError, forbidden

ROOT = 0


def for_operator(handler: Handler) -> Handler:
    """A handler that answers the operator alone; StatusError as `refuse_others`."""

    async def guarded(request: web.Request) -> web.StreamResponse:
        await refuse_others(request, request.app[HUB].settings.plain_users)
        return await handler(request)

    return guarded


async def comes_from_operator(request: web.Request) -> bool:
    """Whether `refuse_others` refuses nobody."""
    try:
        await refuse_others(request, request.app[HUB].settings.plain_users)
    except StatusError:
        return False
    return True


async def refuse_others(request: web.Request, plain_users: frozenset[int]) -> None:
    """StatusError 403 for a caller on another machine, and for a user whom the plain port refuses, too.

    Root and the hub's own user may always.
    """
    transport = request.transport
    if transport is None:
        raise forbidden("the connection is gone")
    peer, own = transport.get_extra_info("peername")[:2], transport.get_extra_info("sockname")[:2]
    if not ip_address(peer[0].partition("%")[0]).is_loopback:
        raise forbidden("this is for the operator of the node: ask on the node, at a loopback address")
    if not plain_users:
        return
    if await peer_user(peer, own) not in plain_users | {ROOT, os.getuid()}:
        raise forbidden("this page is not for your user of this node")
