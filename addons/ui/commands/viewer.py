"""A script for mitmproxy's own program that shows the flows of a hub in another process (`edgehub attach`)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader
from mitmproxy.exceptions import OptionsError
from mitmproxy.flow import Flow
from mitmproxy.io import tnetstring

from addons.ui.attached import HOLD_NOT_ALLOWED
from addons.ui.commands.asking import NoAnswer, open_page
from addons.ui.commands.attached_commands import HubElsewhere
from addons.ui.commands.attached_flows import AttachedFlows, records
from addons.ui.commands.console_commands import ConsoleCommands
from addons.ui.flows.content_views import ATTACHED, register
from addons.ui.flows.flow_records import FlowRecord, remember
from addons.ui.flows.interface import RetainedFlows, begin_interface, choose_first_view
from addons.ui.masking import DEFAULT_VISIBILITY, Visible

RECONNECT_DELAY = 2.0
"""Seconds before a reconnection to a hub that has ended."""

logger = logging.getLogger(__name__)


class Viewer:
    """Shows the hub's flows in the interface of this process."""

    name = "edgehub-attached"

    def __init__(self) -> None:
        self._flows = AttachedFlows()
        self._retained: RetainedFlows | None = None
        self._visible = DEFAULT_VISIBILITY
        self._is_over = False
        self._key = ""
        """Secret by which this process authenticates to the hub; "" before the hub's first record."""
        self._may_hold = True
        """Whether the hub permits intercepting flows; assumed until it says otherwise."""
        self._tells = ThreadPoolExecutor(1, "decisions for the hub")

    def load(self, loader: Loader) -> None:
        loader.add_option("edgehub_admin", str, "", "The admin port of the hub.")
        register(ATTACHED)

    def configure(self, updated: set[str]) -> None:
        """Send mitmproxy's option `intercept` to the hub."""
        if not updated & {"intercept", "intercept_active"}:
            return
        if ctx.options.intercept and not self._may_hold:
            raise OptionsError(HOLD_NOT_ALLOWED)
        if self._key and self._may_hold:
            self._send_filter()

    def update(self, flows: Sequence[Flow]) -> None:
        """Send the hub the user's decisions on flows: resumed, edited or killed."""
        for flow in flows:
            self._release(flow)

    def running(self) -> None:
        view = ctx.master.addons.get("view")
        self._retained = RetainedFlows(view.remove)
        for signal_ in (view.sig_view_update, view.sig_store_remove):  # browser buttons call no hook
            signal_.connect(self._release)
        choose_first_view()
        begin_interface(ctx.master)
        loop, admin = asyncio.get_running_loop(), ctx.options.edgehub_admin
        threading.Thread(target=self._read, args=(admin, loop), name="flows of the hub", daemon=True).start()

    def done(self) -> None:
        self._is_over = True
        self._tells.shutdown(wait=False, cancel_futures=True)

    def _read(self, admin: str, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_over:
            try:
                with open_page(admin, "flows", accept="*/*") as stream:
                    for record in records(stream):
                        if self._is_over:
                            return
                        loop.call_soon_threadsafe(self._show, record)
                        if "ended" in record:
                            return
                logger.warning("the hub has ended: waiting for its restart")
            except NoAnswer as error:
                logger.warning("%s", error)
            time.sleep(RECONNECT_DELAY)

    def _show(self, record: dict[str, Any]) -> None:
        if "visible" in record:
            self._visible = Visible(*record["visible"])
            self._key, self._may_hold = record["key"], record["may_hold"]
            if ctx.options.intercept and not self._may_hold:
                ctx.options.update(intercept=None)
                logger.warning(HOLD_NOT_ALLOWED)
            elif ctx.options.intercept:
                self._send_filter()
        elif "dropped" in record:
            logger.warning("%d flows skipped: they came faster than the display", record["dropped"])
        elif "ended" in record:
            logger.warning("%s: detached from the hub", record["ended"])
        else:
            self._show_flow(record)

    def _show_flow(self, record: dict[str, Any]) -> None:
        flow, is_new, is_over = self._flows.apply_record(record)
        view = ctx.master.addons.get("view")
        remember(flow, FlowRecord(None, self._visible))
        if is_new:
            view.add([flow])
        else:
            view.update([flow])
        if is_over and self._retained is not None:
            self._retained.add(flow, is_own=False)

    def _release(self, flow: Flow) -> None:
        if isinstance(flow, http.HTTPFlow) and (decision := self._flows.decision(flow)) is not None:
            self._send(decision)

    def _send_filter(self) -> None:
        self._send({"filter": (ctx.options.intercept or "") if ctx.options.intercept_active else ""})

    def _send(self, said: dict[str, Any]) -> None:
        self._tells.submit(_post, ctx.options.edgehub_admin, self._key, tnetstring.dumps(said))


def _post(admin: str, key: str, body: bytes) -> None:
    try:
        with open_page(admin, "flows", {"key": key}, body=body, kind="application/octet-stream"):
            pass
    except NoAnswer as error:
        logger.warning("%s", error)


addons = [Viewer(), ConsoleCommands(HubElsewhere())]
