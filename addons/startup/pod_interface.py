"""The address at which pods reach the hub, where the hub makes it (`--pod-address auto`): on an interface of its own.

A dummy interface is the first choice, a bridge without ports the second, for kernels that have no dummy device, and the
loopback interface the last. An interface of the name that is there already is used as it is.
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
"""Seconds between two looks at the addresses, which another program may remove."""
NO_DUPLICATE_CHECK = 0x02
"""IFA_F_NODAD: a program can listen on an IPv6 address at once. No other host has an address of this interface."""

logger = logging.getLogger(__name__)


def ensure(addresses: Sequence[str]) -> str:
    """See to it that the node has these addresses; the name of the interface that has them.

    ValueError with the commands to type where the hub has no right to make them. Blocks for some milliseconds.
    """
    # These take a tenth of a second to import, and most hubs need none of it.
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
        raise ValueError(f"hub_pod_address: {error.args[-1]}: {how_to(addresses)}") from error


def remove(addresses: Sequence[str]) -> None:
    """Remove what `ensure` has made; ValueError without permission."""
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
    """Restore the addresses when another program removes them, until cancelled."""
    while True:
        await asyncio.sleep(CHECK_INTERVAL)
        try:
            await asyncio.to_thread(ensure, addresses)
        except (ValueError, OSError) as error:
            logger.error("pods cannot reach the hub: %s", error)


def how_to(addresses: Sequence[str]) -> str:
    """The commands for a person with the right that the hub lacks."""
    commands = [f"ip link add {INTERFACE} type dummy", f"ip link set {INTERFACE} up"]
    commands += [f"ip addr add {address}/{_length(address)} dev {INTERFACE}" for address in addresses]
    return f"give the hub CAP_NET_ADMIN, or type `{' && '.join(commands)}`"


def _holder(route: IPRoute, addresses: Sequence[str]) -> str:
    """The interface that has all the addresses already and is up; "" for none."""
    present = _present(route)
    holders = {present.get(address) for address in addresses}
    if len(holders) != 1 or None in holders:
        return ""
    (index,) = holders
    (link,) = route.get_links(index)
    return str(link.get_attr("IFLA_IFNAME")) if link["flags"] & 1 else ""


def _interface(route: IPRoute) -> str:
    """The name of the interface for the addresses, which is made where it is not there."""
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
    """The addresses of the node, each with the index of its interface."""
    messages: list[Any] = list(route.get_addr())
    return {str(message.get_attr("IFA_ADDRESS")): message["index"] for message in messages}


def _add(route: IPRoute, index: int, address: str) -> None:
    flags = {"flags": NO_DUPLICATE_CHECK} if ip_address(address).version == 6 else {}
    route.addr("add", index=index, address=address, prefixlen=_length(address), **flags)


def _length(address: str) -> int:
    return ip_address(address).max_prefixlen
