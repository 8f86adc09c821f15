"""Approves and denies the serving certificates of hubs' peer ports; kube-controller-manager signs what is approved."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlsplit

from controllers.certificates.approval import LEFT, decide, node_of
from controllers.certificates.serving_request import SERVING_REQUESTS, ServingRequest
from controllers.cluster.api_server import API_SERVICE, API_SLICES, addresses_of
from controllers.cluster.nodes import NODES, Node
from controllers.runtime.controller import Context, Controller
from controllers.runtime.unstructured import timestamp
from kube.store.store import Key

logger = logging.getLogger(__name__)


class HubCertificatesController(Controller):
    """Key: a CertificateSigningRequest. The controller leaves requests alone that are not marked as a hub's.

    One that is left to a person is decided again when nodes or the API server have other addresses.
    """

    name = "hubcertificates"
    debounce = 1.0
    """Seconds. The hub read its Node before it asked, and the watch of nodes brings the manager the same state."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._left: set[Key] = set()
        self._requests = self.watch(SERVING_REQUESTS, open_requests)
        self._nodes = self.watch(NODES, self._other_addresses)
        self._services = self.watch(API_SERVICE, self._other_servers)
        self._slices = self.watch(API_SLICES, self._other_servers)

    async def reconcile(self, key: Key) -> None:
        self._left.discard(key)
        request = self._requests.get(key)
        if request is None or not request.is_of_hub or not request.is_open:
            return
        node = self._nodes.get(("", node_of(request)))
        holder = partial(self._holder, node_of(request), await self._of_server())
        decision = decide(request, node, holder)
        logger.info("%s: %s %s: %s", self.name, request.name, decision.type or "left", decision.message)
        if decision.type == LEFT:
            self._left.add(key)
            await self._context.events.warning(request.reference, decision.reason, decision.message)
            return
        condition = {
            "type": decision.type,
            "status": "True",
            "reason": decision.reason,
            "message": decision.message,
            "lastUpdateTime": timestamp(datetime.now(UTC)),
        }
        # The resourceVersion prevents an approval of what somebody else has denied meanwhile.
        patch = {"metadata": {"resourceVersion": request.version}, "status": {"conditions": [condition]}}
        await self.patch(self._requests, key, patch, "approval")

    async def _of_server(self) -> frozenset[str] | None:
        """The names of the server that the manager itself asks; None where they cannot be known now."""
        server = self._context.server()
        try:
            return await addresses_of(server) | {urlsplit(server).hostname or ""}
        except OSError as error:
            logger.warning("%s: the name of %s does not resolve: %s", self.name, server, error)
            return None

    def _holder(self, asking: str, of_server: frozenset[str] | None, name: str) -> str:
        """Who but the asking node has a name: an `OtherHolder`."""
        others = [node.name for _, node in self._nodes.by_index("address", name) if node.name != asking]
        if others:
            return f"node {others[0]}"
        slices = [addresses for _, addresses in self._slices.items()]
        services = [addresses for _, addresses in self._services.items()]
        if not slices or not services or of_server is None:
            raise LookupError("the addresses of the API server are not known")
        return "the API server" if any(name in names for names in (*slices, *services, of_server)) else ""

    def _other_addresses(self, _key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        return tuple(self._left) if (old and old.addresses) != (new and new.addresses) else ()

    def _other_servers(
        self, _key: Key, old: frozenset[str] | None, new: frozenset[str] | None
    ) -> Iterable[Key]:
        return tuple(self._left) if old != new else ()


def open_requests(key: Key, _old: ServingRequest | None, new: ServingRequest | None) -> Iterable[Key]:
    """A hub's request that nobody has decided yet."""
    return [key] if new is not None and new.is_of_hub and new.is_open else []
