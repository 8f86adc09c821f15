"""Ends a server without losing connections that asyncio is accepting or that are still closing."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web


async def end_accepting(listening: socket.socket) -> None:
    """Accept no more connections, and wait until the server has all connections that asyncio has accepted. asyncio
    passes a connection to the server after the TLS handshake. A server that ends before that does not know the
    connection, which then stays open. `_accept_connection2` is asyncio's task for one accepted connection."""
    asyncio.get_running_loop().remove_reader(listening)
    tasks = (each for each in asyncio.all_tasks() if _name(each) == "_accept_connection2")
    if accepted := list(tasks):
        await asyncio.wait(accepted)


async def end_server(runner: web.ServerRunner, listening: socket.socket) -> None:
    """Close a server's port and every connection, as if it were killed. It may have ended already.

    aiohttp closes a connection, and asyncio then waits up to 30 s for the peer to end its TLS. The loop may end before.
    """
    if listening.fileno() >= 0:
        await end_accepting(listening)
    connections = runner.server.connections if runner.server is not None else []
    transports = [each.transport for each in connections if each.transport is not None]
    await runner.cleanup()
    for each in transports:
        each.abort()
    await asyncio.sleep(0)  # asyncio closes their sockets in the next iteration of the loop


def _name(task: asyncio.Task[object]) -> str:
    return getattr(task.get_coro(), "__name__", "")
