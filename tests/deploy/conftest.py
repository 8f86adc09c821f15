"""An empty control plane, and Helm as its administrator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.building.render import MANIFESTS
from tests.cloud.real import RealCloud
from tests.cloud.versions import served
from tests.deploy.support.charts import Release


@pytest.fixture(scope="package")
def empty_cloud(
    tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]
) -> Iterator[RealCloud]:
    with RealCloud(tmp_path_factory.mktemp("empty"), cloud_programs) as cloud:
        yield cloud


@pytest.fixture
def release(helm: Path, empty_cloud: RealCloud, tmp_path: Path) -> Callable[[str], Release]:
    """Return a release of the chart in a namespace."""
    return lambda namespace: Release(helm, empty_cloud, namespace, tmp_path)


@pytest.fixture
def plain_manifests(empty_cloud: RealCloud) -> Iterator[None]:
    """Apply `controllers/manifests/` to the cluster."""
    empty_cloud.apply(MANIFESTS)
    yield
    empty_cloud.kubectl(
        "delete", "--ignore-not-found", "--wait=false", *(f"--filename={each}" for each in served(MANIFESTS))
    )
