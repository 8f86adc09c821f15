"""The versions of NodePool, as this project's own manifest serves them."""

from __future__ import annotations

from pathlib import Path

import yaml

from kube.requests.node_pools import NODEPOOL_TYPE, NODEPOOL_VERSIONS

MANIFEST = Path(__file__).parents[3] / "controllers" / "manifests" / "nodepools.yaml"


def test_the_manifest_serves_the_versions_that_hub_and_manager_use() -> None:
    spec = yaml.safe_load(MANIFEST.read_text())["spec"]
    assert tuple(each["name"] for each in spec["versions"]) == NODEPOOL_VERSIONS
    assert (spec["group"], spec["names"]["plural"]) == (NODEPOOL_TYPE.group, NODEPOOL_TYPE.resource)
    assert NODEPOOL_TYPE.version == NODEPOOL_VERSIONS[0]
