"""The test clouds as pytest fixtures; a plugin that `tests/conftest.py` names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cloud.build import BuildError, ensure_control_plane, ensure_helm
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.small_disk import NoNamespacesError, SmallDisk
from tests.cloud.versions import why_left_out

HUB_RBAC = Path(__file__).parents[2] / "controllers" / "manifests" / "hub-rbac.yaml"
"""The product's RBAC for hubs."""
HUB_NODES = HUB_RBAC.with_name("hub-nodes.yaml")
"""The hubs' permission to read all nodes, which not every cluster needs."""
REAL_TIMEOUT = 300
"""Seconds for a test with real processes on busy cores, including the start of the control plane."""

type OpenLink = Callable[[str, int], Link]
"""Makes a link to (host, port)."""

_numbers = itertools.count(1)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test that uses the control plane, also indirectly, so that only `--real` runs it."""
    if "cloud_programs" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("real"):
        item.add_marker(pytest.mark.real)
    if not item.get_closest_marker("real"):
        return
    if not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(REAL_TIMEOUT))
    if why := why_left_out(item):
        item.add_marker(pytest.mark.skip(reason=why))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build before pytest starts its worker processes, whose output is not shown."""
    option = session.config.option
    if getattr(option, "numprocesses", None) and option.real and not option.collectonly:
        _build(session.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test, so that no test's time includes it and progress is shown."""
    if not session.config.option.collectonly and any(
        item.get_closest_marker("real") for item in session.items
    ):
        _build(session.config)


def _build(config: pytest.Config) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        if capture:
            stack.enter_context(capture.global_and_fixture_disabled())
        try:
            ensure_control_plane()
            ensure_helm()
        except BuildError as error:
            # Not skipped: only the command line may exclude these tests.
            raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session")
def cloud_programs() -> dict[str, Path]:
    """Return the programs of the control plane and of its clients, by name."""
    return ensure_control_plane()


@pytest.fixture(scope="session")
def helm(cloud_programs: dict[str, Path]) -> Path:
    """Return the path of Helm. Go builds it, like the programs of the control plane, so only `--real` runs its
    tests."""
    assert cloud_programs
    return ensure_helm()


@pytest.fixture(scope="session")
def real_cloud(
    tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]
) -> Iterator[RealCloud]:
    """Return the session's control plane: use your own `namespace`, and new names elsewhere."""
    with RealCloud(tmp_path_factory.mktemp("cloud"), cloud_programs) as cloud:
        yield cloud


@pytest.fixture
def hub_rbac(real_cloud: RealCloud) -> None:
    """Apply the product's RBAC, which lets nodes read what hubs need."""
    real_cloud.apply(HUB_RBAC)
    real_cloud.apply(HUB_NODES)


@pytest.fixture
def namespace(real_cloud: RealCloud) -> Iterator[str]:
    """Create a new namespace, which is never deleted, as that needs a controller. Its Services and slices are deleted,
    because hubs of later tests read all namespaces, and filters may request inputs for them."""
    name = f"test-{next(_numbers)}"
    real_cloud.admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    for api, kind in (("api/v1", "services"), ("apis/discovery.k8s.io/v1", "endpointslices")):
        real_cloud.admin.delete(f"/{api}/namespaces/{name}/{kind}")


@pytest.fixture
def node(real_cloud: RealCloud) -> str:
    """Return the name of a new node; the object does not exist yet."""
    return f"edge-{next(_numbers)}"


@pytest.fixture
def link() -> Iterator[OpenLink]:
    """Return a function that opens links, which are closed after the test."""
    with ExitStack() as stack:
        yield lambda host, port: stack.enter_context(Link(host, port))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Return the test's own disk, in a folder of its name."""
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(SmallDisk(tmp_path / "small"))
        except NoNamespacesError as error:
            pytest.skip(f"this machine allows no user and mount namespaces: {error}")
        yield disk
