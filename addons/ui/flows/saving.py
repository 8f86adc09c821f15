"""Has mitmproxy write flows to a file (`-w`, `save_stream_file`) as people see them, not as they came.

mitmproxy writes a flow when its answer is there. By then the flow lacks what was streamed, and it still has the values
of a Secret that the hub holds whole to keep it. Bodies of protobuf are text in the file: no other mitmproxy reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mitmproxy import http

from addons.ui.flows.bodies import decoded
from addons.ui.flows.flow_records import record_of

if TYPE_CHECKING:
    from mitmproxy.addons.save import Save
    from mitmproxy.master import Master


def save_when_over(master: Master) -> Callable[[http.HTTPFlow], None]:
    """Take the hooks of HTTP from mitmproxy's `save`; returns what writes a flow that is over.

    mitmproxy looks a hook up at each call. It goes on to write watches, which end by a hook of WebSockets.
    """
    save: Save | None = master.addons.get("save")
    if save is None:
        return _nothing
    for hook in ("response", "error"):
        setattr(save, hook, _nothing)

    def save_decoded(flow: http.HTTPFlow) -> None:
        with decoded(flow, record_of(flow).visible):
            save.save_flow(flow)

    return save_decoded


def _nothing(flow: http.HTTPFlow) -> None:
    """Stands in place of a hook."""
