"""mitmweb's style sheet with the hub's rules behind its own."""

from __future__ import annotations

import socket

import aiohttp
import pytest
from mitmproxy.options import Options
from mitmproxy.test import taddons
from mitmproxy.tools.web.master import WebMaster
from tornado.httpserver import HTTPServer

from addons.proxy.interface.web_style import STATIC, STYLE, show_comments_whole
from tests.cloud.ports import LOOPBACK


@pytest.mark.parametrize("file", sorted(each.name for each in STATIC.glob("*.css")))
async def test_the_style_sheet_of_the_interface_alone_ends_with_ours(file: str) -> None:
    master, bound = WebMaster(Options(), with_termlog=False), socket.create_server((LOOPBACK, 0))
    port = bound.getsockname()[1]
    bound.setblocking(False)
    show_comments_whole(master)
    server = HTTPServer(master.app)
    server.add_socket(bound)
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{LOOPBACK}:{port}/static/{file}") as answer,
        ):
            assert (answer.status, answer.content_type) == (200, "text/css")
            text = await answer.text()
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{LOOPBACK}:{port}/static/index-none.css") as answer,
        ):
            assert answer.status == 404
    finally:
        server.stop()
        await server.close_all_connections()
    ours = STYLE if file.startswith("index-") else ""
    assert text == (STATIC / file).read_text() + ours


def test_who_has_no_such_list_is_left_alone() -> None:
    with taddons.context() as context:
        show_comments_whole(context.master)
