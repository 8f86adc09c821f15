"""mitmproxy's web interface, called like by the browser: the flows of a hub, and the effects of its buttons."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from mitmproxy import http
from mitmproxy.io import FlowReader

from kube.json_type import Json
from tests.cloud.ports import LOOPBACK
from tests.hub.support.process import SLACK

PASSWORD = "a-password-of-the-test"
XSRF = "00" * 16
"""The token that the interface requires both in a cookie and in a header."""


def flags(port: int) -> list[str]:
    """Return the flags of a mitmweb for a `Mitmweb` client."""
    options = {"web_port": str(port), "web_password": PASSWORD, "web_open_browser": "false"}
    return [part for name, value in options.items() for part in ("--set", f"{name}={value}")]


def flows_in(file: Path) -> list[http.HTTPFlow]:
    """Return the flows in a file of mitmproxy, as mitmproxy loads them."""
    with file.open("rb") as stream:
        return [flow for flow in FlowReader(stream).stream() if isinstance(flow, http.HTTPFlow)]


def is_over(flow: Any) -> object:
    return (flow.get("response") or {}).get("timestamp_end")


class Mitmweb:
    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://{LOOPBACK}:{port}"

    async def ask(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {PASSWORD}"}
        async with self._session.get(self._url + path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def change(self, method: str, path: str, body: Json | None = None) -> tuple[int, str]:
        """Act like a button; return status and text of the response."""
        headers = {
            "Authorization": f"Bearer {PASSWORD}",
            "X-XSRFToken": XSRF,
            "Cookie": f"_mitmproxy_xsrf={XSRF}",
        }
        async with self._session.request(method, self._url + path, headers=headers, json=body) as answer:
            return answer.status, await answer.text()

    async def flow(self, path: str, is_so: Callable[[Any], object] = is_over) -> Any:
        """Return the flow of a request once it has ended, or once `is_so` holds; the interface offers only polling."""
        async with asyncio.timeout(SLACK):
            while True:
                with contextlib.suppress(aiohttp.ClientError):  # the flow has not started
                    for flow in await self.ask("/flows"):
                        if flow["request"]["path"] == path and is_so(flow):
                            return flow
                await asyncio.sleep(0.05)

    async def held(self, path: str, what: str = "request") -> Any:
        """Return a flow whose `request` or `response` is intercepted."""
        has_answer = what == "response"
        return await self.flow(
            path, lambda flow: flow["intercepted"] and bool(flow.get("response")) is has_answer
        )

    async def edit(self, path: str, what: str, edit: Json) -> None:
        """Edit the intercepted `request` or `response` of a flow, and resume it."""
        flow = await self.held(path, what)
        status, text = await self.change("PUT", f"/flows/{flow['id']}", {what: edit})
        assert status == 200, text
        await self.change("POST", f"/flows/{flow['id']}/resume")
