"""The store as tests use it: short to write, strict where a server is strict."""

from __future__ import annotations

from typing import Any

import pytest

from kube.errors import StatusError
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.scriptable.object_store import ObjectStore
from tests.cloud.scriptable.patches import PatchType
from tests.cloud.scriptable.protobuf import encode_message
from tests.cloud.scriptable.resources import ResourceTable
from tests.cloud.scriptable.storage import Storage


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore(Storage(), ResourceTable())


def service(name: str = "web", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def test_what_an_object_says_of_itself_decides_where_it_goes(store: ObjectStore) -> None:
    created = store.create(service())
    assert created["metadata"]["namespace"] == "default"
    assert store.get("services", "web", "default") == created
    assert store.list("services", "elsewhere") == []
    store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    assert [node["metadata"]["name"] for node in store.list("nodes")] == ["n"]


def test_what_comes_out_is_the_caller_s_own(store: ObjectStore) -> None:
    value = service()
    created = store.create(value)
    created["metadata"]["name"] = "changed"
    value["metadata"]["name"] = "changed"
    assert store.list("services")[0]["metadata"]["name"] == "web"


def test_lists_are_in_the_order_of_a_server(store: ObjectStore) -> None:
    for namespace, name in (("b", "a"), ("a", "b"), ("a-b", "a"), ("a", "a")):
        value = service(name)
        value["metadata"]["namespace"] = namespace
        store.create(value)
    places = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in store.list("services")]
    assert places == [("a-b", "a"), ("a", "a"), ("a", "b"), ("b", "a")]


def test_put_creates_and_replaces_whatever_was_there(store: ObjectStore) -> None:
    first = store.put(service(type="LoadBalancer"))
    second = store.put(
        {**service(type="NodePort"), "metadata": {**first["metadata"], "resourceVersion": "1"}}
    )
    assert second["spec"]["type"] == "NodePort"
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert store.version == int(second["metadata"]["resourceVersion"])


def test_services_get_addresses_and_keep_them(store: ObjectStore) -> None:
    plain, headless = store.create(service()), store.create(service("headless", clusterIP="None"))
    named = store.create(service("named", type="ExternalName", externalName="x"))
    assert plain["spec"]["clusterIPs"] == [plain["spec"]["clusterIP"]]
    assert headless["spec"]["clusterIPs"] == ["None"]
    assert "clusterIP" not in named["spec"]
    assert store.put(service(type="NodePort"))["spec"]["clusterIP"] == plain["spec"]["clusterIP"]


@pytest.mark.parametrize(
    ("patch_type", "patch"),
    [
        (PatchType.MERGE, {"metadata": {"labels": {"a": "b"}}}),
        (PatchType.JSON, [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
    ],
)
def test_patch(store: ObjectStore, patch_type: PatchType, patch: object) -> None:
    store.create(service())
    patched = store.patch("services", "web", patch, "default", patch_type=patch_type)
    assert patched["metadata"]["labels"] == {"a": "b"}


def test_update_is_optimistic(store: ObjectStore) -> None:
    created = store.create(service())
    store.update({**created, "spec": {"type": "NodePort"}})
    with pytest.raises(StatusError) as refused:
        store.update(created)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")


def test_delete_leaves_the_last_state_with_the_version_of_the_deletion(store: ObjectStore) -> None:
    store.create(service())
    last = store.delete("services", "web", "default")
    assert int(last["metadata"]["resourceVersion"]) == store.version
    with pytest.raises(StatusError) as refused:
        store.get("services", "web", "default")
    assert refused.value.code == 404


def test_an_emptied_namespace(store: ObjectStore) -> None:
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    store.create(service())
    store.delete("namespaces", "default")
    assert store.list("services") == []


def test_the_same_slice_in_two_versions(store: ObjectStore) -> None:
    endpoint = {"addresses": ["10.0.0.1"], "topology": {"kubernetes.io/hostname": "n"}}
    store.create(
        {
            "apiVersion": "discovery.k8s.io/v1beta1",
            "kind": "EndpointSlice",
            "metadata": {"name": "s"},
            "addressType": "IPv4",
            "endpoints": [endpoint],
        }
    )
    stored = store.get("endpointslices", "s", "default")
    assert stored["apiVersion"] == "discovery.k8s.io/v1"
    assert stored["endpoints"][0]["deprecatedTopology"] == endpoint["topology"]


def test_a_recorded_object_keeps_its_bytes_but_for_the_version(store: ObjectStore) -> None:
    value = {**service(clusterIP="1.2.3.4"), "metadata": {"name": "web", "namespace": "default"}}
    unknown_field = b"\xfa\x3e\x03abc"
    raw = encode_message(value) + unknown_field
    store.put_raw("services", raw, value)
    stored = store.find(ResourceTable().named("services"), "web", "default")
    assert stored.recorded is not None
    recorded = stored.recorded(stored.version)
    assert recorded.endswith(unknown_field)
    assert codec_for(Encoding.PROTOBUF).peek(recorded).version == store.version
    assert store.get("services", "web", "default")["spec"] == {"clusterIP": "1.2.3.4"}


def test_unknown_resources_are_a_mistake_of_the_test(store: ObjectStore) -> None:
    with pytest.raises(KeyError, match="'things'"):
        store.list("things")
    with pytest.raises(KeyError, match="'Thing'"):
        store.create({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t"}})
