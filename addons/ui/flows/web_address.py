"""What a person sees first of mitmproxy's interface: the address of the one in the browser, its columns, the filter."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from mitmproxy import ctx

from addons.ui.flows.annotations import DEFAULT_FILTER, component_of

if TYPE_CHECKING:
    from mitmproxy.master import Master

WEB_COLUMNS = ["comment", "status", "size"]
"""What mitmproxy shows of a flow in the browser. The comment, which takes all room, ends with method and path."""


def begin_interface(master: Master) -> None:
    """Show components or whole comments in the list of flows, and say at the terminal of mitmweb where to look.

    The log, which others may read, never has the token.
    """
    if master.addons.get("consoleaddon") is not None:
        from addons.proxy.interface.console_list import list_components  # noqa: PLC0415 - imports the console

        list_components(master, component_of)
    if address := web_address(master):
        from addons.proxy.interface.web_style import show_comments_whole  # noqa: PLC0415 - imports mitmweb

        show_comments_whole(master)
        print(f"edgehub: open {address}", flush=True)


def choose_first_view() -> None:
    """Set what the person has not set."""
    is_web = ctx.master.addons.get("webauth") is not None
    # The browser has its filter in the address, where a person sees it and takes it away.
    defaults = {"web_columns": WEB_COLUMNS} if is_web else {"view_filter": DEFAULT_FILTER}
    for name, value in defaults.items():
        if name in ctx.options and getattr(ctx.options, name) == ctx.options.default(name):
            ctx.options.update(**{name: value})


def web_address(master: Master) -> str:
    """The URL with its token and with the hub's filter of flows; "" where there is no web interface.

    A password that the operator has set is not in it. The filter is in the fragment: mitmproxy's page shows it in its
    search field, where a person takes it away.
    """
    auth = master.addons.get("webauth")
    if auth is None:
        return ""
    address: str = auth.web_url
    return f"{address}#/flows?s={quote(DEFAULT_FILTER, safe='')}"
