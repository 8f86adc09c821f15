"""Shows comments whole in mitmproxy's list of flows in the browser, which cuts them after a fixed width."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mitmproxy.master import Master
from mitmproxy.tools.web import master as web
from tornado.web import HTTPError, RequestHandler

STATIC = Path(web.__file__).parent / "static"
# The last line is what mitmproxy does to the path of a flow that is held.
STYLE = """
.flow-table .col-timestamp { width: 190px }
.flow-table .col-comment { width: auto }
.flow-table td.col-comment { text-align: left; white-space: normal; overflow-wrap: anywhere; line-height: 16px }
.flow-table tr.intercepted td.col-comment { color: #ff8000 }
"""


def show_comments_whole(master: Master) -> None:
    """Have mitmweb's style sheet end with ours. For a master of mitmweb; others have none.

    A route that is added comes before mitmproxy's own for all its static files.
    """
    if isinstance(master, web.WebMaster):
        master.app.add_handlers(".*", [(r"/static/(index-[\w-]+\.css)", StyleSheet)])


class StyleSheet(RequestHandler):
    """mitmweb's, and ours."""

    async def get(self, name: str) -> None:
        try:
            own = await asyncio.to_thread((STATIC / name).read_text)
        except FileNotFoundError:
            raise HTTPError(404) from None
        self.set_header("Content-Type", "text/css")
        await self.finish(own + STYLE)
