"""The cloud's own watches of what the writers write: no write may go over a newer one, or be there in part."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import orjson

from kube.concurrency.pulse import Pulse
from kube.json_type import Json
from scripts.benchmark.kills.storm import Storm
from scripts.benchmark.kills.writes import found_in, path_of
from tests.cloud.real import RealCloud

WATCHED = ("nodes", "pods", "events")
MAX_QUOTED = 2000


class CloudWatch:
    """Looks at each version that the cloud has had of each object."""

    def __init__(self, cloud: RealCloud, storms: Sequence[Storm], moved: Pulse) -> None:
        """`moved` is notified of each event."""
        self._cloud, self._storms, self._moved = cloud, storms, moved

    async def run(self) -> None:
        """Look until cancelled."""
        await asyncio.gather(
            *(self._watch(f"/api/v1/{resource}?watch=1&resourceVersion=0") for resource in WATCHED)
        )

    async def _watch(self, target: str) -> None:
        while True:
            watch = await asyncio.create_subprocess_exec(
                *self._cloud.kubectl_command("get", "--raw", target),
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 24,
            )
            assert watch.stdout is not None
            try:
                async for line in watch.stdout:
                    change = orjson.loads(line)
                    if change["type"] in ("ADDED", "MODIFIED"):
                        self._look(change["object"])
                        self._moved.notify()
            finally:
                with suppress(ProcessLookupError):
                    watch.kill()
                await watch.communicate()

    def _look(self, obj: Json) -> None:
        path = path_of(obj)
        written = next((storm.written[path] for storm in self._storms if path in storm.written), None)
        if written is None:
            return
        number, fits = found_in(obj)
        if number < written.seen:
            written.wrong.append(f"{path}: {number} went over {written.seen}")
        elif not fits:
            written.wrong.append(f"{path}: write {number} is not whole: {orjson.dumps(obj)[:MAX_QUOTED]!r}")
        written.seen = max(number, written.seen)
