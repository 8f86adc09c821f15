"""A view of a source as tests of sources open it, and the rules that filter it."""

from __future__ import annotations

from addons.filters.chain import FILTERS
from addons.views.open_view import ViewKey
from addons.views.source import Source
from kube.store.scope import EVERYTHING
from tests.cloud.scriptable import ScriptableCloud

DISCARD = tuple(each for each in FILTERS if each.name == "discardcloudservice")
KEY = ViewKey("agent", "watch", EVERYTHING)
DISCARDING = {"filter_discardcloudservice": "agent/services"}
"""Rules that bind DISCARD to the component of KEY, and nothing else to it."""


def names(source: Source) -> list[str]:
    return sorted(item.key[1] for item in source.store)


async def cut_watches(cloud: ScriptableCloud) -> None:
    """Every open connection to the cloud ends."""
    await cloud.stop()
    await cloud.start()
