"""kubectl, which is client-go: it gets, applies, watches, waits and deletes."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.cloud.caller import PATIENCE, Caller
from tests.cloud.contract.clouds import Kubectl
from tests.cloud.contract.objects import config_map


def manifest(**data: str) -> str:
    return json.dumps(config_map("k", {"a": "b"}, **data))


async def test_apply_creates_and_then_changes(kubectl: Kubectl, caller: Caller, config_maps: str) -> None:
    assert await kubectl("apply", "-f", "-", stdin=manifest(x="1", y="1")) == "configmap/k created\n"
    assert await kubectl("apply", "-f", "-", stdin=manifest(x="1", y="1")) == "configmap/k unchanged\n"
    assert await kubectl("apply", "-f", "-", stdin=manifest(x="2")) == "configmap/k configured\n"
    assert (await caller.get(f"{config_maps}/k"))["data"] == {"x": "2"}


async def test_apply_of_a_custom_resource(kubectl: Kubectl, caller: Caller, things: str) -> None:
    thing = {"apiVersion": "contract.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    assert "created" in await kubectl("apply", "-f", "-", stdin=json.dumps({**thing, "spec": {"x": 1}}))
    assert "configured" in await kubectl("apply", "-f", "-", stdin=json.dumps({**thing, "spec": {"x": 2}}))
    assert (await caller.get(f"{things}/t"))["spec"] == {"x": 2}


async def test_get(kubectl: Kubectl, caller: Caller, config_maps: str) -> None:
    await caller.post(config_maps, config_map("k", {"a": "b"}, x="1"))
    header, *rows = (await kubectl("get", "cm", "--selector=a=b")).splitlines()
    assert (header.split()[0], header.split()[-1]) == ("NAME", "AGE")
    assert [row.split()[0] for row in rows] == ["k"]
    assert json.loads(await kubectl("get", "configmap/k", "-o", "json"))["data"] == {"x": "1"}
    assert await kubectl("get", "cm", "-l", "a=b", "-o", "name", "--chunk-size=1") == "configmap/k\n"


async def test_get_of_what_is_not_there(kubectl: Kubectl) -> None:
    with pytest.raises(AssertionError, match=r'\(NotFound\): configmaps "none" not found'):
        await kubectl("get", "cm", "none")
    with pytest.raises(AssertionError, match="the server doesn't have a resource type"):
        await kubectl("get", "nonsense")


async def test_delete(kubectl: Kubectl, caller: Caller, config_maps: str) -> None:
    await caller.post(config_maps, config_map("k"))
    assert "deleted" in await kubectl("delete", "cm", "k")
    assert (await caller.send("GET", f"{config_maps}/k")).status == 404


async def test_label_and_annotate(kubectl: Kubectl, caller: Caller, config_maps: str) -> None:
    await caller.post(config_maps, config_map("k"))
    await kubectl("label", "cm", "k", "x=1")
    await kubectl("annotate", "cm", "k", "y=2")
    metadata = (await caller.get(f"{config_maps}/k"))["metadata"]
    assert (metadata["labels"]["x"], metadata["annotations"]["y"]) == ("1", "2")


async def test_watch(kubectl: Kubectl, caller: Caller, config_maps: str) -> None:
    await caller.post(config_maps, config_map("k"))
    process = await kubectl.start(
        "get", "cm", "--watch", "--output-watch-events", "--no-headers", "--field-selector=metadata.name=k"
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            first = await process.stdout.readline()
            await caller.patch(f"{config_maps}/k", {"data": {"x": "1"}})
            second = await process.stdout.readline()
            await caller.delete(f"{config_maps}/k")
            third = await process.stdout.readline()
    finally:
        process.kill()
        await process.communicate()
    told = [line.split()[:2] for line in (first, second, third)]
    assert told == [[b"ADDED", b"k"], [b"MODIFIED", b"k"], [b"DELETED", b"k"]]


async def test_wait_is_a_reflector(kubectl: Kubectl, caller: Caller, config_maps: str) -> None:
    await caller.post(config_maps, config_map("k", x="1"))
    process = await kubectl.start("wait", "--for=jsonpath={.data.x}=2", "cm/k", "--timeout=15s")
    async with asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(process.communicate())
        for number in range(100):
            # kubectl does not say when it begins to watch: write until it has seen enough.
            await caller.patch(f"{config_maps}/k", {"data": {"x": "2", "n": str(number)}})
            if (await asyncio.wait([waiting], timeout=0.1))[0]:
                break
        out, complaints = await waiting
    assert (out, complaints) == (b"configmap/k condition met\n", b"")
