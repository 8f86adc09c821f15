"""Forms of a view's responses: a client gets the form that kube-apiserver would send, and the same refusals."""

from __future__ import annotations

import asyncio
import itertools

import pytest
import yaml

from tests.cloud.real import RealCloud
from tests.cloud.rest import Answer, RestClient
from tests.hub.support.objects import headless
from tests.hub.support.process import Hub
from tests.hub.test_filtered_tables import KIND, READERS, widget

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
PARTIAL = [
    f"{encoding};as=PartialObjectMetadata{suffix};v={version};g=meta.k8s.io"
    for encoding, suffix, version in itertools.product((JSON, PROTOBUF), ("", "List"), ("v1", "v1beta1"))
]
VERBS = {
    "list": "?resourceVersion=0",
    "get": "/one",
    "watch": "?watch=true&resourceVersion=0&timeoutSeconds=1",
}


@pytest.fixture(scope="module")
def objects(real_cloud: RealCloud, hub: Hub) -> str:
    """Create a Service and a Widget; return their namespace."""
    name = "filtered-forms"
    real_cloud.admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
    real_cloud.apply([yaml.safe_load(KIND), *READERS])
    real_cloud.kubectl("wait", "--for=condition=Established", "crd/widgets.acme.example")
    real_cloud.admin.post(f"/api/v1/namespaces/{name}/services", headless("one", 20))
    real_cloud.admin.post(f"/apis/acme.example/v1/namespaces/{name}/widgets", widget("one", "a"))
    return name


@pytest.mark.parametrize(
    "accept", ["*/*", "application/*", "application/*,application/json", "text/html", PROTOBUF, *PARTIAL]
)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("group", "resource", "component"),
    [("api/v1", "services", "kube-proxy"), ("apis/acme.example/v1", "widgets", "flanneld")],
)
async def test_a_filtered_response_has_the_form_that_kube_apiserver_sends(
    hub: Hub,
    real_cloud: RealCloud,
    objects: str,
    group: str,
    resource: str,
    component: str,
    verb: str,
    accept: str,
) -> None:
    kinds = (b"PartialObjectMetadataList", b"PartialObjectMetadata")

    def shape(answer: Answer) -> tuple[object, ...]:
        """Return code, media type, the first kind and version in the body, and whether it contains the object."""
        head, headers = answer.body[:300], {name.lower(): value for name, value in answer.headers.items()}
        kind = next((kind for kind in kinds if kind in head), b"")
        is_beta = b"meta.k8s.io/v1beta1" in head
        return answer.status, headers.get("content-type"), kind, is_beta, b"one" in answer.body

    target = f"/{group}/namespaces/{objects}/{resource}{VERBS[verb]}"
    headers = {"Accept": accept, "User-Agent": f"{component}/v1"}
    with RestClient(hub.url) as client:
        behind = await asyncio.to_thread(client.request, "GET", target, headers=headers)
    straight = await asyncio.to_thread(real_cloud.admin.request, "GET", target, headers=headers)
    if verb == "watch" and "List" in accept:
        # kube-apiserver answers 200 and sends nothing, and so does a relayed watch.
        assert (straight.status, straight.body, behind.status in (200, 406)) == (200, b"", True)
    elif straight.status == 406:
        assert behind.status == 406
    else:
        assert shape(behind) == shape(straight), (behind.body[:300], straight.body[:300])
