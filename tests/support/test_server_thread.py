"""A server answers within the `with` statement, and neither before nor after it."""

from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import pytest

from tests.cloud.ports import LOOPBACK
from tests.support.server_thread import Quiet, ServerThread


class Handler(Quiet, BaseHTTPRequestHandler):
    """Answers each request alike."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")


def test_a_server_ends_with_its_thread(capfd: pytest.CaptureFixture[str]) -> None:
    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    with ServerThread(server), urlopen(f"http://{LOOPBACK}:{server.server_port}/") as answer:
        assert answer.read() == b"here"
    with pytest.raises(OSError, match="refused"), socket.create_connection((LOOPBACK, server.server_port)):
        pass
    assert capfd.readouterr().err == ""
