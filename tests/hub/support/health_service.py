"""A local health source, as a site runs one."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.cloud.ports import LOOPBACK
from tests.support.server_thread import Quiet, ServerThread


class HealthService(ServerThread):
    """The site's local health: says which nodes are unhealthy."""

    def __init__(self) -> None:
        self.unhealthy: tuple[str, ...] = ()
        health = self

        class Handler(Quiet, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({name: {"normal": False} for name in health.unhealthy}).encode())

        server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        super().__init__(server)
        self.url = f"http://{LOOPBACK}:{server.server_port}/localinfo"
