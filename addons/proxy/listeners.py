"""Opens the hub's listeners in mitmproxy, and says which of them are open."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence

from mitmproxy import ctx
from mitmproxy.addons.proxyserver import Servers
from mitmproxy.proxy.mode_specs import ProxyMode

from addons.proxy.listener_mode import HubMode


async def open_listeners(specs: Sequence[str]) -> None:
    """Open these mode specifications and close all others; those that are open stay as they are.

    OSError, whose `filename` is the specification, for the first that cannot be opened.
    """
    modes = {spec: HubMode.parse(spec) for spec in specs}
    servers = _servers()
    with _silent("mitmproxy.addons.proxyserver"):
        ctx.options.update(mode=list(specs), server=True)
        await servers.update(modes.values())
    for spec, mode in modes.items():
        error = servers[mode].last_exception
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), spec)
        if error is not None:
            raise OSError(0, str(error), spec)


def stop_accepting() -> None:
    """Accept no connection any more. Those on sockets that were handed over wait in the kernel for the next hub."""
    for instance in _servers():
        for server in getattr(instance, "_servers", ()):
            server.close()


def closed(specs: Sequence[str]) -> list[str]:
    """The addresses of those of these mode specifications for which mitmproxy accepts no connection now."""
    running = {each.mode.full_spec for each in _servers() if each.is_running}
    return [spec.rpartition("@")[2] for spec in specs if spec not in running]


def address_of(spec: str) -> tuple[str, int]:
    """Where an open listener listens, which tells the port of one that was opened on any."""
    host, port, *_ = _servers()[HubMode.parse(spec)].listen_addrs[0]
    return host, port


def mode_of_state(mode: ProxyMode) -> ProxyMode:
    """The mode of the open listener that a saved flow came to; `mode` itself where none is open there."""
    is_open = (each.mode for each in _servers() if each.mode.get_state() == mode.full_spec)
    return next(is_open, mode)


def _servers() -> Servers:
    addon = ctx.master.addons.get("proxyserver")
    if addon is None:
        raise RuntimeError("mitmproxy runs without its proxyserver addon")
    servers: Servers = addon.servers
    return servers


@contextlib.contextmanager
def _silent(name: str) -> Iterator[None]:
    """mitmproxy logs each failure in its own options' words; the caller says it in the hub's."""
    logger = logging.getLogger(name)
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was
