"""The addresses at which the API server serves."""

from __future__ import annotations

import pytest

from controllers.cluster.api_server import addresses_of, read_service, read_slice
from kube.json_type import Json


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"clusterIPs": ["10.96.0.1", "FD00:0::1"]}, {"10.96.0.1", "fd00::1"}),
        ({"clusterIPs": ["None"]}, set()),
        ({"clusterIPs": 7}, set()),
        (None, set()),
    ],
)
def test_of_its_service(spec: object, found: set[str]) -> None:
    assert read_service({"spec": spec}) == found


@pytest.mark.parametrize(
    ("obj", "found"),
    [
        ({"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]}, {"10.0.0.1", "10.0.0.2"}),
        ({"endpoints": [{"addresses": ["api.example"]}, None, {}]}, set()),
        ({}, set()),
    ],
)
def test_of_its_endpoints(obj: Json, found: set[str]) -> None:
    assert read_slice(obj) == found


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://[::1]:6443/path"])
async def test_of_the_server_that_the_manager_asks(server: str) -> None:
    assert await addresses_of(server) <= {"127.0.0.1", "::1"}
    assert await addresses_of(server)


async def test_a_name_that_does_not_resolve_is_an_error() -> None:
    with pytest.raises(OSError, match=r".+"):
        await addresses_of("https://api.invalid:6443")
