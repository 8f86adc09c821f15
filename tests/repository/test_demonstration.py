"""The objects of the demo: as real as a node's, with managedFields, and convertible to protobuf without loss."""

from __future__ import annotations

import pytest

from kube.json_type import Json
from kube.schemas.json_objects import json_object
from scripts.demonstration.cluster import managed, objects
from tests.cloud.scriptable.protobuf import encode_message


@pytest.mark.parametrize("document", objects(), ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_the_demos_objects_lose_nothing_in_protobuf(document: Json) -> None:
    def missing(wanted: object, found: object) -> list[str]:
        """Return the paths where `found` differs; it may have more."""
        if isinstance(wanted, dict) and isinstance(found, dict):
            return [
                f"{name}.{each}" for name, value in wanted.items() for each in missing(value, found.get(name))
            ]
        if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
            return [each for pair in zip(wanted, found, strict=True) for each in missing(*pair)]
        return [] if wanted == found or not wanted else [f"{wanted!r} is {found!r}"]

    wanted = managed(document)
    assert wanted["metadata"]["managedFields"][0]["fieldsV1"]
    found = json_object(wanted["apiVersion"], wanted["kind"], encode_message(wanted))
    assert missing(wanted, found) == []
