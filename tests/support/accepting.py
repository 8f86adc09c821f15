"""Ends a server of asyncio without losing connections that are on their way from its port to its protocol."""

from __future__ import annotations

import asyncio
import socket


async def end_accepting(listening: socket.socket) -> None:
    """Accept no more connections, and return when the server has all those that asyncio has accepted.

    asyncio gives a connection to the server after the handshake of TLS. A server that ends before knows nothing of the
    connection, which then stays open for ever. `_accept_connection2` is asyncio's task for one accepted connection.
    """
    asyncio.get_running_loop().remove_reader(listening)
    tasks = (each for each in asyncio.all_tasks() if _name(each) == "_accept_connection2")
    if accepted := list(tasks):
        await asyncio.wait(accepted)


def _name(task: asyncio.Task[object]) -> str:
    return getattr(task.get_coro(), "__name__", "")
