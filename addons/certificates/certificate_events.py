"""Tells the cluster's people by Events on the Node that the hub lacks a certificate."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Awaitable, Callable

from addons.rules.events import send_event
from kube.http.client import Client

type Tell = Callable[[str], Awaitable[None]]
"""Tells the cluster's people why there is no new certificate."""

REASON = "NoCertificate"
NAMESPACE = "default"
"""Of Events about what has no namespace."""


def event_of(node: str, what: str, why: str, now: datetime.datetime) -> dict[str, object]:
    """The Event about a certificate. Its name follows from what is wrong, so that each retry makes no new one."""
    digest = hashlib.sha256(f"{what}\0{why}".encode()).hexdigest()[:16]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{node}.{digest}", "namespace": NAMESPACE},
        # As kubelet writes it: Events of nodes have the node's name for a uid.
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": "Warning",
        "reason": REASON,
        "message": f"the hub has no new certificate {what}: {why}"[:1024],
        "source": {"component": "edgehub", "host": node},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def teller(client: Client, node: str, what: str) -> Tell:
    """Sends an Event for each reason. `client` sends with the node's own identity."""

    async def tell(why: str) -> None:
        await send_event(client, event_of(node, what, why, datetime.datetime.now(datetime.UTC)), NAMESPACE)

    return tell
