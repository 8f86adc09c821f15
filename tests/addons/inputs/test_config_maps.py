"""How the hub reads one ConfigMap."""

from __future__ import annotations

from addons.inputs.config_maps import one_config_map
from kube.wire.encoding import Encoding


def test_the_cloud_is_asked_for_one_config_map_alone() -> None:
    wanted = one_config_map("kube-system", "leader-hub-harbour")
    assert wanted.path == "/api/v1/namespaces/kube-system/configmaps"
    assert wanted.query == {"fieldSelector": "metadata.name=leader-hub-harbour"}
    assert wanted.encoding is Encoding.JSON
