"""The address of mitmproxy's web interface, as a person opens it."""

from __future__ import annotations

from urllib.parse import quote

from mitmproxy.master import Master

from addons.ui.flows.annotations import DEFAULT_FILTER


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
