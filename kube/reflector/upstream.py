"""The interface of a server that answers a reflector instead of the cloud, with the same objects at the same
versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kube.http.client import ApiResponse, WatchStream

type Request = Callable[..., Awaitable[ApiResponse]]
"""Sends a request as `Upstream.request` does."""


class Upstream(Protocol):
    """Selects the best of several servers for the lists and watches of one reflector.

    Raises Switched if the reflector must retry at once, at the server that is best now.
    """

    @property
    def is_up(self) -> bool:
        """True if a server other than the cloud is available."""

    @property
    def is_elsewhere(self) -> bool:
        """True if the reflector now reads from a server other than the cloud."""

    @property
    def is_shared(self) -> bool:
        """True if hubs of a pool read this resource from each other, or from a relay."""

    async def leaves_cloud(self) -> bool:
        """Select the server of the next watch; True if it is not the cloud.

        Unless this was called before, a watch at the cloud raises Switched, because the cloud's history must be
        verified first.
        """

    def forget_version(self) -> None:
        """Forget the reflector's version: the cloud was restored from a backup, so the next list may be older."""

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
        """Send a request. `resumes` restricts it to servers that may also serve the next watch."""

    def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str
    ) -> AbstractAsyncContextManager[WatchStream]: ...
