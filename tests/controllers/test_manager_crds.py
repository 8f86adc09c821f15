"""The manager creates missing kinds once, and never overwrites another project's kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controllers.cluster.kinds import NODES
from controllers.cluster.node_pools import NODEPOOLS
from controllers.grids import SERVICEGRIDS
from controllers.manager import CRDS, create_missing_crds, manifest
from controllers.runtime.informer import Informers
from controllers.runtime.write_client import WriteClient
from kube.errors import forbidden
from kube.http.client import Client
from kube.requests.request_info import ResourceType
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.resources import RESOURCES
from tests.cloud.sessions import new_session


@pytest.mark.parametrize("refuse", [False, True])
async def test_missing_kinds_are_created_once(refuse: bool) -> None:
    # Seconds for a response on loopback.
    patience = 30.0

    @asynccontextmanager
    async def following(cloud: ScriptableCloud) -> AsyncIterator[Informers]:
        """Return informers of three kinds, each of which has got its response."""
        async with new_session() as session:
            informers = Informers(Client(session, cloud.url, {}))
            made = [
                informers.informer_for(NODES),
                informers.informer_for(NODEPOOLS),
                informers.informer_for(SERVICEGRIDS),
            ]
            tasks = [asyncio.ensure_future(informer.run()) for informer in made]
            async with asyncio.timeout(patience):
                for informer in made:
                    await informer.wait_for_response()
            yield informers
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    class Created(WriteClient):
        """An API that records the created objects, and may refuse them."""

        def __init__(self, *, refuse: bool = False) -> None:
            self.names: list[str] = []
            self._refuse = refuse

        async def create(self, resource: ResourceType, obj: dict[str, Any]) -> dict[str, Any]:
            assert resource == CRDS
            self.names.append(obj["metadata"]["name"])
            if self._refuse:
                raise forbidden("no")
            return obj

    plain = [each for each in RESOURCES if each.group not in ("apps.openyurt.io", "superedge.io")]
    async with ScriptableCloud(resources=plain) as cloud, following(cloud) as informers:
        api, tried = Created(refuse=refuse), set[str]()
        for _ in range(3):
            await create_missing_crds(api, informers, tried)
    assert sorted(api.names) == ["nodepools.apps.openyurt.io", "servicegrids.superedge.io"]


def test_a_kind_of_another_project_has_no_manifest() -> None:
    assert manifest("nodes") is None
    assert manifest("endpointslices.discovery.k8s.io") is None
