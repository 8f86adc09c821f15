"""Writes of a status to recorded objects, in both encodings; test_status_update_real.py compares with a real server."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import StatusError
from kube.json_type import Json
from kube.objects.object_patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from kube.objects.status_update import status_document, updated, with_status
from kube.objects.strategic_diff import strategic_diff
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.kube.support.recorded import single
from tests.kube.support.wire_walker import find, walk

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF


def patched(
    encoding: Encoding, patch: object, fixture: str = "nodes.full", content_type: str = STRATEGIC_MERGE_PATCH
) -> Json:
    """Return the object after a patch, as a document."""
    api_version, kind, raw = single(fixture, encoding)
    body = json.dumps(patch).encode()
    written = updated(encoding, api_version, kind, raw, "PATCH", content_type, body)
    return status_document(encoding, api_version, kind, written)


def refused(
    encoding: Encoding, method: str, content_type: str, body: object, fixture: str = "pods.full"
) -> StatusError:
    api_version, kind, raw = single(fixture, encoding)
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(StatusError) as caught:
        updated(encoding, api_version, kind, raw, method, content_type, sent)
    return caught.value


def document(fixture: str, encoding: Encoding = JSON) -> Json:
    return status_document(encoding, *single(fixture, encoding))


@pytest.mark.parametrize("fixture", ["nodes.full", "pods.full", "nodes.single", "pods.single"])
def test_a_protobuf_status_is_read_as_the_servers_json(fixture: str) -> None:
    theirs = document(fixture)
    del theirs["spec"], theirs["metadata"]["managedFields"]
    assert document(fixture, PROTOBUF) == theirs


@pytest.mark.parametrize("fixture", ["nodes.full", "pods.full"])
def test_emptying_and_restoring_a_status_restores_the_object(encoding: Encoding, fixture: str) -> None:
    api_version, kind, raw = single(fixture, encoding)
    before = document(fixture, encoding)
    bare = with_status(encoding, api_version, kind, raw, {"metadata": None})
    emptied = status_document(encoding, api_version, kind, bare)
    assert "labels" not in emptied["metadata"]
    assert "conditions" not in emptied["status"]
    full = with_status(encoding, api_version, kind, bare, before)
    assert status_document(encoding, api_version, kind, full) == before


@pytest.mark.parametrize("fixture", ["nodes.full", "pods.full"])
def test_other_fields_of_a_message_are_preserved_byte_for_byte(fixture: str) -> None:
    api_version, kind, raw = single(fixture, PROTOBUF)
    # A field that no table has.
    unknown = b"\xf2\x7f\x05later"
    raw += unknown
    change = {
        "metadata": {"labels": {"a": "1"}, "finalizers": None, "ownerReferences": None, "generation": 99},
        "spec": {"providerID": "other", "nodeName": "other"},
        "status": {"phase": "Changed"},
    }
    body = json.dumps(change).encode()
    written = updated(PROTOBUF, api_version, kind, raw, "PATCH", MERGE_PATCH, body)
    assert status_document(PROTOBUF, api_version, kind, written)["status"]["phase"] == "Changed"
    assert find(written, 2) == find(raw, 2)
    assert written.endswith(unknown)
    labels = 11
    ours, theirs = (
        sorted(field for field in walk(find(each, 1)[0]) if field.number != labels) for each in (written, raw)
    )
    assert ours == theirs


def test_other_fields_of_a_json_object_are_preserved() -> None:
    api_version, kind, raw = single("pods.full", JSON)
    before = {**orjson.loads(raw), "later": {"a": [None]}}
    before["status"]["later"] = 1
    change = b'{"metadata":{"labels":{"app":null},"annotations":{"a":"1"},"finalizers":["x"]},"status":{"phase":"x"}}'
    written = updated(JSON, api_version, kind, orjson.dumps(before), "PATCH", MERGE_PATCH, change)
    before["metadata"]["annotations"]["a"] = "1"
    del before["metadata"]["labels"]
    before["status"]["phase"] = "x"
    assert orjson.loads(written) == before


def test_a_node_status_of_kubelet_is_merged(encoding: Encoding) -> None:
    before = document("nodes.full", encoding)
    heartbeat = {"lastHeartbeatTime": "2026-01-02T03:09:05Z", "type": "Ready"}
    addresses = [{"type": "InternalIP", "address": "192.0.2.11"}, {"type": "Hostname", "address": "full"}]
    after = patched(
        encoding,
        {
            "status": {
                "$setElementOrder/conditions": [{"type": "MemoryPressure"}, {"type": "Ready"}],
                "conditions": [heartbeat],
                "addresses": [{"$patch": "replace"}, *addresses],
                "nodeInfo": {"kernelVersion": "6.13.0"},
                "volumesInUse": None,
                "images": [{"names": ["a"], "sizeBytes": 5}],
            }
        },
    )
    ready, pressure = before["status"]["conditions"]
    expected = {
        **before["status"],
        "conditions": [pressure, {**ready, **heartbeat}],
        "addresses": addresses,
        "nodeInfo": {**before["status"]["nodeInfo"], "kernelVersion": "6.13.0"},
        "images": [{"names": ["a"], "sizeBytes": 5}],
    }
    del expected["volumesInUse"]
    assert after == {**before, "status": expected}


def test_defaults_of_the_server_apply_to_a_pod_status(encoding: Encoding) -> None:
    before = document("pods.full", encoding)
    conditions = [{"type": "Ready", "status": "True"}, {"type": "New", "status": "True"}]
    sent = {**before, "status": {"conditions": conditions, "podIP": "10.20.0.9"}}
    after = patched(
        encoding,
        {"status": sent["status"], "metadata": {"uid": before["metadata"]["uid"]}},
        "pods.full",
        MERGE_PATCH,
    )["status"]
    assert [each.get("observedGeneration") for each in after["conditions"]] == [1, None]
    assert after["podIPs"] == [{"ip": "10.20.0.9"}]
    gone = patched(encoding, {"status": None}, "pods.full", MERGE_PATCH)["status"]
    assert gone == {"qosClass": "Burstable", "observedGeneration": 1}
    other = {"status": {"podIP": None, "podIPs": [{"ip": "10.20.0.8"}]}}
    assert patched(encoding, other, "pods.full", MERGE_PATCH)["status"]["podIP"] == "10.20.0.8"


def test_defaults_of_the_server_apply_to_a_node_status(encoding: Encoding) -> None:
    change = {"status": {"allocatable": None, "config": {"error": "x"}}}
    after = patched(encoding, change, "nodes.full", MERGE_PATCH)["status"]
    assert after["allocatable"] == after["capacity"]
    assert "config" not in after


@pytest.mark.parametrize("sent_as", list(Encoding))
@pytest.mark.parametrize(("fixture", "resource"), [("nodes.full", "nodes"), ("pods.full", "pods")])
def test_put_replaces_the_status(encoding: Encoding, sent_as: Encoding, fixture: str, resource: str) -> None:
    api_version, kind, raw = single(fixture, encoding)
    _, _, other = single(fixture, sent_as)
    wanted = {**document(fixture, sent_as), "metadata": {"name": "full", "labels": {"a": "1"}}}
    wanted["status"]["phase"] = "Failed"
    codec = codec_for(sent_as)
    body = codec.encode_single(api_version, kind, with_status(sent_as, api_version, kind, other, wanted))
    written = updated(encoding, api_version, kind, raw, "PUT", f"{sent_as};charset=utf-8", body)
    before = document(fixture, encoding)
    metadata = {name: value for name, value in before["metadata"].items() if name != "annotations"}
    assert status_document(encoding, api_version, kind, written) == {
        **before,
        "metadata": {**metadata, "labels": {"a": "1"}},
        "status": {**before["status"], "phase": "Failed"},
    }
    assert resource == f"{kind.lower()}s"


def test_put_accepts_a_body_without_kind_and_version(encoding: Encoding) -> None:
    api_version, kind, raw = single("nodes.full", encoding)
    body = b'{"metadata":{"name":"full"},"status":{"phase":"x"}}'
    written = updated(encoding, api_version, kind, raw, "PUT", "", body)
    assert status_document(encoding, api_version, kind, written)["status"]["phase"] == "x"


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
@pytest.mark.parametrize(
    ("metadata", "code", "message"),
    [
        (
            {"resourceVersion": "1"},
            409,
            'Operation cannot be fulfilled on pods "full": the object has been modified; '
            "please apply your changes to the latest version and try again",
        ),
        ({"name": "x"}, 400, "the name of the object (x) does not match the name on the URL (full)"),
        ({"name": None}, 400, "the name of the object () does not match the name on the URL (full)"),
        ({"namespace": "x"}, 400, "the namespace of the provided object does not match the namespace sent"),
    ],
)
def test_a_write_for_another_object_or_version_is_refused(
    encoding: Encoding, method: str, metadata: Json, code: int, message: str
) -> None:
    content_type = MERGE_PATCH if method == "PATCH" else JSON
    body = {"metadata": metadata if method == "PATCH" else {"name": "full", **metadata}, "status": {}}
    error = refused(encoding, method, content_type, body)
    assert error.code == code
    assert error.message.startswith(message)
    assert error.reason == ("Conflict" if code == 409 else "BadRequest")
    assert error.details == ({"name": "full", "kind": "pods"} if code == 409 else {})


def test_a_put_with_another_uid_is_a_conflict_and_a_patch_is_invalid(encoding: Encoding) -> None:
    """In kube-apiserver a PUT names a precondition, while a patch changes the field."""
    put = refused(encoding, "PUT", JSON, {"metadata": {"name": "full", "uid": "x"}, "status": {}})
    assert (put.code, put.reason) == (409, "Conflict")
    assert 'pods "full": Precondition failed: UID in precondition: x,' in put.message
    patch = refused(encoding, "PATCH", MERGE_PATCH, {"metadata": {"uid": "x"}})
    text = 'Pod "full" is invalid: metadata.uid: Invalid value: "x": field is immutable'
    assert (patch.code, patch.reason, patch.message) == (422, "Invalid", text)


def test_a_write_for_this_object_and_version_is_accepted(encoding: Encoding) -> None:
    metadata = document("pods.full")["metadata"]
    same = {name: metadata[name] for name in ("uid", "resourceVersion", "name", "namespace")}
    after = patched(encoding, {"metadata": same, "status": {"phase": "x"}}, "pods.full")
    assert after["metadata"]["resourceVersion"] == metadata["resourceVersion"]
    patched(encoding, {"metadata": {"namespace": "x", "resourceVersion": None, "uid": ""}}, "nodes.full")


@pytest.mark.parametrize(
    ("method", "content_type", "body", "code"),
    [
        ("PATCH", STRATEGIC_MERGE_PATCH, b"{", 400),
        ("PATCH", STRATEGIC_MERGE_PATCH, {"status": {"conditions": [{"type": 5}]}}, 422),
        ("PATCH", MERGE_PATCH, {"status": {"phase": 5}}, 422),
        ("PATCH", MERGE_PATCH, {"metadata": {"labels": {"a": 5}}}, 422),
        ("PATCH", MERGE_PATCH, {"status": "x"}, 422),
        ("PATCH", MERGE_PATCH, {"metadata": "x"}, 400),
        ("PATCH", JSON_PATCH, [{"op": "test", "path": "/status/phase", "value": "x"}], 422),
        ("PATCH", "application/apply-patch+yaml", {}, 415),
        ("PATCH", "application/json", {}, 415),
        ("PUT", "application/merge-patch+json", {}, 415),
        ("PUT", "application/yaml", {}, 415),
        ("PUT", JSON, b"{", 400),
        ("PUT", JSON, [], 400),
        ("PUT", JSON, {}, 400),
        ("PUT", JSON, {"metadata": {"name": "full"}, "status": {"phase": 5}}, 400),
        ("PUT", JSON, {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "full"}}, 400),
        ("PUT", JSON, {"kind": "Pod", "apiVersion": "v2", "metadata": {"name": "full"}}, 400),
        ("PUT", PROTOBUF, b"{}", 400),
        ("PUT", PROTOBUF, b"k8s\0\xff", 400),
        ("POST", JSON, {}, 405),
    ],
)
def test_malformed_status_writes_are_refused(
    encoding: Encoding, method: str, content_type: str, body: object, code: int
) -> None:
    assert refused(encoding, method, content_type, body).code == code


def test_an_envelope_with_a_malformed_protobuf_message_is_refused(encoding: Encoding) -> None:
    body = codec_for(PROTOBUF).encode_single("v1", "Pod", b"\xff")
    assert refused(encoding, "PUT", PROTOBUF, body).code == 400


def test_kinds_without_a_table_are_refused(encoding: Encoding) -> None:
    api_version, kind, raw = single("leases.single", encoding)
    with pytest.raises(LookupError, match="Lease"):
        status_document(encoding, api_version, kind, raw)
    with pytest.raises(LookupError, match="Lease"):
        updated(encoding, api_version, kind, raw, "PATCH", MERGE_PATCH, b"{}")


def test_a_malformed_object_is_refused(encoding: Encoding) -> None:
    with pytest.raises(ValueError, match=r"."):
        updated(encoding, "v1", "Pod", b"\xff", "PATCH", MERGE_PATCH, b"{}")


NAMES = st.sampled_from(["Ready", "PodScheduled", "Initialized", "New"])
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {"type": NAMES, "status": st.sampled_from(["True", "False"])},
        optional={
            "reason": st.sampled_from(["", "A"]),
            "lastTransitionTime": st.just("2026-01-02T03:04:05Z"),
        },
    ),
    max_size=4,
    unique_by=lambda condition: condition["type"],
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["web", "side"]), "ready": st.booleans(), "restartCount": st.integers(0, 3)},
        optional={"started": st.booleans(), "state": st.just({"running": {"startedAt": None}})},
    ),
    max_size=2,
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "conditions": st.one_of(st.none(), CONDITIONS),
        "containerStatuses": st.one_of(st.none(), CONTAINERS),
        "phase": st.sampled_from(["", "Running", None]),
        "allocatedResources": st.dictionaries(
            st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", None]), max_size=2
        ),
    },
)


@given(CHANGES, st.sampled_from([MERGE_PATCH, STRATEGIC_MERGE_PATCH]))
def test_both_encodings_and_the_difference_give_the_same_object(change: Json, content_type: str) -> None:
    results = [patched(encoding, {"status": change}, "pods.full", content_type) for encoding in Encoding]
    assert results[0]["status"] == results[1]["status"]
    for encoding, after in zip(Encoding, results, strict=True):
        diff = strategic_diff(document("pods.full", encoding), after, "Pod")
        again = patched(encoding, diff, "pods.full")
        for each in (again, after):
            each["status"].get("conditions", []).sort(key=lambda condition: condition["type"])
        # Missing conditions equal an empty list.
        assert again == after
