"""An exec plugin runs before its credentials expire and when the cloud refuses them; until then the previous ones stay
in use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from addons.link.identities.plugin_credentials import PluginCredentials
from kube.concurrency.notifier import Notifier
from kube.http.exec_plugin import ExecCredentials, ExecPlugin
from kube.http.kubeconfig import Credentials
from tests.addons.support.observed import until

pytestmark = pytest.mark.looptime


class Plugin:
    """Return one token after another, each valid for a number of seconds; fail where that is 0."""

    def __init__(self, *lives: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.began: list[float] = []
        self._lives: Iterator[float | None] = iter(lives)
        self.is_spent = asyncio.Event()

    def run(self) -> ExecCredentials:
        self.began.append(self.loop.time())
        life = next(self._lives, None)
        if life is None:
            self.loop.call_soon_threadsafe(self.is_spent.set)
        if life == 0:
            raise ValueError("no session")
        expiry = self.loop.time() + life if life else None
        return ExecCredentials(f"token-{len(self.began)}".encode(), b"", b"", expiry)


@asynccontextmanager
async def credentials_of(plugin: Plugin, refused: Notifier) -> AsyncIterator[Credentials]:
    credentials = Credentials()
    clock = asyncio.get_running_loop().time
    keeping = PluginCredentials(credentials.user, cast(ExecPlugin, plugin), refused, clock)
    await keeping.load()
    task = asyncio.create_task(keeping.run())
    try:
        yield credentials
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_credentials_are_renewed_before_they_expire() -> None:
    plugin = Plugin(100.0, 1000.0)
    async with credentials_of(plugin, Notifier()):
        await plugin.is_spent.wait()
    first, second, third = plugin.began
    assert second - first == pytest.approx(90.0, abs=1)
    assert third - second == pytest.approx(900.0, abs=1)


async def test_credentials_without_an_expiry_are_renewed_when_the_cloud_refuses_them() -> None:
    plugin, refused = Plugin(), Notifier()
    async with credentials_of(plugin, refused) as credentials:
        assert credentials.user.bearer == "Bearer token-1"
        await asyncio.sleep(86400)
        assert len(plugin.began) == 1
        plugin.is_spent.clear()
        refused.notify()
        await plugin.is_spent.wait()
        await until(lambda: credentials.user.bearer == "Bearer token-2")


async def test_the_previous_credentials_are_used_while_the_plugin_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin = Plugin(100.0, 0.0, 0.0)
    async with credentials_of(plugin, Notifier()) as credentials:
        await until(lambda: len(plugin.began) == 3, 1000.0)
        assert credentials.user.bearer == "Bearer token-1"
        await plugin.is_spent.wait()
    assert caplog.text.count("the previous credentials stay in use: no session") == 2
