"""Fixtures of the tests of sources: a list-watch, a view's key, and a source that is ready."""

from __future__ import annotations

from addons.filters.chain import FILTERS
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.views.open_view import ViewKey
from addons.views.source import Source
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.scope import EVERYTHING
from kube.wire.encoding import Encoding
from tests.addons.support.hub_parts import HubParts
from tests.cloud.scriptable import ScriptableCloud

SERVICES = ListWatch(ResourceType("", "v1", "services"), encoding=Encoding.JSON)
DISCARD = tuple(each for each in FILTERS if each.name == "discardcloudservice")
KEY = ViewKey("agent", "watch", EVERYTHING)
DISCARDING = {"filter_discardcloudservice": "agent/services"}
"""Rules that bind DISCARD to the component of KEY, and nothing else to it."""


def names(source: Source) -> list[str]:
    return sorted(item.key[1] for item in source.store)


async def ready(parts: HubParts, list_watch: ListWatch = SERVICES) -> Source:
    source = parts.sources.get(HUB_IDENTITY, list_watch)
    await source.ready(2)
    return source


# -- ready ---------------------------------------------------------------------------------------------------------


async def cut_watches(cloud: ScriptableCloud) -> None:
    """Every open connection to the cloud ends."""
    await cloud.stop()
    await cloud.start()
