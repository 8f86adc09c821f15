"""The messages to systemd, on a socket of each kind, and sockets that nobody reads."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from addons.startup.service_manager import ALIVE, READY, STOPPING, notify, stay_alive


@pytest.mark.parametrize("abstract", [False, True])
def test_states_reach_the_socket(tmp_path: Path, abstract: bool) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path if abstract else path)
        manager.settimeout(10)
        for state in (READY, STOPPING):
            notify(state, {"NOTIFY_SOCKET": f"@{path}" if abstract else path})
            assert manager.recv(100).decode() == state


@pytest.mark.looptime
async def test_the_watchdog_hears_of_the_loop_twice_in_its_time(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        given = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "120000000"}
        for environment in ({}, given | {"WATCHDOG_PID": "1"}):
            await stay_alive(environment)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stay_alive(given | {"WATCHDOG_PID": str(os.getpid())}), 179)
        assert [manager.recv(100).decode() for _ in range(3)] == [ALIVE] * 3
        with pytest.raises(BlockingIOError):
            manager.recv(100)


def test_without_a_service_manager_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    notify(READY, {})
    assert not caplog.records


def test_a_socket_that_is_gone_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notify(READY, {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert "cannot be told READY=1" in caplog.text
