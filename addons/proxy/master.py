"""Replacement for mitmproxy's master in a hub without an interface: its options and a single addon.

mitmdump calls some forty addons for each hook of each request, which is half the cost of a small request, and reloads
`addons/hub.py` when the file changes. Importing mitmproxy's own master would import all those addons.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from mitmproxy import ctx, hooks
from mitmproxy.addonmanager import Loader
from mitmproxy.exceptions import OptionsError
from mitmproxy.options import Options
from mitmproxy.utils import asyncio_utils, human

from addons.proxy.hub_addon import HubAddon
from addons.proxy.listeners import Listening

LAYER_OPTIONS: tuple[tuple[str, object, object], ...] = (
    ("body_size_limit", str | None, None),
    ("connection_strategy", str, "lazy"),
    ("keep_host_header", bool, True),
    ("normalize_outbound_headers", bool, True),
    ("proxy_debug", bool, False),
    ("store_streamed_bodies", bool, False),
    ("stream_large_bodies", str | None, None),
    ("validate_inbound_headers", bool, True),
)
"""Options of mitmproxy's addon `proxyserver` that configuration files may contain: name, type and default."""
SIZES = ("body_size_limit", "stream_large_bodies")
"""The options whose values are sizes, such as 3m."""

logger = logging.getLogger(__name__)


class OneAddon:
    """The subset of an addon manager that the hub's parts and mitmproxy's modules use."""

    def __init__(self, addon: object, listening: Listening) -> None:
        self._addon = addon
        self.lookup: dict[str, object] = {"proxyserver": listening}

    def get(self, name: str) -> Any:
        """Return an addon by its name; None if it does not exist."""
        return self.lookup.get(name)

    async def trigger_event(self, event: hooks.Hook) -> None:
        """Call the addon's hook for this event, if it has one."""
        hook = getattr(self._addon, event.name, None)
        if hook is None:
            return
        try:
            # `event.args` would look up the class's fields at each event.
            names = type(event).__match_args__  # type: ignore[attr-defined]  # a hook is a dataclass
            done = hook(*[getattr(event, name) for name in names])
            if done is not None:
                await done
        except Exception:
            logger.exception("the hook %s failed", event.name)

    handle_lifecycle = trigger_event


class HubMaster:
    """Runs one addon. Must be created in a running event loop."""

    def __init__(self, options: Options, addon: HubAddon) -> None:
        self.options = options
        self.addons = OneAddon(addon, Listening())
        self.event_loop = asyncio.get_running_loop()
        self.should_exit = asyncio.Event()
        self._addon = addon
        ctx.master, ctx.options = self, options  # type: ignore[assignment]  # it has all attributes used here
        for name, kind, default in LAYER_OPTIONS:
            options.add_option(name, kind, default, "")
        addon.load(Loader(self))
        options.changed.connect(self._configure)
        options.process_deferred()

    async def run(self) -> None:
        """Serve until `shutdown`."""
        with asyncio_utils.set_eager_task_factory():
            self._addon.running()
            try:
                await self.should_exit.wait()
            finally:
                self._addon.done()

    def shutdown(self) -> None:
        """End `run`. May be called from any thread."""
        self.event_loop.call_soon_threadsafe(self.should_exit.set)

    def _configure(self, updated: set[str]) -> None:
        for name in SIZES:
            try:
                human.parse_size(getattr(self.options, name))
            except ValueError:
                raise OptionsError(f"{name} is a size, such as 3m") from None
        self._addon.configure(updated)


def run(addon: HubAddon, given: Mapping[str, Any], specifications: Sequence[str] = ()) -> None:
    """Serve in the foreground until SIGTERM or SIGINT.

    `given` are options by name; `specifications` are `name=value`, as for mitmproxy's `--set`, and override `given`.
    OptionsError if mitmproxy or the addon refuses an option, SystemExit if the hub could not start.
    """
    asyncio.run(_run(addon, given, specifications))


async def _run(addon: HubAddon, given: Mapping[str, Any], specifications: Sequence[str]) -> None:
    options = Options()
    master = HubMaster(options, addon)
    options.update(server=False)  # the last part opens the listeners, once the hub can answer
    specified = {specification.partition("=")[0] for specification in specifications}
    # A configuration file may contain options of other programs of mitmproxy, which do not exist here.
    options.update_known(**{name: value for name, value in given.items() if name not in specified})
    options.set(*specifications)
    loop = asyncio.get_running_loop()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_, master.shutdown)
    # A closed connection is reported by the failing write, not by a signal that kills the process.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    await master.run()
