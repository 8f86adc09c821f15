"""A cluster restored from a backup: versions run backwards, and no client may go on from one that is no more."""

from __future__ import annotations

from pathlib import Path

from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import listed, watching

SERVICES = "/api/v1/services"


async def test_every_watch_ends_with_410_and_lists_are_the_restored_ones(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    def make(name: str) -> None:
        spec = {"ports": [{"port": 80}]}
        cloud.store.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})

    make("kept")
    backup = cloud.store.snapshot()
    async with started(Hub(tmp_path, cloud.url)) as hub:
        async with watching(hub.url, SERVICES, component="kube-proxy", resourceVersion="0") as events:
            await events.first("ADDED", "kept")
            for number in range(5):
                make(f"lost-{number}")
            await events.first("ADDED", "lost-4")
            await cloud.stop()
            cloud.store.restore(backup)
            await cloud.start()
            await events.until(lambda _: events.ended)
            last = events.seen[-1]
            assert (last.type, last.object.fields.number("code")) == ("ERROR", 410)
        after = await listed(hub.url, SERVICES, component="kube-proxy", resourceVersion="0")
        assert "lost-0" not in after
        assert "kept" in after
