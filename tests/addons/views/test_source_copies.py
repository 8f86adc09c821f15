"""A source and its copy on disk: refusals of the cloud, and of a gateway that misroutes."""

from __future__ import annotations

import pytest

from addons.offline.copies import DiskCopy
from addons.offline.tables.copy_meta import UNFOLLOWED
from addons.requests.cloud_identity import HUB_IDENTITY
from kube.reflector.list_watch import ListWatch
from kube.requests.node_pools import NODEPOOL_TYPE
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding
from tests.addons.support.copying import settled
from tests.addons.support.hub_world import SERVICES_LIST_WATCH, HubWorld
from tests.addons.support.observed import until
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import node, node_pool
from tests.addons.support.source_parts import cut_watches, names
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.scriptable.request_log import matching

pytestmark = pytest.mark.usefixtures("copied")


async def test_the_clouds_response_overrides_a_stored_refusal(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """A client of a new source got the 403 of the source before it, although the cloud had granted the right since."""
    refusing = cloud.faults.add(Refuse(403), times=None, when=matching(resource="services"))
    source = parts.sources.get(HUB_IDENTITY, SERVICES_LIST_WATCH)
    with refuses(403):
        await source.ready(5)
    assert isinstance(source.copy, DiskCopy)
    await settled(source.copy)
    parts.sources._drop(source)
    refusing.lift()
    await parts.sources.get(HUB_IDENTITY, SERVICES_LIST_WATCH).ready(5)


@pytest.mark.parametrize("is_custom", [False, True])
async def test_only_a_kind_that_can_be_removed_is_gone_by_a_404(
    parts: HubWorld, cloud: ScriptableCloud, *, is_custom: bool
) -> None:
    """A gateway answered 404 to the Nodes for a moment; after a restart without a cloud Services had no endpoints."""
    cloud.store.create(node_pool("one", ["n1"], 1) if is_custom else node("one", 1))
    type_ = NODEPOOL_TYPE if is_custom else ResourceType("", "v1", "nodes")
    source = parts.sources.get(HUB_IDENTITY, ListWatch(type_, encoding=Encoding.JSON))
    await source.ready(5)
    cloud.faults.add(Refuse(404), times=None, when=matching(resource=type_.resource))
    await cut_watches(cloud)
    await until(lambda: getattr(source.reflector.refusal or source.reflector.error, "code", 0) == 404)
    assert (source.reflector.refusal is not None) is is_custom
    assert isinstance(source.copy, DiskCopy)
    await settled(source.copy)
    parts.sources._drop(source)
    await cloud.stop()
    parts.is_up = False
    after = parts.sources.get(HUB_IDENTITY, source.list_watch)
    await until(lambda: after.reflector.refusal is not None or after.store.complete)
    assert names(after) == ([] if is_custom else ["one"])


async def test_a_copy_is_followed_again_once_its_source_has_resumed(parts: HubWorld) -> None:
    source = await parts.source()
    assert isinstance(source.copy, DiskCopy)
    name, metas = source.copy.name, source.copy._copies.metas
    parts.sources._drop(source)
    await until(lambda: UNFOLLOWED in metas.get(name, {}))
    resumed = parts.sources.get(HUB_IDENTITY, source.list_watch).copy
    assert isinstance(resumed, DiskCopy)
    await until(lambda: UNFOLLOWED not in metas[name])
    assert resumed.is_followed
