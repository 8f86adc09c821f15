"""Checks of the hub that runs on this node, through its admin port."""

from __future__ import annotations

import json
from collections.abc import Iterator

from addons.install.checks.findings import Finding, warning
from addons.install.cloud import TIMEOUT, get, local
from addons.settings import Settings
from addons.telemetry.observation import HANDSHAKE
from kube.errors import StatusError
from kube.http.client import Unreachable

MAX_REFUSERS = 10
"""Maximum clients named in the findings about failed handshakes: others mostly have the same cause."""
HANDSHAKES = f"/debug/observe?resource=tls&verdict=failed&since={60 * 60}"
REMEDY = (
    "give it an address that the certificate names, and the CA that signed it; a pod that calls the API server's own "
    "Service, by name or ClusterIP, is to reach the cloud: take away what leads it here (docs/rules.md)"
)


async def is_running(hub: Settings) -> bool:
    """Return whether a hub answers at the admin port."""
    if not hub.admin_port:
        return False
    async with local(hub.admin_url) as admin:
        try:
            await get(admin, "/debug/servers")
        except (StatusError, Unreachable, ValueError):
            return False
    return True


async def check_handshakes(hub: Settings) -> list[Finding]:
    """Return a finding for each client whose TLS handshake with the running hub failed in the last hour."""
    async with local(hub.admin_url) as admin:
        try:
            answer = await admin.request("GET", HANDSHAKES, accept="*/*", timeout=TIMEOUT)
            return list(_refusals(answer.body))
        except (StatusError, Unreachable, ValueError) as error:
            return [warning("handshakes", f"the hub does not say which failed: {error}")]


def _refusals(lines: bytes) -> Iterator[Finding]:
    """Yield a finding for each client, with its last failed handshake, from the lines of `edgehub observe`."""
    rows = (json.loads(line) for line in lines.splitlines() if line)
    said = {row["reason"].partition(" of ")[0]: row for row in rows if row.get("verb") == HANDSHAKE}
    for row in list(said.values())[-MAX_REFUSERS:]:
        yield warning("handshakes", f"{row['name']}: {row['reason']}: {REMEDY}")
