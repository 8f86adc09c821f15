"""A server that answers a reflector instead of the cloud, with the same objects at the same versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kube.http.client import ApiResponse, WatchStream

type Request = Callable[..., Awaitable[ApiResponse]]
"""Sends a request as `Upstream.request` does."""


class Upstream(Protocol):
    """Asks the best of several servers for the lists and watches of one reflector.

    It raises Switched where the reflector is to ask again at once, and then reaches the server that is the best.
    """

    @property
    def is_up(self) -> bool:
        """Whether there is a server to ask besides the cloud."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether the reflector does not read from the cloud now."""

    @property
    def is_shared(self) -> bool:
        """Whether hubs of a pool read this from each other, or from a relay."""

    async def goes_elsewhere(self) -> bool:
        """Whether the next watch goes to another server than the cloud; chosen now.

        A watch at the cloud raises Switched before this was asked: the cloud is to prove its history first.
        """

    def forget_version(self) -> None:
        """The cloud was restored from a backup. The next list may be older than the reflector's version."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str,
        codings: str,
        resumes: bool = False,
    ) -> ApiResponse:
        """`resumes`: only a server will do that the next watch may go to."""

    def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str
    ) -> AbstractAsyncContextManager[WatchStream]: ...
