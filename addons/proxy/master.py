"""mitmproxy's master for a hub without an interface: a reverse proxy, the hub's addons, and nothing else.

mitmdump calls some forty addons for each hook of each request, which is half of what a small request costs, and
reloads `addons/hub.py` when the file changes. This master has two of mitmproxy's addons, and no script.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.master import Master
from mitmproxy.options import Options


class HubMaster(Master):
    """Runs `Proxyserver` and `NextLayer`, then the given addons in their order.

    The hub needs no `Core` (the commands of an interface) and no `TlsConfig`: the addons `identity` and `egress` make
    each TLS connection, and `TlsConfig` would write a CA of its own into the user's home.
    """

    def __init__(self, options: Options, addons: Sequence[object]) -> None:
        super().__init__(options)
        self.addons.add(Proxyserver(), NextLayer(), *addons)


def run(addons: Sequence[object], given: Mapping[str, Any], specifications: Sequence[str] = ()) -> None:
    """Serve in the foreground until SIGTERM or SIGINT.

    `given` are options by name; `specifications` are `name=value`, as mitmproxy's `--set` takes them, and win over
    `given`. OptionsError where mitmproxy or an addon refuses an option, SystemExit where the hub could not start.
    """
    asyncio.run(_run(addons, given, specifications))


async def _run(addons: Sequence[object], given: Mapping[str, Any], specifications: Sequence[str]) -> None:
    options = Options()
    master = HubMaster(options, addons)
    options.update(server=False)  # the last addon opens the listeners, when it can answer
    specified = {each.partition("=")[0] for each in specifications}
    # A configuration file may be for other programs of mitmproxy as well, with options that this one has not.
    options.update_known(**{name: value for name, value in given.items() if name not in specified})
    options.set(*specifications)
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, master.shutdown)
    # A client that leaves is told by the write that fails, not by a signal that ends the process.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    await master.run()
