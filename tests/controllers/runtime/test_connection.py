"""The manager's connections: replaced when the account changes, while open requests continue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controllers.runtime import connection
from controllers.runtime.connection import AccountSession, connect, kubeconfig_paths
from kube.errors import StatusError
from tests.controllers.support.plain_account import PlainAccount

PATIENCE = 30.0
"""The time limit in seconds for steps that take milliseconds."""


class Cloud:
    """A cloud that records callers, refuses one token and all cookies, and sends "more" in an open watch on request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []
        """(Authorization, User-Agent, the client's port) of each request."""
        self.refused = ""
        self.more = asyncio.Event()
        app = web.Application()
        app.add_routes([web.get("/x", self._answer), web.get("/watch", self._watch)])
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return f"http://{self.server.host}:{self.server.port}"

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        assert not request.cookies
        who = request.headers.get("Authorization", "")
        port = request.transport.get_extra_info("peername")[1]
        self.asked.append((who, request.headers["User-Agent"], port))
        status = 401 if who and who == self.refused else 200
        return web.Response(status=status, text="{}", headers={"Set-Cookie": "a=b"})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b"first")
        await self.more.wait()
        await response.write(b"more")
        return response


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    made = Cloud()
    async with made.server:
        yield made


@pytest.fixture(autouse=True)
def at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REFRESH_INTERVAL", 0.0)
    monkeypatch.setattr(connection, "REFUSED_INTERVAL", 0.0)


def test_a_kubeconfig_is_found_as_by_controller_runtime(tmp_path: Path) -> None:
    pod, home = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {"HOME": str(tmp_path)}
    named = {"KUBECONFIG": "/a:/b"}
    default = tmp_path / ".kube" / "config"
    default.parent.mkdir()
    with pytest.raises(ValueError, match="--kubeconfig"):
        kubeconfig_paths(None, home)
    default.touch()
    for given, environment, paths in (
        (Path("/flag"), {**named, **pod, **home}, "/flag"),
        (None, {**named, **pod, **home}, "/a:/b"),
        (None, {**pod, **home}, ""),
        (None, home, str(default)),
    ):
        assert kubeconfig_paths(given, environment) == paths


async def test_a_watch_continues_while_new_credentials_open_new_connections(cloud: Cloud) -> None:
    account = PlainAccount(cloud.url, "old")
    async with AccountSession(account) as session:
        client = connect(session, "me")
        await client.request("GET", "/x")
        async with client.watch("/watch", query={}, accept="application/json", timeout=PATIENCE) as stream:
            assert await anext(stream.chunks) == b"first"
            account.next_token = "new"
            async with asyncio.timeout(PATIENCE):
                while cloud.asked[-1][0] != "Bearer new":
                    await client.request("GET", "/x")
            # The next request finds no free connection with the old credentials.
            ports = {port for who, _, port in cloud.asked if who == "Bearer old"}
            await client.request("GET", "/x")
            assert cloud.asked[-1][2] not in ports
            cloud.more.set()
            assert await anext(stream.chunks) == b"more"


async def test_a_401_triggers_a_refresh_of_the_account_at_once(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REFRESH_INTERVAL", 1e9)
    account = PlainAccount(cloud.url, "old")
    async with AccountSession(account) as session:
        client = connect(session, "me")
        await client.request("GET", "/x")
        assert account.refreshes == []
        cloud.refused, account.next_token = "Bearer old", "new"
        async with asyncio.timeout(PATIENCE):
            while cloud.asked[-1][0] != "Bearer new":
                with contextlib.suppress(StatusError):
                    await client.request("GET", "/x")
        assert account.refreshes == [True]


async def test_an_unreadable_account_leaves_the_former_one_in_use(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    account = PlainAccount(cloud.url, "t")
    account.broken = True
    async with AccountSession(account) as session:
        client = connect(session, "me")
        async with asyncio.timeout(PATIENCE):
            while len(account.refreshes) < 2:
                await client.request("GET", "/x")
    assert {who for who, _, _ in cloud.asked} == {"Bearer t"}
    assert "the previous credentials stay in use: broken" in caplog.text
