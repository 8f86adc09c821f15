"""The kernel's table of connections: the user of the socket at the other end."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from addons.requests import peer_user as peer_users
from addons.requests.peer_user import peer_user

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROWS = HEAD + (
    "   0: 0100007F:2815 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1\n"
    "   1: 0100007F:D431 0100007F:2815 01 00000000:00000000 00:00000000 00000000  1000        0 101 1\n"
    "   2: 0100007F:2815 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 102 1\n"
    "   3: 0100007F:D432 0100007F:2815 06 00000000:00000000 03:000013F4 00000000     0        0 0 3\n"
)
OWN = ("127.0.0.1", 10261)


@pytest.mark.skipif(sys.byteorder != "little", reason="the rows are of such a machine")
async def test_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    table.write_text(ROWS)
    monkeypatch.setitem(peer_users.TABLES, 4, str(table))
    for port, user in (0xD431, 1000), (0xD432, None), (0xD433, None):
        assert await peer_user(("127.0.0.1", port), OWN) == user, "open, closed, unknown"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_real_connection(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        accepted, peer = server.accept()
        with client, accepted:
            assert asyncio.run(peer_user(peer[:2], accepted.getsockname()[:2])) == os.geteuid()


async def test_who_asks_while_the_table_is_read_gets_the_next_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """3,000 connections that were broken off once took 24 MB, and 18,000 took 230 MB: each waited for its own read."""
    table = tmp_path / "tcp"
    os.mkfifo(table)
    monkeypatch.setitem(peer_users.TABLES, 4, str(table))
    asked = [asyncio.create_task(peer_user(("127.0.0.1", 0xD431), OWN), name="first")]
    # A writer opens the pipe when the reader has: the first read has begun.
    first = await asyncio.to_thread(table.open, "w")
    asked += [asyncio.create_task(peer_user(("127.0.0.1", 0xD431), OWN), name="later") for _ in range(1000)]
    await asyncio.sleep(0)
    asked[1].cancel()
    first.close()
    assert await asked[0] is None, "the table was empty"
    second = await asyncio.to_thread(table.open, "w")
    second.write(ROWS)
    second.close()
    found = await asyncio.gather(*asked[1:], return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [1000] * 999, (
        "one read served all of them, and one that left took nothing from the others"
    )
