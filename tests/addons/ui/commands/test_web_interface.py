"""mitmproxy's interface in a browser, of the hub or attached to one, where its port is taken."""

from __future__ import annotations

import errno

import pytest
from mitmproxy.tools import main as programs

from addons.ui.commands.web_interface import run_web


def test_a_port_that_is_taken_is_one_line_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: list[str]) -> None:
        assert arguments == ["-s", "x"]
        raise OSError(
            errno.EADDRINUSE, "Web server failed to listen on 127.0.0.1:8081 with [Errno 98] Address"
        )

    monkeypatch.setattr(programs, "mitmweb", fail)
    with pytest.raises(SystemExit, match=r"8081: Address already in use; .*-- --set web_port=PORT$"):
        run_web(["-s", "x"])
