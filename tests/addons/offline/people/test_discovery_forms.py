"""Plain documents of discovery, made of the aggregated ones that the hub caches."""

from __future__ import annotations

import orjson
import pytest

from addons.offline.people.discovery_forms import in_form
from addons.requests.offline_policy import AGGREGATED
from kube.json_type import Json
from kube.schemas.json_objects import json_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.offline_parts import JSON, PROTOBUF

SCALE = {
    "subresource": "scale",
    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    "verbs": ["get"],
}
DEPLOYMENTS = {
    "resource": "deployments",
    "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
    "scope": "Namespaced",
    "singularResource": "deployment",
    "verbs": ["get", "list"],
    "shortNames": ["deploy"],
    "categories": ["all"],
    "subresources": [SCALE],
}
GROUPS = [
    {
        "metadata": {"name": "apps"},
        "versions": [{"version": "v1", "resources": [DEPLOYMENTS]}, {"version": "v1beta1"}],
    },
    {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1", "freshness": "Stale"}]},
]
BODY = orjson.dumps(
    {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": GROUPS}
)
APPS = {
    "name": "apps",
    "versions": [
        {"groupVersion": "apps/v1", "version": "v1"},
        {"groupVersion": "apps/v1beta1", "version": "v1beta1"},
    ],
    "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
}
OF_APPS = [
    {
        "name": "deployments",
        "singularName": "deployment",
        "namespaced": True,
        "kind": "Deployment",
        "verbs": ["get", "list"],
        "shortNames": ["deploy"],
        "categories": ["all"],
    },
    {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get"],
    },
]


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/apis/apps", {"kind": "APIGroup", "apiVersion": "v1", **APPS}),
        (
            "/apis/apps/v1",
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": OF_APPS},
        ),
        ("/apis/apps/v2", None),
        ("/apis/metrics.k8s.io/v1", None),
        ("/apis/none", None),
    ],
)
def test_a_plain_document_is_made_of_the_aggregated_one(
    encoding: Encoding, path: str, plain: Json | None
) -> None:
    """Clients that read plain documents got 503, whatever kubectl had read."""
    made = in_form(path, AGGREGATED, BODY, encoding)
    if plain is None:
        assert made is None, "the cloud did not show such a group or version, which is no proof"
        return
    assert made is not None
    assert made[0] == encoding
    api_version, kind, raw = codec_for(encoding).decode_single(made[1])
    tree = orjson.loads(raw) if encoding is Encoding.JSON else json_object(api_version, kind, raw)
    assert tree == plain


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (f"{AGGREGATED},{JSON}", AGGREGATED),
        (AGGREGATED.replace(JSON, PROTOBUF), AGGREGATED.replace(JSON, PROTOBUF)),
        (AGGREGATED.replace("v=v2", "v=v2beta1") + f",{JSON}", JSON),
        ("*/*", JSON),
        (None, JSON),
        (PROTOBUF, PROTOBUF),
    ],
)
def test_a_client_gets_the_form_that_it_accepts(accept: str | None, content_type: str) -> None:
    made = in_form("/apis", AGGREGATED, BODY, accept)
    assert made is not None
    assert made[0] == content_type
