"""Approves and denies the serving certificates of hubs' peer ports; kube-controller-manager signs what is approved."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from controllers.certificates.approval import decide, node_of
from controllers.certificates.serving_request import REQUEST_TYPE, SERVING_REQUESTS, ServingRequest
from controllers.cluster.node_pools import timestamp
from controllers.cluster.nodes import NODES
from controllers.runtime.controller import Context, Controller
from kube.store.store import Key

logger = logging.getLogger(__name__)


class HubCertificatesController(Controller):
    """Key: a CertificateSigningRequest. The controller leaves requests alone that are not marked as a hub's."""

    name = "hubcertificates"
    debounce = 1.0
    """Seconds. The hub read its Node before it asked, and the watch of nodes brings the manager the same state."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._requests = self.watch(SERVING_REQUESTS, open_requests)
        self._nodes = self.follow(NODES)

    async def reconcile(self, key: Key) -> None:
        request = self._requests.get(key)
        if request is None or not request.is_of_hub or not request.is_open:
            return
        node = self._nodes.get(("", node_of(request)))
        pool = self._nodes.by_index("pool", node.pool) if node is not None and node.pool else ()
        decision = decide(request, node, (each for _, each in pool))
        condition = {
            "type": decision.type,
            "status": "True",
            "reason": decision.reason,
            "message": decision.message,
            "lastUpdateTime": timestamp(datetime.now(UTC)),
        }
        # The resourceVersion prevents an approval of what somebody else has denied meanwhile.
        patch = {"metadata": {"resourceVersion": request.version}, "status": {"conditions": [condition]}}
        written = await self._context.api.merge_patch(REQUEST_TYPE, "", request.name, patch, "approval")
        logger.info("%s: %s %s: %s", self.name, request.name, decision.type.lower(), decision.message)
        await self._requests.wait_until_observed(written)


def open_requests(key: Key, _old: ServingRequest | None, new: ServingRequest | None) -> Iterable[Key]:
    """A hub's request that nobody has decided yet."""
    return [key] if new is not None and new.is_of_hub and new.is_open else []
