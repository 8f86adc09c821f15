"""All attacks at once: the hub's memory stays bounded, and kubelet is answered throughout."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cloud.real import RealCloud
from tests.hub.support.hostile import besiege
from tests.hub.support.process import Hub

SECONDS = 20.0
MOST = 180.0
"""Megabytes of the hub: half as much again as the bench may leave. Each attack alone took hundreds."""
FEW = 10
"""Answers to kubelet in that time, however busy the machine; it is some forty where it is not."""


async def test_memory_stays_and_kubelet_is_answered(hub: Hub, real_cloud: RealCloud, tmp_path: Path) -> None:
    node = {"metadata": {"name": hub.node}}
    await asyncio.to_thread(real_cloud.admin.post, "/api/v1/nodes", node)
    siege = await besiege(hub, real_cloud, tmp_path, SECONDS)
    assert siege.failures == []
    assert len(siege.answers) >= FEW
    assert siege.peak < MOST
    silent = [name for name, (carried, stopped) in siege.attacks.items() if not carried + stopped]
    assert silent == []
