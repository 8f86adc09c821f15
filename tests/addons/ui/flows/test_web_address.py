"""The address that a person opens: with its token, and with the filter in the field of the page."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from mitmproxy.test import taddons
from mitmproxy.tools.web.webaddons import WebAddon, WebAuth

from addons.ui.flows.annotations import DEFAULT_FILTER
from addons.ui.flows.web_address import web_address


def test_the_address_has_the_token_and_the_filter() -> None:
    with taddons.context(WebAddon(), WebAuth()) as context:
        found = urlsplit(web_address(context.master))
        assert (found.hostname, found.port) == ("127.0.0.1", 8081)
        (token,) = parse_qs(found.query)["token"]
        assert len(token) >= 32
        assert parse_qs(found.fragment.partition("?")[2])["s"] == [DEFAULT_FILTER]


def test_a_password_is_not_told() -> None:
    with taddons.context(WebAddon(), WebAuth()) as context:
        context.options.update(web_password="my own")
        assert "my" not in web_address(context.master)


def test_without_a_web_interface_there_is_none() -> None:
    with taddons.context() as context:
        assert web_address(context.master) == ""
