"""The hub's one addon calls the hooks of its parts in their order, and ends each part."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mitmproxy.exceptions import OptionsError
from mitmproxy.test import taddons, tflow

from addons.proxy.hub_addon import HubAddon
from kube.errors import forbidden


class Part:
    """Notes that it was called, after it does what it was told."""

    def __init__(self, name: str, calls: list[str], error: Exception | None = None) -> None:
        self.name = name
        self._calls = calls
        self._error = error

    def _call(self, hook: str) -> None:
        self._calls.append(f"{self.name}.{hook}")
        if self._error is not None:
            raise self._error

    def configure(self, _updated: set[str]) -> None:
        self._call("configure")

    def requestheaders(self, _flow: object) -> None:
        self._call("requestheaders")

    async def response(self, _flow: object) -> None:
        await asyncio.sleep(0)
        self._call("response")

    def client_connected(self, _client: object) -> None:
        self._call("client_connected")

    def done(self) -> None:
        self._call("done")


@pytest.fixture
def calls() -> list[str]:
    return []


async def test_hooks_are_called_in_order(calls: list[str]) -> None:
    made: Any = HubAddon([Part("first", calls), object(), Part("second", calls)])
    with taddons.context(made):
        await made.requestheaders(tflow.tflow())
        await made.response(tflow.tflow(resp=True))
        await made.client_connected(tflow.tclient_conn())
        made.done()
    assert calls == [
        f"{part}.{hook}"
        for hook in ("requestheaders", "response", "client_connected", "done")
        for part in ("first", "second")
    ]


def test_it_has_the_hooks_of_its_parts_and_no_others(calls: list[str]) -> None:
    made = HubAddon([Part("one", calls)])
    assert not hasattr(made, "request")
    assert not hasattr(made, "server_connect")


async def test_a_refused_request_comes_to_no_other_part(calls: list[str]) -> None:
    made: Any = HubAddon([Part("refusing", calls, forbidden("no")), Part("next", calls)])
    flow = tflow.tflow()
    await made.requestheaders(flow)
    assert flow.response is not None
    assert calls == ["refusing.requestheaders"]
    await made.response(flow)
    assert calls[1:] == ["refusing.response", "next.response"], "each may count what it began"


def test_a_refused_option_is_the_callers_to_handle(calls: list[str]) -> None:
    made = HubAddon([Part("refusing", calls, OptionsError("no")), Part("next", calls)])
    with pytest.raises(OptionsError):
        made.configure({"hub_node"})
    assert calls == ["refusing.configure"]


def test_each_part_ends(calls: list[str], caplog: pytest.LogCaptureFixture) -> None:
    HubAddon([Part("failing", calls, ValueError("on purpose")), Part("next", calls)]).done()
    assert calls == ["failing.done", "next.done"]
    assert "on purpose" in caplog.text
