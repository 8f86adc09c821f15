"""The addon installs the patches, and a connection is refused where it cannot do its work."""

from __future__ import annotations

import logging

import pytest
from mitmproxy.proxy.layers import http as http_layers

from addons import connections
from addons.connections import PATCHES, Connections
from addons.options import Options
from addons.proxy.patches import Patch
from tests.addons.support.patched import patched


def connections_of_hub() -> Connections:
    return Connections(Options())


@pytest.mark.usefixtures("restored")
def test_all_patches_are_installed() -> None:
    connections_of_hub().load(None)
    assert all(patched(each.place, each.name) is each.replacement for each in PATCHES)


@pytest.mark.usefixtures("restored")
def test_an_unknown_mitmproxy_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    strange = Patch(http_layers, "HttpStream", object(), "(other)", "why", "test")
    monkeypatch.setattr(connections, "PATCHES", (strange,))
    with caplog.at_level(logging.CRITICAL), pytest.raises(SystemExit):
        connections_of_hub().load(None)
    assert "needs mitmproxy 12.2" in caplog.text
