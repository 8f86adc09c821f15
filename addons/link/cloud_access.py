"""The hub's access to the cloud: its servers, and the clients that send requests to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from addons.link.health import Cloud
from addons.requests.clients import Clients


class CloudAccess(NamedTuple):
    """The cloud's servers with their health, and the clients that send requests to them."""

    servers: Cloud
    clients: Clients
    confirm: Callable[[], Awaitable[bool]]
    """Probes the servers now, and returns whether one is up."""
