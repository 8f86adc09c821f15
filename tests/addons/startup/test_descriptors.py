"""The limit on descriptors is as high as it may be, and few lines in the log say that there are none left."""

from __future__ import annotations

import asyncio
import logging
import resource
from types import SimpleNamespace
from typing import Any

import pytest

from addons.startup import descriptors
from addons.startup.descriptors import quieten_accept, raise_descriptor_limit


def test_the_soft_limit_is_raised_as_far_as_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        descriptors,
        "resource",
        SimpleNamespace(
            getrlimit=lambda _: (1024, 4096),
            setrlimit=lambda _, limits: asked.append(limits),
            RLIMIT_NOFILE=resource.RLIMIT_NOFILE,
            RLIM_INFINITY=resource.RLIM_INFINITY,
        ),
    )
    assert raise_descriptor_limit() == 4096
    assert asked == [(4096, 4096)]


async def test_what_cannot_be_accepted_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    loop, others, now = asyncio.get_running_loop(), [], 0.0
    loop.set_exception_handler(lambda _, context: others.append(context["message"]))
    quieten_accept(loop, lambda: now)
    with caplog.at_level(logging.ERROR):
        for moment in (0.0, 1.0, 59.0, 61.0):
            now = moment
            loop.call_exception_handler(
                {"message": "socket.accept() out of system resource", "exception": "x"}
            )
        loop.call_exception_handler({"message": "another"})
    assert len(caplog.records) == 2
    assert others == ["another"]
