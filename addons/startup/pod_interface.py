"""Creates the address at which pods reach the hub (`--pod-address auto`), on a network interface of its own.

A dummy interface is preferred, then a bridge without ports, for kernels without dummy devices, then the loopback
interface. An existing interface of that name is used unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute2 import IPRoute

INTERFACE = "edgehub0"
KINDS = ("dummy", "bridge")
LOOPBACK = "lo"
CHECK_INTERVAL = 10.0
"""Seconds between checks of the addresses, which another program may remove."""
NO_DUPLICATE_CHECK = 0x02
"""IFA_F_NODAD: skips duplicate address detection, so that programs can listen on an IPv6 address at once. No other host
has the interface's addresses.
"""

logger = logging.getLogger(__name__)


def ensure(addresses: Sequence[str]) -> str:
    """Ensure that the node has these addresses. Return the name of their interface.

    ValueError, with the commands to run, if the hub lacks permission. Blocks for some milliseconds.
    """
    # Imported late: it takes a tenth of a second, and most hubs do not need it.
    from pyroute2 import IPRoute  # noqa: PLC0415 - as above
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415 - as above

    try:
        with IPRoute() as route:
            if where := _holder(route, addresses):
                return where
            name = _interface(route)
            (index,) = route.link_lookup(ifname=name)
            route.link("set", index=index, state="up")
            for address in addresses:
                if address not in _present(route):
                    _add(route, index, address)
            return name
    except NetlinkError as error:
        raise ValueError(f"hub_pod_address: {error.args[-1]}: {repair_commands(addresses)}") from error


def remove(addresses: Sequence[str]) -> None:
    """Remove what `ensure` has created. ValueError without permission."""
    from pyroute2 import IPRoute  # noqa: PLC0415 - as in `ensure`
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415 - as in `ensure`

    try:
        with IPRoute() as route:
            for index in route.link_lookup(ifname=INTERFACE):
                route.link("del", index=index)
            (loopback,) = route.link_lookup(ifname=LOOPBACK)
            for address in addresses:
                if _present(route).get(address) == loopback:
                    route.addr("del", index=loopback, address=address, prefixlen=_length(address))
    except NetlinkError as error:
        raise ValueError(f"{INTERFACE} cannot be removed: {error.args[-1]}") from error


async def maintain(addresses: Sequence[str]) -> None:
    """Restore the addresses whenever another program removes them, until cancelled."""
    while True:
        await asyncio.sleep(CHECK_INTERVAL)
        try:
            await asyncio.to_thread(ensure, addresses)
        except (ValueError, OSError) as error:
            logger.error("pods cannot reach the hub: %s", error)


def repair_commands(addresses: Sequence[str]) -> str:
    """Return the commands for an operator with the permission that the hub lacks."""
    commands = [f"ip link add {INTERFACE} type dummy", f"ip link set {INTERFACE} up"]
    commands += [f"ip addr add {address}/{_length(address)} dev {INTERFACE}" for address in addresses]
    return f"give the hub CAP_NET_ADMIN, or type `{' && '.join(commands)}`"


def _holder(route: IPRoute, addresses: Sequence[str]) -> str:
    """Return the interface that already has all the addresses and is up; "" for none."""
    present = _present(route)
    holders = {present.get(address) for address in addresses}
    if len(holders) != 1 or None in holders:
        return ""
    (index,) = holders
    (link,) = route.get_links(index)
    return str(link.get_attr("IFLA_IFNAME")) if link["flags"] & 1 else ""


def _interface(route: IPRoute) -> str:
    """Return the name of the interface for the addresses, creating it if necessary."""
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415 - as in `ensure`

    if route.link_lookup(ifname=INTERFACE):
        return INTERFACE
    for kind in KINDS:
        try:
            route.link("add", ifname=INTERFACE, kind=kind)
        except NetlinkError as error:
            logger.info("no interface of the kind %s can be made: %s", kind, error.args[-1])
        else:
            return INTERFACE
    return LOOPBACK


def _present(route: IPRoute) -> dict[str, int]:
    """Return the node's addresses, each with the index of its interface."""
    messages: list[Any] = list(route.get_addr())
    return {str(message.get_attr("IFA_ADDRESS")): message["index"] for message in messages}


def _add(route: IPRoute, index: int, address: str) -> None:
    flags = {"flags": NO_DUPLICATE_CHECK} if ip_address(address).version == 6 else {}
    route.addr("add", index=index, address=address, prefixlen=_length(address), **flags)


def _length(address: str) -> int:
    return ip_address(address).max_prefixlen
