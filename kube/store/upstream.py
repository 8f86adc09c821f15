"""Who answers a reflector in the cloud's place: a server that has the same objects at the same versions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kube.http.client import ApiResponse, WatchStream


class Upstream(Protocol):
    """Asks the best of several servers for the lists and watches of one reflector.

    It raises Switched where the reflector shall go on at once, with the server that is the best then.
    """

    @property
    def is_up(self) -> bool:
        """Whether there is a server to ask, the cloud left aside."""

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str], accept: str, codings: str
    ) -> ApiResponse: ...

    def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str
    ) -> AbstractAsyncContextManager[WatchStream]: ...
