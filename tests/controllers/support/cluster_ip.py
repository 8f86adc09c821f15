"""A Service's cluster IP as kube-proxy makes it: connections go to the Pods in turn, past those that are gone."""

from __future__ import annotations

import itertools
import select
import socket
from collections import Counter
from socketserver import BaseRequestHandler, ThreadingTCPServer

from tests.cloud.ports import LOOPBACK
from tests.support.server_thread import ServerThread

CHUNK = 64 * 1024


class ClusterIP(ServerThread):
    """A context manager, in which the address answers. The cluster's Services have addresses of loopback."""

    def __init__(self, address: str, port: int, pods: list[int]) -> None:
        """`pods` are the ports on which the Pods serve."""
        self.connections: Counter[int] = Counter()
        """Connections by the port of their Pod."""
        self._turns = itertools.count()
        service = self

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                pod = service.dial(pods)
                if pod is not None:
                    with pod:
                        carry(self.request, pod)

        class Server(ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        super().__init__(Server((address, port), Handler))

    def dial(self, pods: list[int]) -> socket.socket | None:
        """A connection to the next Pod that takes one, None if none does."""
        first = next(self._turns)
        for number in range(len(pods)):
            port = pods[(first + number) % len(pods)]
            try:
                made = socket.create_connection((LOOPBACK, port))
            except OSError:
                continue
            self.connections[port] += 1
            return made
        return None


def carry(client: socket.socket, pod: socket.socket) -> None:
    """Move bytes both ways until one side ends."""
    other = {client: pod, pod: client}
    while True:
        readable, _, _ = select.select(list(other), [], [])
        for side in readable:
            try:
                data = side.recv(CHUNK)
                other[side].sendall(data)
            except OSError:
                return
            if not data:
                return
