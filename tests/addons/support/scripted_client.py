"""A client whose responses a test scripts, for code that calls one path or two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

from kube.http.client import ApiResponse, RawResponse, WatchStream
from tests.kube.support.answering import AnsweringClient, Asked

type Script = Callable[[Asked], Any]
"""The answer: a document, a RawResponse, or the pieces of a watch; or it raises."""


class ScriptedClient(AnsweringClient):
    """Record the requests, and respond by the script."""

    def __init__(self, script: Script, asked: list[Asked] | None = None, server: str = "") -> None:
        super().__init__(server)
        self.script = script
        self.asked: list[Asked] = asked if asked is not None else []

    def with_headers(self, headers: Mapping[str, str], queue: str | None = None) -> ScriptedClient:
        return ScriptedClient(self.script, self.asked, self._base_url)

    def at(self, base_url: str) -> ScriptedClient:
        return ScriptedClient(self.script, self.asked, base_url)

    async def answer(self, asked: Asked) -> ApiResponse:
        return ApiResponse("application/json", orjson.dumps(self._ask(asked)))

    async def answer_relayed(self, asked: Asked) -> RawResponse:
        found = self._ask(asked)
        assert isinstance(found, RawResponse)
        return found

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = ""
    ) -> AsyncIterator[WatchStream]:
        pieces: AsyncIterator[bytes] = self._ask(Asked("WATCH", path, self._base_url, query))
        yield WatchStream("application/json", pieces)

    def _ask(self, asked: Asked) -> Any:
        self.asked.append(asked)
        return self.script(asked)


__all__ = ["Asked", "ScriptedClient"]
