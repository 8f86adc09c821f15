"""The Kubernetes version of the tests, and the tests excluded with an older version, with the reasons."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cloud.build import chosen_node_version, chosen_version, control_plane, required_version

PINNED = ""
"""No version chosen."""
OF_THE_PINNED = {
    "tests/cloud/contract/": "what kube-apiserver itself answers is recorded of the pinned version",
    "tests/kube/objects/": "fields of the status of Pods and Nodes are those of the pinned version",
    "tests/kube/requests/test_selectors_real.py": "Services have field selectors since Kubernetes 1.31",
    "tests/kube/schemas/": "all kinds of the pinned version are compared",
    "tests/kube/tables/": "all kinds of the pinned version are compared",
    "tests/kube/wire/test_codec_clients.py": "kubectl asks for protobuf since Kubernetes 1.33",
}
"""Paths of tests that compare the hub only with the pinned version, with the reason."""
NEWER_MANIFESTS = {"autonomy-endpoints.yaml": 36}
"""Manifests of kinds that exist only from this minor version of Kubernetes."""


def chosen() -> str:
    """Return the version in TESTCLOUD, or the pinned one, as in `v1.36.3`."""
    return required_version(control_plane(chosen_version()).go_mod)


def node_minor() -> int:
    """Return the minor version of kubelet and kube-proxy."""
    return minor_of(required_version(control_plane(chosen_node_version()).go_mod))


def minor_of(version: str) -> int:
    """Return the 36 of `v1.36.3`."""
    return int(version.split(".")[1])


def served(folder: Path) -> list[Path]:
    """Return the manifests of a folder whose kinds the chosen version serves."""
    minor = minor_of(chosen())
    return [each for each in sorted(folder.glob("*.yaml")) if minor >= NEWER_MANIFESTS.get(each.name, 0)]


def why_left_out(item: pytest.Item) -> str:
    """Return why a test of the real control plane is excluded with the chosen version; "" if it runs."""
    if chosen() == required_version(control_plane(PINNED).go_mod):
        return ""
    for source, why in OF_THE_PINNED.items():
        if item.nodeid.startswith(source):
            return why
    for marker in item.iter_markers("since"):
        minor, why = marker.args
        if minor_of(chosen()) < minor:
            return f"Kubernetes 1.{minor}: {why}"
    return ""
