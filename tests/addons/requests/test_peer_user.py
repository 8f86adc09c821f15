"""The kernel's table of connections: the user of the socket at the other end."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from addons.requests.peer_user import table_of, user_of

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROWS = HEAD + (
    "   0: 0100007F:2815 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1\n"
    "   1: 0100007F:D431 0100007F:2815 01 00000000:00000000 00:00000000 00000000  1000        0 101 1\n"
    "   2: 0100007F:2815 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 102 1\n"
    "   3: 0100007F:D432 0100007F:2815 06 00000000:00000000 03:000013F4 00000000     0        0 0 3\n"
)
OWN = ("127.0.0.1", 10261)


@pytest.mark.skipif(sys.byteorder != "little", reason="the rows are of such a machine")
@pytest.mark.parametrize(
    ("port", "user"), [(0xD431, 1000), (0xD432, None), (0xD433, None)], ids=["open", "closed", "unknown"]
)
def test_rows(port: int, user: int | None) -> None:
    assert user_of(ROWS, ("127.0.0.1", port), OWN) == user


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_real_connection(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        accepted, peer = server.accept()
        with client, accepted:
            table = Path(table_of(host)).read_text()
            assert user_of(table, peer[:2], accepted.getsockname()[:2]) == os.geteuid()
