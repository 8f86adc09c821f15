"""Opens the hub's listeners in mitmproxy, and reports which of them are open."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mitmproxy import ctx
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler, ServerInstance, ServerManager
from mitmproxy.proxy.mode_specs import ProxyMode

from addons.proxy.listener_mode import HubInstance, HubMode


class OpenServers:
    """The listeners of a hub without an interface: the subset of mitmproxy's `Servers` that the hub uses."""

    def __init__(self, manager: ServerManager) -> None:
        self._manager = manager
        self._instances: dict[ProxyMode, ServerInstance[Any]] = {}

    async def update(self, modes: Iterable[ProxyMode]) -> None:
        """Open these listeners and close all others. A listener that cannot be opened stores the exception."""
        wanted = list(modes)
        for mode in set(self._instances).difference(wanted):
            instance = self._instances.pop(mode)
            if instance.is_running:
                await instance.stop()
        for mode in wanted:
            if mode not in self._instances:
                instance = self._instances[mode] = ServerInstance.make(mode, self._manager)
                with contextlib.suppress(Exception):  # the instance stores the error
                    await instance.start()

    def __iter__(self) -> Iterator[ServerInstance[Any]]:
        return iter(self._instances.values())

    def __getitem__(self, mode: ProxyMode) -> ServerInstance[Any]:
        return self._instances[mode]


class Listening:
    """Replacement for mitmproxy's addon `proxyserver` in a hub without an interface."""

    def __init__(self) -> None:
        self.connections: dict[tuple[Any, ...] | str, ProxyConnectionHandler] = {}
        self.servers = OpenServers(self)

    @contextlib.contextmanager
    def register_connection(self, _id: object, _handler: object) -> Iterator[None]:
        """Do nothing: the hub looks connections up in `addons.server.accept.accepted`."""
        yield


def option_values(specs: Sequence[str]) -> dict[str, object]:
    """Return the values of mitmproxy's options for these mode specifications. mitmproxy's status bars show the first
    address.
    """
    values: dict[str, object] = {"mode": list(specs), "server": True}
    if specs:
        first = HubMode.parse(specs[0])
        values |= {"listen_host": first.custom_listen_host, "listen_port": first.custom_listen_port}
    return values


async def open_listeners(specs: Sequence[str]) -> None:
    """Open the listeners of these mode specifications and close all others; listeners that are open stay open.

    OSError for the first one that cannot be opened; its `filename` is the specification.
    """
    modes = {spec: HubMode.parse(spec) for spec in specs}
    servers = _servers()
    with _silent("mitmproxy.addons.proxyserver"):
        ctx.options.update(**option_values(specs))
        await servers.update(modes.values())
    for spec, mode in modes.items():
        error = servers[mode].last_exception
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), spec)
        if error is not None:
            raise OSError(0, str(error), spec)


async def open_again(specs: Sequence[str]) -> None:
    """Reopen the listeners of these mode specifications that no longer accept connections. OSError as in
    `open_listeners`.
    """
    lost = [server for server in _servers() if server.mode.full_spec in specs and not server.listen_addrs]
    for instance in lost:
        with contextlib.suppress(Exception):  # it keeps it
            if instance.is_running:
                await instance.stop()
            await instance.start()
    await open_listeners(specs)


def stop_accepting() -> None:
    """Stop accepting connections. New ones on handed-over sockets wait in the kernel for the next hub."""
    for instance in _servers():
        if isinstance(instance, HubInstance):
            instance.stop_accepting()


def closed(specs: Sequence[str]) -> list[str]:
    """Return the addresses of those mode specifications whose listeners are not open."""
    running = {server.mode.full_spec for server in _servers() if server.listen_addrs}
    return [spec.rpartition("@")[2] for spec in specs if spec not in running]


def mode_of_state(mode: ProxyMode) -> ProxyMode:
    """Return the mode of the open listener from which a saved flow came; `mode` itself if it is not open."""
    is_open = (server.mode for server in _servers() if server.mode.get_state() == mode.full_spec)
    return next(is_open, mode)


def _servers() -> OpenServers:
    """Return the open servers of this process; beside an interface they are mitmproxy's own."""
    servers: OpenServers = ctx.master.addons.get("proxyserver").servers
    return servers


@contextlib.contextmanager
def _silent(name: str) -> Iterator[None]:
    """Silence a logger: mitmproxy logs failures in terms of its own options; the caller logs them in the hub's."""
    logger = logging.getLogger(name)
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was
