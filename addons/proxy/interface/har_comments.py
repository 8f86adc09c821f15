"""HAR files of an interface, by mitmproxy's own addon, with the comment of each flow, which mitmproxy leaves out."""

from __future__ import annotations

from typing import Any

from mitmproxy import http
from mitmproxy.addonmanager import Loader
from mitmproxy.addons import savehar
from mitmproxy.connection import Server
from mitmproxy.master import Master

NAME = "savehar"


def comment_hars(master: Master) -> None:
    """Put the addon below in the place of mitmproxy's, where the master has that."""
    manager, own = master.addons, master.addons.get(NAME)
    if type(own) is not savehar.SaveHar:
        return
    del manager.lookup[NAME]
    manager.chain[manager.chain.index(own)] = manager.register(CommentedHar())


class CommentedHar(savehar.SaveHar):
    """HAR 1.2 has a comment for each entry (softwareishard.com/blog/har-12-spec, "entries")."""

    name = NAME

    def load(self, loader: Loader) -> None:
        """Do nothing: mitmproxy's own has declared the options."""

    def flow_entry(self, flow: http.HTTPFlow, servers_seen: set[Server]) -> dict[str, Any]:
        return {**super().flow_entry(flow, servers_seen), "comment": flow.comment}
