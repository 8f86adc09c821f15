"""What is asked of the cloud for each kind of input."""

from __future__ import annotations

import pytest

from addons.inputs.input_sources import InputKind, list_watch_of
from kube.wire.encoding import Encoding


@pytest.mark.parametrize("kind", [InputKind.OWN_NODE, InputKind.NODE])
def test_of_nodes_only_labels_cross_the_link(kind: InputKind) -> None:
    asked = list_watch_of(kind, "n1")
    assert asked.metadata_only
    assert asked.query == ({"fieldSelector": "metadata.name=n1"} if kind is InputKind.OWN_NODE else {})


def test_addresses_are_in_the_whole_node() -> None:
    assert not list_watch_of(InputKind.ADDRESS, "n1").metadata_only


def test_a_custom_resource_has_no_protobuf() -> None:
    assert list_watch_of(InputKind.POOL, "n1").encoding is Encoding.JSON


def test_local_health_is_no_question_to_the_cloud() -> None:
    with pytest.raises(ValueError, match="not asked of the cloud"):
        list_watch_of(InputKind.HEALTH, "n1")
