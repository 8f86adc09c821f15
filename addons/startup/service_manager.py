"""Notifies the service manager (such as systemd) that the hub is ready, alive or stopping (sd_notify)."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

READY = "READY=1"
STATUS = "STATUS="
"""Prefix of the text in `systemctl status`; an empty text clears it."""
STOPPING = "STOPPING=1"
WATCHDOG_MESSAGE = "WATCHDOG=1"

MICROSECONDS = 1e6

logger = logging.getLogger(__name__)


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send a state to the service manager, if there is one. Failures are only logged."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # A name that begins with @ is an abstract socket of Linux.
    name = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.setblocking(False)  # a manager that does not read must not block the event loop
            manager.connect(name)
            manager.sendall(state.encode())
    except OSError as error:
        logger.warning("cannot notify the service manager of %s: %s", state, error)


async def ready_without(missing: str, found: asyncio.Event) -> None:
    """Notify systemd that the hub is ready except for the missing parts, and clear that text once `found` is set."""
    notify(f"{READY}\n{STATUS}{missing}")
    await found.wait()
    notify(STATUS)


async def send_watchdog_messages(environment: Mapping[str, str] = os.environ) -> None:
    """Send watchdog notifications, twice in each interval of the unit (WatchdogSec=).

    Return at once if the unit has no watchdog, or has one for another process.
    """
    allowed, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not allowed.isdecimal() or process not in ("", str(os.getpid())):
        return
    while True:
        notify(WATCHDOG_MESSAGE, environment)
        await asyncio.sleep(int(allowed) / MICROSECONDS / 2)
