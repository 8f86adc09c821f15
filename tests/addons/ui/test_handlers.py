"""The admin port's common handling of requests: access, concurrency, and endless responses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

import pytest
from mitmproxy import connection

from addons.telemetry import metrics
from addons.ui import handlers
from addons.ui.handlers import MAX_WAITING, ReportQueue, refuse_others
from kube.errors import StatusError
from tests.addons.support.observed import until


async def test_reports_run_one_at_a_time() -> None:
    reports, running, most = ReportQueue(), 0, 0

    async def report() -> None:
        nonlocal running, most
        async with reports.slot():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(report() for _ in range(5)))
    assert most == 1


async def test_reports_beyond_the_bound_are_refused_until_others_end() -> None:
    reports, go_on = ReportQueue(), asyncio.Event()
    before = metrics.ADMIN_REFUSED.labels("turn")._value.get()

    async def report() -> None:
        async with reports.slot():
            await go_on.wait()

    tasks = [asyncio.create_task(report()) for _ in range(MAX_WAITING + 1)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(StatusError) as caught:
        async with reports.slot():
            pass
    assert (caught.value.code, caught.value.retry_after) == (429, 1)
    assert metrics.ADMIN_REFUSED.labels("turn")._value.get() == before + 1
    tasks[-1].cancel()
    go_on.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with reports.slot():
        pass


def client(peer: tuple[str, int], own: tuple[str, int] = ("127.0.0.1", 1)) -> connection.Client:
    return connection.Client(peername=peer, sockname=own, timestamp_start=0.0)


@pytest.mark.parametrize(
    ("peer", "code"),
    [
        ("127.0.0.1", 0),
        ("127.0.0.9", 0),
        ("::1", 0),
        ("10.0.0.1", 403),
        ("fe80::1%eth0", 403),
        ("0.0.0.0", 403),  # noqa: S104 - nothing is bound
    ],
)
async def test_only_callers_on_this_node_are_accepted(peer: str, code: int) -> None:
    assert await refusal(client((peer, 9))) == code


async def refusal(made: connection.Client, users: Iterable[int] = ()) -> int:
    """Return the status of the refusal; 0 if the client is accepted."""
    try:
        await refuse_others(made, frozenset(users))
    except StatusError as error:
        return error.code
    return 0


async def test_a_connection_whose_user_is_unknown_is_refused() -> None:
    assert await refusal(client(("127.0.0.1", 9)), {os.getuid()}) == 403


@pytest.mark.parametrize(
    ("own_user", "users", "passes"),
    [(True, {999_999}, True), (False, {999_999}, False), (False, {os.getuid()}, True)],
)
async def test_root_the_user_of_the_hub_and_plain_users_are_accepted(
    monkeypatch: pytest.MonkeyPatch, own_user: bool, users: set[int], passes: bool
) -> None:
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid if own_user else 999_998)
    monkeypatch.setattr(handlers, "ROOT", 999_997)
    held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    server = await asyncio.start_server(lambda *streams: held.append(streams), "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await until(lambda: held)
    own, peer = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
    try:
        code = await refusal(client(peer, own), users)
    finally:
        for each in (writer, *(ours for _, ours in held)):
            each.close()
            await each.wait_closed()
        server.close()
    assert code == (0 if passes else 403)
