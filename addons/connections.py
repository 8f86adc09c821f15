"""Makes mitmproxy's connections fit for Kubernetes clients; `addons.proxy` reaches into mitmproxy for it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mitmproxy import connection, tcp
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from addons.proxy import connection_handlers, hook_dispatch, patches
from addons.proxy.fail_closed import guarded_connection
from addons.proxy.http import (
    client_connections,
    error_responses,
    http_connections,
    http_layer,
    request_stream,
)

logger = logging.getLogger(__name__)

PATCHES = (
    *client_connections.PATCHES,
    *error_responses.PATCHES,
    *hook_dispatch.PATCHES,
    *http_connections.PATCHES,
    *http_layer.PATCHES,
    *request_stream.PATCHES,
)
"""All that the hub replaces in mitmproxy."""


class Connections:
    """Installs the patches, makes room for a client's watches, and closes upstream connections on demand."""

    name = "edgehub-connections"

    def load(self, _loader: object) -> None:
        """SystemExit where mitmproxy is not the one that the hub was made for: unpatched it must not serve."""
        try:
            patches.install(PATCHES)
        except patches.UnknownMitmproxyError as error:
            logger.critical("%s", error)
            raise SystemExit(1) from error

    @guarded_connection
    def client_connected(self, client: connection.Client) -> None:
        connection_handlers.allow_many_connections(client)

    @guarded_connection
    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        connection_handlers.forget_failed(data.client, data.server)

    @guarded_connection
    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Drop what passes through an upgraded connection: mitmproxy would keep all of an exec or a copy."""
        flow.messages.clear()

    def cut(self, matches: Callable[[connection.Server], bool]) -> int:
        """Close the upstream connections that match; how many there were."""
        return connection_handlers.cut(matches)
