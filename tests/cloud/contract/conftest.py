"""The two clouds behind one interface: an HTTP caller, a namespace for the test, a custom resource."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kube.json_type import Json
from tests.cloud.caller import Caller
from tests.cloud.real import RealCloud
from tests.cloud.rest import is_true
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.resources import Resource, Trait

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Cloud:
    """The real or the scriptable cloud."""

    caller: Caller

    async def make_namespace(self) -> str:
        """Create a new namespace; return its name."""
        name = f"contract-{next(_numbers)}"
        await self.caller.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return name


THINGS = Resource(
    "contract.example.com", "v1", "things", "Thing", Trait.CUSTOM | Trait.STATUS | Trait.PUT_NEEDS_VERSION
)
"""A custom resource that no other test uses. Its watch cache starts at its installation, long after version 1."""


@pytest.fixture(params=["scriptable", pytest.param("real", marks=pytest.mark.real)])
def real(request: pytest.FixtureRequest) -> RealCloud | None:
    """Start the real cloud, outside a test's event loop; None for the scriptable one."""
    if request.param == "scriptable":
        return None
    found: RealCloud = request.getfixturevalue("real_cloud")
    return found


@pytest.fixture
async def cloud(real: RealCloud | None, tmp_path: Path) -> AsyncIterator[Cloud]:
    if real is None:
        async with ScriptableCloud() as scriptable, Caller(scriptable.url) as caller:
            scriptable.resources.add(THINGS)
            yield Cloud(caller)
        return
    context = ssl.create_default_context(cadata=real.authority.certificate.decode())
    context.load_cert_chain(*real.authority.issue_admin().write(tmp_path, "admin"))
    async with Caller(real.url, context=context) as caller:
        yield Cloud(caller)


@pytest.fixture
def caller(cloud: Cloud) -> Caller:
    return cloud.caller


@pytest.fixture
async def namespace(cloud: Cloud) -> str:
    return await cloud.make_namespace()


@pytest.fixture
def config_maps(namespace: str) -> str:
    """Return the path of the namespace's ConfigMaps, the simplest kind of objects."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
async def things(cloud: Cloud, namespace: str) -> str:
    """Return the path of a custom resource, installed if missing."""
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = THINGS.group_resource
    served = await cloud.caller.send("GET", f"/apis/{THINGS.api_version}")
    if served.status == 404:
        await cloud.caller.post(crds, _definition())
        async with cloud.caller.watch(crds, fieldSelector=f"metadata.name={name}") as stream:
            while not is_true((await stream.next())["object"], "Established"):
                pass
    path = f"/apis/{THINGS.api_version}/namespaces/{namespace}/{THINGS.name}"
    for _ in range(100):
        # Established is set shortly before the path is served, without a further notification.
        if (await cloud.caller.send("GET", path)).status == 200:
            return path
        await asyncio.sleep(0.05)
    raise TimeoutError(path)


def _definition() -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": THINGS.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": THINGS.group_resource},
        "spec": {
            "group": THINGS.group,
            "scope": "Namespaced",
            "names": {
                "kind": THINGS.kind,
                "plural": THINGS.name,
                "singular": "thing",
                "listKind": "ThingList",
            },
            "versions": [version],
        },
    }
