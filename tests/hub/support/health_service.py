"""A local health source, as a site runs one."""

from __future__ import annotations

import json

from tests.support.server_thread import Answering, HttpServer


class HealthService(HttpServer):
    """The site's local health: says which nodes are unhealthy."""

    def __init__(self) -> None:
        self.unhealthy: tuple[str, ...] = ()
        health = self

        class Handler(Answering):
            def respond(self) -> None:
                self.answer(json.dumps({name: {"normal": False} for name in health.unhealthy}).encode())

        super().__init__(Handler)
        self.url += "/localinfo"
