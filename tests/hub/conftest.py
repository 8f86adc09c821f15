"""A hub in front of the session's real control plane, one for each test module: a start takes a second."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.cloud.fixtures import HUB_RBAC, REAL_TIMEOUT, OpenLink
from tests.cloud.hollow import is_ready
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.machine import LIMIT, Machine
from tests.hub.support.outage import Outage
from tests.hub.support.process import Hub
from tests.hub.support.site import behind_a_link, hub_before


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give tests without the control plane the same time limit, as they start as many processes."""
    if not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(REAL_TIMEOUT))


@pytest.fixture(scope="module")
def node_name(request: pytest.FixtureRequest) -> str:
    module: str = request.module.__name__
    return "edge-" + module.rpartition("test_")[2].replace("_", "-")


@pytest.fixture(scope="module")
def hub(real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory, node_name: str) -> Iterator[Hub]:
    with hub_before(real_cloud, tmp_path_factory.mktemp("hub"), node_name) as made:
        yield made


@pytest.fixture(scope="module")
def outage(
    real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory, node_name: str
) -> Iterator[Outage]:
    """Return this module's hub, behind a link that a test can cut."""
    with behind_a_link(real_cloud, tmp_path_factory.mktemp("hub"), node_name) as made:
        yield made


@pytest.fixture
async def offline(outage: Outage) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Cut the cloud off; restore it after the test."""
    yield outage.begin
    await outage.end()


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as made:
        yield made


@pytest.fixture
def linked(real_cloud: RealCloud, link: OpenLink, node: str, tmp_path: Path) -> Iterator[tuple[Hub, Link]]:
    """Return a hub for one test, not started yet, behind a link; it is stopped after the test."""
    opened = link(real_cloud.host, real_cloud.port)
    hub = hub_before(real_cloud, tmp_path, node, "--wait", "4", link=opened)
    yield hub, opened
    hub.stop()


@pytest.fixture
def to_cloud(real_cloud: RealCloud, link: OpenLink) -> Link:
    """Return a test's own link to the cloud."""
    return link(real_cloud.host, real_cloud.port)


@pytest.fixture
def machine(
    real_cloud: RealCloud, to_cloud: Link, cloud_programs: dict[str, Path], tmp_path: Path, node: str
) -> Iterator[Machine]:
    """Return a node that has joined the cloud, without a hub."""
    real_cloud.apply(HUB_RBAC)
    server = f"https://{to_cloud.host}:{to_cloud.port}"
    with Machine(tmp_path, real_cloud, server, node, cloud_programs) as made:
        real_cloud.admin.wait_for("/api/v1/nodes", node, is_ready, timeout=LIMIT)
        yield made


@pytest.fixture
def isolated() -> list[str]:
    """Return the prefix of commands that run in their own network namespace."""
    isolated = ["unshare", "--map-root-user", "--net"]
    needed = ["ip", "link", "add", "node0", "type", "veth", "peer", "name", "pod0"]
    try:
        subprocess.run([*isolated, *needed], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine allows no network namespaces, or has no ip or no veth")
    return isolated
