"""The clients of `scripts/demo`: a list, a watch and a write, as any program makes them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from kube.json_type import Json


async def get_list(url: str, component: str) -> list[Json]:
    """List slices; those of the Service."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            url, params={"resourceVersion": "0"}, headers={"User-Agent": f"{component}/demo"}
        ) as answer,
    ):
        answer.raise_for_status()
        items: list[Json] = (await answer.json())["items"]
    return [item for item in items if _is_web(item)]


@asynccontextmanager
async def watch(url: str, component: str) -> AsyncIterator[AsyncIterator[tuple[str, Json]]]:
    """Watch slices from the present state on; the events of the Service's slices."""
    query = {"watch": "true", "resourceVersion": "0"}
    headers = {"User-Agent": f"{component}/demo"}
    async with (
        aiohttp.ClientSession(read_bufsize=2**20) as session,
        session.get(url, params=query, headers=headers) as answer,
    ):
        answer.raise_for_status()

        async def events() -> AsyncIterator[tuple[str, Json]]:
            async for line in answer.content:
                event = json.loads(line)
                if _is_web(event["object"]):
                    yield event["type"], event["object"]

        yield events()


async def send(method: str, url: str, document: Json, authorization: str) -> int:
    """Send a write; the status of its answer."""
    headers = {"Authorization": authorization} if authorization else {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, json=document, headers=headers) as answer,
    ):
        await answer.read()
        return answer.status


def _is_web(item: Json) -> bool:
    labels: Json = item["metadata"].get("labels") or {}
    return labels.get("kubernetes.io/service-name") == "web"
