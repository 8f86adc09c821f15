"""Which version of a kind is served."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
import pytest

from controllers.runtime.discovery import served_type
from kube.errors import internal, not_found
from kube.http.client import ApiResponse
from kube.requests.request_info import ResourceType
from tests.kube.support.answering import AnsweringClient, Asked

POOLS = ResourceType("apps.openyurt.io", "v1beta2", "nodepools")
VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")


class Discovery(AnsweringClient):
    """A server of some versions of the group, with these resources; `broken` answers 500."""

    def __init__(self, versions: Mapping[str, list[str]], *, broken: bool = False) -> None:
        super().__init__()
        self._versions, self._broken = versions, broken

    async def answer(self, asked: Asked) -> ApiResponse:
        if self._broken:
            raise internal("etcd")
        version = asked.path.removeprefix("/apis/apps.openyurt.io/")
        if version not in self._versions:
            raise not_found(asked.path, "")
        resources = [{"name": name} for name in self._versions[version]]
        return ApiResponse("application/json", orjson.dumps({"resources": resources}))


@pytest.mark.parametrize(
    ("served", "version"),
    [
        ({"v1beta2": ["nodepools"], "v1beta1": ["nodepools"]}, "v1beta2"),
        ({"v1beta1": ["nodepools"], "v1alpha1": ["nodepools"]}, "v1beta1"),
        ({"v1beta2": ["others"], "v1alpha1": ["nodepools", "nodebuckets"]}, "v1alpha1"),
        ({"v1alpha1": ["nodepools/status"]}, None),
        ({}, None),
    ],
)
async def test_the_best_version_is_found(served: dict[str, list[str]], version: str | None) -> None:
    found = await served_type(Discovery(served), POOLS, VERSIONS)
    assert (found.version if found else None) == version


async def test_an_error_says_nothing_about_the_kind() -> None:
    with pytest.raises(Exception, match="etcd"):
        await served_type(Discovery({}, broken=True), POOLS, VERSIONS)
