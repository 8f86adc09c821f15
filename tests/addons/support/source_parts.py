"""Helpers for tests of sources: an opened view, and the rules that filter it."""

from __future__ import annotations

from addons.filters.chain import FILTERS
from addons.views.open_view import ViewKey
from addons.views.source import Source
from kube.store.scope import EVERYTHING
from tests.cloud.scriptable import ScriptableCloud

DISCARD = tuple(each for each in FILTERS if each.name == "discardcloudservice")
KEY = ViewKey("agent", "watch", EVERYTHING)
DISCARDING = {"filter_discardcloudservice": "agent/services"}
"""Rules that bind only DISCARD to the component of KEY."""


def names(source: Source) -> list[str]:
    return sorted(item.key[1] for item in source.store)


async def cut_watches(cloud: ScriptableCloud) -> None:
    """Close every open connection to the cloud."""
    await cloud.stop()
    await cloud.start()
