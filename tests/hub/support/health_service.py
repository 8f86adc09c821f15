"""A local health source, as a site runs one."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.cloud.ports import LOOPBACK


class HealthService:
    """The site's local health: says which nodes are unhealthy."""

    def __init__(self) -> None:
        self.unhealthy: tuple[str, ...] = ()
        health = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({name: {"normal": False} for name in health.unhealthy}).encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Standard error is the test's."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/localinfo"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
