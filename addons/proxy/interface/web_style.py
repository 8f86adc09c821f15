"""Styles for mitmproxy's web page: complete comments, which mitmproxy truncates, and an event log that follows its
newest line.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from mitmproxy.master import Master
from mitmproxy.tools.web import master as web
from tornado.web import HTTPError, RequestHandler

STATIC = Path(web.__file__).parent / "static"
# mitmproxy draws only the visible lines of the event log, and follows new ones only after a scroll: these rules keep it
# at the newest line. The last rule repeats mitmproxy's style for the path of an intercepted flow.
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
    """Append the hub's rules to mitmweb's style sheet, if `master` is mitmweb's.

    An added route takes precedence over mitmproxy's route for all its static files.
    """
    if isinstance(master, web.WebMaster):
        master.app.add_handlers(".*", [(r"/static/(index-[\w-]+\.css)", StyleSheet)])


class StyleSheet(RequestHandler):
    """Serves mitmweb's style sheet followed by the hub's rules."""

    async def get(self, name: str) -> None:
        try:
            own = await asyncio.to_thread((STATIC / name).read_text)
        except FileNotFoundError:
            raise HTTPError(404) from None
        self.set_header("Content-Type", "text/css")
        await self.finish(own + STYLE)
