"""Names of the headers that the hub's own parts send each other. All but the last stay on the node."""

from __future__ import annotations

INTERNAL_HEADER = "x-edgehub-internal"
"""Carries this process' secret on the hub's own requests; `addons.resolve` takes it off."""
LENDING_HEADER = "x-edgehub-lending"
"""On the hub's own requests: whose credentials the request carries, `Lending.HUB` or `Lending.OWN`."""
SERVER_HEADER = "x-edgehub-server"
"""Names the server that one of the hub's own requests is for, where it must be that one (a probe)."""
TICKET_HEADER = "x-edgehub-ticket"
"""Names the ticket of a request that mitmproxy sends to the origin. Each ticket is good for one request."""
ANSWERED_HEADER = "x-edgehub-answered"
"""On answers to the hub's own requests: a server wrote the answer, not the hub."""
AGE_HEADER = "x-edgehub-age"
"""On answers of the peer port: seconds since the leader that answers lost the cloud, 0 while it has the cloud. This
header alone leaves the node."""
