"""The objects of the demo: as real as a node's, with managedFields, and nothing of them is lost in protobuf."""

from __future__ import annotations

import pytest

from kube.json_type import Json
from kube.schemas.json_objects import json_object
from scripts.demonstration.cluster import managed, objects
from tests.cloud.scriptable.protobuf import encode_message


def missing(whole: object, found: object) -> list[str]:
    """Return the paths where `found` differs; it may have more."""
    if isinstance(whole, dict) and isinstance(found, dict):
        return [f"{name}.{each}" for name, value in whole.items() for each in missing(value, found.get(name))]
    if isinstance(whole, list) and isinstance(found, list) and len(whole) == len(found):
        return [each for pair in zip(whole, found, strict=True) for each in missing(*pair)]
    return [] if whole == found or not whole else [f"{whole!r} is {found!r}"]


@pytest.mark.parametrize("document", objects(), ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_nothing_of_the_demos_objects_is_lost_in_protobuf(document: Json) -> None:
    whole = managed(document)
    assert whole["metadata"]["managedFields"][0]["fieldsV1"]
    found = json_object(whole["apiVersion"], whole["kind"], encode_message(whole))
    assert missing(whole, found) == []
