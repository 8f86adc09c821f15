"""What is asked of the cloud for each kind of input."""

from __future__ import annotations

import pytest

from addons.input_sources import Kind, question_of
from kube.encoding import Encoding


@pytest.mark.parametrize("kind", [Kind.OWN_NODE, Kind.NODE])
def test_of_nodes_only_labels_cross_the_link(kind: Kind) -> None:
    asked = question_of(kind, "n1")
    assert asked.metadata_only
    assert asked.query == ({"fieldSelector": "metadata.name=n1"} if kind is Kind.OWN_NODE else {})


def test_addresses_are_in_the_whole_node() -> None:
    assert not question_of(Kind.ADDRESS, "n1").metadata_only


def test_a_custom_resource_has_no_protobuf() -> None:
    assert question_of(Kind.POOL, "n1").encoding is Encoding.JSON


def test_local_health_is_no_question_to_the_cloud() -> None:
    with pytest.raises(ValueError, match="not asked of the cloud"):
        question_of(Kind.HEALTH, "n1")
