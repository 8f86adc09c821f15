"""A Service's cluster IP as kube-proxy implements it: connections alternate between the Pods, except stopped ones."""

from __future__ import annotations

import itertools
import socket
from collections import Counter
from typing import Self

from tests.cloud.ports import LOOPBACK
from tests.support.relay import end, relay


class ClusterIP:
    """A cluster IP as a context manager. The cluster's Services have loopback addresses."""

    def __init__(self, address: str, port: int, pods: list[int]) -> None:
        """`pods` are the ports on which the Pods serve."""
        self.connections: Counter[int] = Counter()
        """Connections by the port of their Pod."""
        self._pods = pods
        self._numbers = itertools.count()
        self._listener = socket.create_server((address, port))

    def __enter__(self) -> Self:
        relay(self._listener, self._dial)
        return self

    def __exit__(self, *_: object) -> None:
        end(self._listener)

    def _dial(self) -> socket.socket:
        """Connect to the next Pod that accepts; OSError if none does."""
        first = next(self._numbers) % len(self._pods)
        for port in (*self._pods[first:], *self._pods[:first]):
            try:
                made = socket.create_connection((LOOPBACK, port))
            except OSError:
                continue
            self.connections[port] += 1
            return made
        raise ConnectionRefusedError
