"""Finds the version in which the API server serves a kind: clusters that OpenYurt made serve NodePools in several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import orjson

from controllers.runtime.unstructured import mapping, objects, text
from kube.errors import StatusError
from kube.http.client import Client
from kube.requests.request_info import ResourceType


async def served_type(client: Client, resource: ResourceType, versions: Iterable[str]) -> ResourceType | None:
    """The resource in the first of these versions that the API server serves, None if it serves none.

    Raises what `kube.http.client.Client.request` raises, but for 404.
    """
    for version in versions:
        try:
            answer = await client.request("GET", f"/apis/{resource.group}/{version}")
        except StatusError as error:
            if error.code != 404:
                raise
            continue
        served = objects(mapping(orjson.loads(answer.body)).get("resources"))
        if any(text(entry.get("name")) == resource.resource for entry in served):
            return replace(resource, version=version)
    return None
