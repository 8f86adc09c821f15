"""Requests of the tests of a faulty disk: the objects that a hub serves, and its words about the disk."""

from __future__ import annotations

import asyncio

from tests.hub.support.process import Hub
from tests.hub.support.streams import listed

ERRORS = "edgehub_cache_write_errors_total"
SERVICES = "/api/v1/services"


def service(name: str, filler: int) -> dict[str, object]:
    """A Service with an annotation of that many bytes."""
    annotations = {"filler": "x" * filler}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    }


async def services(hub: Hub) -> set[str]:
    """The names that kube-proxy sees."""
    return set(await listed(hub.url, SERVICES, component="kube-proxy", resourceVersion="0"))


async def logged(hub: Hub, pattern: str) -> None:
    """Return when the hub has said it."""
    await asyncio.to_thread(hub.process.wait_for_line, pattern, 20)
