"""A filtered view as an interface shows it: the slices of a Service whose topology is its node."""

from __future__ import annotations

from addons.requests.request_context import RequestContext
from addons.ui.flows.flow_records import FilteredRead, FlowRecord
from addons.ui.masking import DEFAULT_VISIBILITY
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.samples import SERVICES, SLICES, cloud_service, endpoint_slice, service
from tests.cloud.scriptable import ScriptableCloud

TOPOLOGY = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}


def fill(cloud: ScriptableCloud) -> None:
    """Create a Service with a slice on two nodes, and a Service that is hidden at the edge."""
    cloud.store.create(service("web", annotations=TOPOLOGY))
    cloud.store.create(cloud_service("lb"))
    cloud.store.create(endpoint_slice("web-1", ["n1", "n2"]))


async def opened(
    parts: HubWorld, component: str = "reader", target: str = SLICES, accept: str = "application/json"
) -> tuple[FlowRecord, bytes]:
    """Return a list that a component has read: its record, and the body of its response."""
    target = f"{target}?resourceVersion=0"
    context = parts.context(target, component, accept=accept)
    async with parts.open(context, target) as answer:
        assert await answer.status == 200, await answer.read_body()
        return FlowRecord(filtered(parts, context), DEFAULT_VISIBILITY), await answer.read_body()


async def services(parts: HubWorld) -> tuple[FlowRecord, bytes]:
    return await opened(parts, "kube-proxy", SERVICES)


def filtered(parts: HubWorld, context: RequestContext) -> FilteredRead:
    return FilteredRead(parts.running_hub(rules=None), context)
