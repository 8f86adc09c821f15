"""A JSON object converts to protobuf that no client can distinguish from kube-apiserver's."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.json_type import Json
from kube.schemas.json_objects import json_object
from kube.schemas.protobuf_objects import protobuf_object
from kube.wire.encoding import Encoding
from tests.kube.support import recorded

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("name", recorded.SINGLES)
def test_an_object_equals_the_servers_protobuf(name: str) -> None:
    json = Encoding.JSON
    tree: Json = orjson.loads(recorded.body(name, json))
    assert json_object(tree["apiVersion"], tree["kind"], protobuf_object(tree)) == tree


@pytest.mark.parametrize(
    ("api_version", "kind", "fields"),
    [
        ("v1", "PersistentVolume", {"spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "d"}}}),
        ("v1", "Secret", {"data": {"a": "AAE=", "b": ""}, "immutable": False}),
        ("v1", "Pod", {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}),
        (
            "v1",
            "Pod",
            {"spec": {"volumes": [{"name": "v", "projected": {"sources": [], "defaultMode": 420}}]}},
        ),
        ("v1", "Service", {"spec": {"ports": [{"port": 80, "targetPort": "web"}, {"targetPort": 8080}]}}),
        ("coordination.k8s.io/v1", "Lease", {"spec": {"renewTime": "2026-01-02T03:04:05.678901Z"}}),
        ("apps/v1", "ControllerRevision", {"revision": 2, "data": {"spec": {"a": [1, "b", None]}}}),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            {
                "spec": {
                    "versions": [
                        {
                            "name": "v1",
                            "schema": {
                                "openAPIV3Schema": {
                                    "default": {"a": 1},
                                    "additionalProperties": False,
                                    "items": {"type": "string", "maximum": 1.5},
                                    "enum": ["a", 1],
                                }
                            },
                        }
                    ]
                }
            },
        ),
    ],
)
def test_an_object_survives_protobuf(api_version: str, kind: str, fields: Json) -> None:
    def holds(found: Any, wanted: Any) -> bool:
        """Return True if all sent values are present; empty ones may be left out."""
        if isinstance(wanted, dict) and isinstance(found, dict):
            return all(holds(found.get(name), value) for name, value in wanted.items())
        if isinstance(wanted, list) and isinstance(found, list):
            return len(wanted) == len(found) and all(map(holds, found, wanted))
        return found == wanted or (not wanted and not found)

    sent = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "creationTimestamp": None}}
    back = json_object(api_version, kind, protobuf_object({**sent, **fields}))
    assert holds(back, fields), back


def test_a_field_missing_in_the_schema_is_left_out() -> None:
    tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "later": {"a": 1}}
    assert "later" not in json_object("v1", "ConfigMap", protobuf_object(tree))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(LookupError):
        protobuf_object({"apiVersion": "example.com/v1", "kind": "Widget"})


@settings(max_examples=50)
@given(spec=VALUES, status=VALUES, metadata=VALUES)
def test_a_value_of_the_wrong_type_is_encoded_or_a_value_error(spec: Any, status: Any, metadata: Any) -> None:
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    with suppress(ValueError):
        protobuf_object(tree)
