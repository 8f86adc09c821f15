"""Servers of the standard library that tests and programs under test talk to."""

from __future__ import annotations

from socketserver import BaseServer
from threading import Thread
from typing import Self

POLL_INTERVAL = 0.01
"""Seconds within which a server notices that it is to stop."""


class ServerThread:
    """A thread that serves within the `with` statement, and closes the server behind it."""

    def __init__(self, server: BaseServer) -> None:
        self._server = server
        self._thread = Thread(target=server.serve_forever, kwargs={"poll_interval": POLL_INTERVAL})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Quiet:
    """Keeps a handler of HTTP from logging: standard error belongs to the test."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""
