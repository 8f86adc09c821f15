"""Styles of mitmproxy's page in the browser: full comments, which it cuts, and the event log at its newest line."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mitmproxy.master import Master
from mitmproxy.tools.web import master as web
from tornado.web import HTTPError, RequestHandler

STATIC = Path(web.__file__).parent / "static"
# The event log stays at its newest line: mitmproxy draws the visible lines alone, and follows only after a scroll.
# The last line is mitmproxy's style for the path of a held flow.
STYLE = """
.eventlog { flex-direction: column-reverse; overflow-y: scroll }
.eventlog > div { order: 1; position: sticky; top: 0; z-index: 1 }
.eventlog > pre { flex: none; overflow: visible }
.flow-table .col-timestamp { width: 190px }
.flow-table .col-comment { width: auto }
.flow-table td.col-comment { text-align: left; white-space: normal; overflow-wrap: anywhere; line-height: 16px }
.flow-table tr.intercepted td.col-comment { color: #ff8000 }
"""


def show_full_comments(master: Master) -> None:
    """Append our rules to mitmweb's style sheet. For a master of mitmweb; others have none.

    An added route comes before mitmproxy's own for all its static files.
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
