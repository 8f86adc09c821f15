"""Sends a reflector's requests for the objects of a list-watch, or for their version, number or names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kube.differences.records import CODING
from kube.errors import REFUSALS, StatusError
from kube.http.client import GZIP, ApiResponse
from kube.packed_text import StoredText
from kube.reflector.list_pages import read_names, read_pages, read_version
from kube.reflector.list_watch import ListWatch
from kube.reflector.upstream import Request
from kube.store.store import Key
from kube.wire.codec import Codec, ListPage
from kube.wire.encoding import Encoding

LIST_CODINGS = f"{CODING},zstd,{GZIP}"
"""Accept-Encoding of a list. A hub answers with zstd to a client that accepts differences; kube-apiserver supports
only gzip."""
MANY_NAMES = 300
"""From this number of objects on, names are requested in JSON. kube-apiserver compresses only responses over 128 KiB,
and compressed JSON has less than a third of the bytes of protobuf."""

QUIET_NAMESPACE = "kube-node-lease"
"""A namespace of each cluster that contains only Leases."""


class Questions:
    """The requests of one list-watch. Each raises the errors of `kube.reflector.list_pages.read_pages`."""

    def __init__(self, list_watch: ListWatch) -> None:
        self._list_watch = list_watch
        self.warning = ""
        """The cloud's `Warning` headers of the last list or watch."""

    async def objects(
        self, request: Request, at: int, came: Callable[[int], None]
    ) -> tuple[bool, Codec, list[ListPage[StoredText]]]:
        """List at version `at`; at the current version (first result True) if the server no longer has it, or for 0.

        `came` as in `read_pages`.
        """
        ask = partial(self._ask_objects, request)
        if at:
            try:
                return False, *await read_pages(ask, self._exactly(at), came)
            except StatusError as error:
                if error.code in REFUSALS - {400}:
                    raise
        return True, *await read_pages(ask, self._list_watch.query, came)

    async def version(self, request: Request, *, is_namespaced: bool = False) -> int:
        """The server's current version. All namespaces have the same, so an empty namespace costs the fewest bytes."""
        wanted = self._list_watch
        if is_namespaced and not wanted.namespace:
            wanted = wanted._replace(namespace=QUIET_NAMESPACE)
        return (await read_version(partial(self._ask, request, wanted=wanted), wanted.query))[0]

    async def count(self, request: Request) -> tuple[int, int | None]:
        """The server's current version, and the number of objects, None if the server does not give it."""
        return await read_version(partial(self._ask, request), self._list_watch.query)

    async def count_at(self, request: Request, version: int) -> int | None:
        """The number of objects at a version; None if the server no longer has that version, or does not have it
        yet."""
        try:
            found = await read_version(partial(self._ask, request), self._exactly(version))
        except StatusError as error:
            if error.code not in (400, 410, 504):
                raise
            return None
        return found[1] if found[0] == version else None

    async def names(self, request: Request, about: int) -> tuple[int, dict[Key, int]]:
        """The server's current version, and the version of each object by name. `about` is the expected number, 0 if
        unknown.

        The cloud can send the names of every kind in protobuf, a leader only in the encoding of its store.
        """
        encoding = self._list_watch.encoding
        if about:
            encoding = Encoding.PROTOBUF if about < MANY_NAMES else Encoding.JSON
        asks = self._list_watch._replace(encoding=encoding)
        return await read_names(partial(self._ask, request, wanted=asks), self._list_watch.query)

    def _exactly(self, version: int) -> dict[str, str]:
        exact = {"resourceVersion": str(version), "resourceVersionMatch": "Exact"}
        return {**self._list_watch.query, **exact}

    async def _ask_objects(self, request: Request, query: Mapping[str, str]) -> ApiResponse:
        wanted = self._list_watch
        accept = wanted.accept_as("PartialObjectMetadataList")
        answer = await request("GET", wanted.path, query=query, accept=accept, codings=LIST_CODINGS)
        self.warning = answer.warning
        return answer

    async def _ask(
        self, request: Request, query: Mapping[str, str], wanted: ListWatch | None = None
    ) -> ApiResponse:
        asks = wanted or self._list_watch
        return await request("GET", asks.path, query=query, accept=asks.accept_names, codings=GZIP)
