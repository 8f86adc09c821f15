"""Tells the cluster's people by Events on the Node that the hub lacks a certificate."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Awaitable, Callable

from addons.rules.events import about_node, send_event, warning
from kube.http.client import Client
from kube.json_type import Json

type Tell = Callable[[str], Awaitable[None]]
"""Tells the cluster's people why there is no new certificate."""

REASON = "NoCertificate"


def event_of(node: str, what: str, why: str, now: datetime.datetime) -> Json:
    """The Event about a certificate. Its name follows from what is wrong, so that each retry makes no new one."""
    digest = hashlib.sha256(f"{what}\0{why}".encode()).hexdigest()[:16]
    message = f"the hub has no new certificate {what}: {why}"[:1024]
    return warning(about_node(node), digest, REASON, message, node, now)


def teller(client: Client, node: str, what: str) -> Tell:
    """Sends an Event for each reason. `client` sends with the node's own identity."""

    async def tell(why: str) -> None:
        await send_event(client, event_of(node, what, why, datetime.datetime.now(datetime.UTC)))

    return tell
