"""A client whose answers a test scripts, for what speaks to one path or two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from kube.http.client import ApiResponse, Client, RawResponse, WatchStream
from kube.http.session import Session


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    server: str
    """The server that the request names; "" for the cloud."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those of a relayed request."""


type Script = Callable[[Asked], Any]
"""The answer: a document, a RawResponse, or the pieces of a watch; or it raises."""


class ScriptedClient(Client):
    """Keeps what it was asked, and answers by the script."""

    def __init__(self, script: Script, asked: list[Asked] | None = None, server: str = "") -> None:
        super().__init__(cast(Session, None), server, {})
        self.script = script
        self.asked: list[Asked] = asked if asked is not None else []

    def with_headers(self, headers: Mapping[str, str], queue: str | None = None) -> ScriptedClient:
        return ScriptedClient(self.script, self.asked, self._server)

    def at(self, base_url: str) -> ScriptedClient:
        return ScriptedClient(self.script, self.asked, base_url)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "",
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = 0.0,
        codings: str = "",
    ) -> ApiResponse:
        asked = Asked(method, path, self._server, query or {}, body or b"", content_type)
        return ApiResponse("application/json", orjson.dumps(self._ask(asked)))

    async def relay(
        self,
        method: str,
        target: str,
        *,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        timeout: float = 0.0,
        is_own: bool = False,
    ) -> RawResponse:
        found = self._ask(Asked(method, target, self._server, headers=dict(headers)))
        assert isinstance(found, RawResponse)
        return found

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = ""
    ) -> AsyncIterator[WatchStream]:
        pieces: AsyncIterator[bytes] = self._ask(Asked("WATCH", path, self._server, query))
        yield WatchStream("application/json", pieces)

    @property
    def _server(self) -> str:
        return self._base_url

    def _ask(self, asked: Asked) -> Any:
        self.asked.append(asked)
        return self.script(asked)
