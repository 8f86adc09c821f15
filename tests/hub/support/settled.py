"""Waits until a hub has the cloud's objects, so that a test's watch starts from a settled state."""

from __future__ import annotations

from kube.json_type import Json
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub
from tests.hub.support.streams import WAIT
from tests.support.polling import eventually


def caught_up(cloud: RealCloud, hub: Hub) -> None:
    """Wait until each open source of the hub has the cloud's current objects.

    Deletions are not checked, because the cloud does not list them.
    """
    wanted = {_key(each): _newest(cloud, each) for each in hub.sources()}
    eventually(
        lambda: all(each["version"] >= wanted.get(_key(each), 0) for each in hub.sources()),
        f"the hub has {wanted}",
        WAIT,
    )


def _newest(cloud: RealCloud, source: Json) -> int:
    """Return the highest version among the objects of a source; 0 if it has none, or its kind is unknown."""
    chosen = {name: source[name] for name in ("labelSelector", "fieldSelector") if source[name]}
    answer = cloud.admin.request("GET", source["path"], query=chosen)
    items = answer.json()["items"] if answer.status == 200 else []
    return max((int(each["metadata"]["resourceVersion"]) for each in items), default=0)


def _key(source: Json) -> tuple[str, ...]:
    return tuple(source[name] for name in ("path", "labelSelector", "fieldSelector", "encoding"))
