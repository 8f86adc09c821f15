"""A client without a network, whose responses a test returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from kube.http.client import ApiResponse, Client, RawResponse
from kube.http.session import Session
from kube.json_type import Json


@dataclass(frozen=True, slots=True)
class Asked:
    """A recorded request."""

    method: str
    path: str
    server: str
    """The server that the request names; "" for the cloud."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = ""
    accept: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The header fields of a relayed request, or the client's additional ones."""
    timeout: float = 0.0
    """The request's time-out in seconds."""

    @property
    def document(self) -> Json:
        found: Json = json.loads(self.body)
        return found


class AnsweringClient(Client):
    """Answer requests, and relayed ones, by a method."""

    def __init__(self, server: str = "") -> None:
        super().__init__(cast(Session, None), server, {})

    async def answer(self, asked: Asked) -> ApiResponse:
        raise NotImplementedError

    async def answer_relayed(self, asked: Asked) -> RawResponse:
        raise NotImplementedError

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
        body: bytes | None = None,
        content_type: str = "application/json",
        codings: str = "",
        timeout: float = 60.0,
    ) -> ApiResponse:
        sent = (query or {}, body or b"", content_type, accept, self._headers, timeout)
        return await self.answer(Asked(method, path, self._base_url, *sent))

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
        asked = Asked(method, target, self._base_url, headers=dict(headers), timeout=timeout)
        return await self.answer_relayed(asked)
