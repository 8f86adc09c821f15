"""Servers of the standard library for tests and for programs under test."""

from __future__ import annotations

import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from threading import Thread
from typing import Self

POLL_INTERVAL = 0.01
"""Seconds within which a server notices that it should stop."""
HOST = "127.0.0.1"


class ServerThread:
    """A thread that serves during the context, and closes the server afterwards."""

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


class HttpServer(ServerThread):
    """A server of HTTP, or HTTPS with a given context, on a free loopback port."""

    def __init__(self, handler: type[Answering], tls: ssl.SSLContext | None = None) -> None:
        server = ThreadingHTTPServer((HOST, 0), handler)
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        super().__init__(server)
        self.port = server.server_port
        self.url = f"http{'s' if tls else ''}://{HOST}:{self.port}"


class Answering(BaseHTTPRequestHandler):
    """A handler that answers every method by `respond`. It does not log: standard error belongs to the test."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def do_CONNECT(self) -> None:
        self.respond()

    def respond(self) -> None:
        raise NotImplementedError

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def body(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, body: bytes, code: int = 200, content_type: str = "application/json") -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
