"""JSON over HTTP to the real API server, and to one that misbehaves."""

from __future__ import annotations

import pytest

from kube.json_type import Json
from tests.cloud.real import RealCloud


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def maps(namespace: str) -> str:
    """The path of a collection that is the test's own."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def test_wait_for_what_does_not_come(real_cloud: RealCloud, maps: str) -> None:
    with pytest.raises(TimeoutError, match=r"/a is not as wanted after 0\.05 s; it is not there"):
        real_cloud.admin.wait_for(maps, "a", bool, timeout=0.05)
    real_cloud.admin.post(maps, config_map("a", x="1"))
    with pytest.raises(TimeoutError, match=r'last seen: .*"x": "1"'):
        real_cloud.admin.wait_for(maps, "a", lambda _: False, timeout=1.0)
