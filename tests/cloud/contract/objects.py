"""Objects that the contract tests write, and the parts of responses that they compare."""

from __future__ import annotations

from kube.json_type import Json
from tests.cloud.caller import Caller
from tests.support.objects import obj


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Json:
    return obj("ConfigMap", name, labels=labels or {}, data=data)


def names(answer: Json) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def version(value: Json) -> int:
    return int(value["metadata"]["resourceVersion"])


def summary(event: Json) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


async def settle(caller: Caller, path: str, written: Json) -> None:
    """Wait until the server's watch cache has a write: a read at version 0 may be older, one at the write's version may
    not."""
    await caller.get(path, resourceVersion=str(version(written)), resourceVersionMatch="NotOlderThan")
