"""The same write to a real kube-apiserver and to `updated` gives the same status, in both encodings, or the same
refusal."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from kube.errors import StatusError
from kube.json_type import Json
from kube.objects.object_patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from kube.objects.status_update import status_document, updated
from kube.objects.strategic_diff import strategic_diff
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.real import RealCloud

pytestmark = pytest.mark.real
"""A marker, as some tests request their fixture only at run time."""
OBJECTS = Path(__file__).parents[1] / "fixtures" / "statuses.yaml"
DROPPED = (
    "allocatedResources",
    "resources",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
    "nominatedNodeName",
)
"""Fields of a pod that a server without alpha features drops or refuses."""
TYPES = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "Other", "More"]
NO_ELEMENTS = "no elements in any of the given slices"
"""An element order for a list that is empty on both sides: the server fails (500), while `updated` returns an empty
list."""
THEN = "2026-01-02T03:14:05Z"


class Target(NamedTuple):
    cloud: RealCloud
    path: str
    kind: str

    def raw(self, encoding: Encoding) -> bytes:
        answer = self.cloud.admin.request("GET", self.path, headers={"Accept": encoding})
        assert answer.status == 200
        return codec_for(encoding).decode_single(answer.body)[2]

    def document(self, encoding: Encoding) -> Json:
        return status_document(encoding, "v1", self.kind, self.raw(encoding))

    def send(self, method: str, content_type: str, body: bytes) -> tuple[int, Json]:
        headers = {"Content-Type": content_type}
        answer = self.cloud.admin.request(method, f"{self.path}/status", body=body, headers=headers)
        return answer.status, answer.json()


def written(document: Json) -> Json:
    """Return the part of an object that a write of its status may change."""
    metadata = document["metadata"]
    return {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        **document["status"],
    }


def check(target: Target, method: str, content_type: str, body: bytes) -> None:
    """Send the write, and compare the server's object with `updated` applied to the previous one."""
    ours = {}
    before = {encoding: target.raw(encoding) for encoding in Encoding}
    for encoding, raw in before.items():
        after = updated(encoding, "v1", target.kind, raw, method, content_type, body)
        ours[encoding] = written(status_document(encoding, "v1", target.kind, after))
    status, theirs = target.send(method, content_type, body)
    if theirs.get("message") == NO_ELEMENTS:
        return
    assert status == 200, (body, theirs["message"])
    for encoding in Encoding:
        assert ours[encoding] == written(theirs), encoding


def create(cloud: RealCloud, collection: str, obj: Json, name: str) -> Target:
    metadata = {each: obj["metadata"][each] for each in ("labels", "annotations")}
    cloud.admin.post(collection, {**obj, "metadata": {**metadata, "name": name}})
    target = Target(cloud, f"{collection}/{name}", obj["kind"])
    status = {each: value for each, value in obj["status"].items() if each not in DROPPED}
    cloud.admin.patch(f"{target.path}/status", {"status": status})
    return target


def objects() -> dict[str, Json]:
    return {obj["kind"]: obj for obj in yaml.safe_load_all(OBJECTS.read_text())}


@pytest.fixture
def a_node(real_cloud: RealCloud, node: str) -> Target:
    return create(real_cloud, "/api/v1/nodes", objects()["Node"], node)


@pytest.fixture
def a_pod(real_cloud: RealCloud, namespace: str) -> Target:
    real_cloud.token(namespace, "default")  # creates the service account, without which no pods are admitted
    obj = objects()["Pod"]
    for status in obj["status"]["containerStatuses"]:
        status.pop("allocatedResourcesStatus", None)
        status.pop("stopSignal", None)
    return create(real_cloud, f"/api/v1/namespaces/{namespace}/pods", obj, "full")


def order(*types: str) -> list[Json]:
    return [{"type": each} for each in types]


NODE_PATCHES: list[Json] = [
    # the heartbeat of kubelet
    {
        "$setElementOrder/conditions": order("MemoryPressure", "DiskPressure", "Ready"),
        "conditions": [
            {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"},
            {"type": "Ready", "lastHeartbeatTime": THEN},
        ],
    },
    # kubelet at its start
    {
        "nodeInfo": {"kernelVersion": "6.13.0", "swap": {"capacity": 0}},
        "images": [{"names": ["registry.example/a:1"], "sizeBytes": 5}, {"names": ["registry.example/b:1"]}],
        "volumesInUse": ["kubernetes.io/csi/example.com^three"],
        "addresses": [{"$patch": "replace"}, {"type": "InternalIP", "address": "192.0.2.11"}],
        "capacity": {"cpu": "4", "example.com/gpu": None},
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10251}},
        "runtimeHandlers": [{"name": "crun", "features": {"userNamespaces": True}}],
        "features": {"supplementalGroupsPolicy": False},
    },
    # flannel, and the node lifecycle controller
    {"conditions": [{"type": "NetworkUnavailable", "status": "False", "lastTransitionTime": THEN}]},
    {"conditions": [{"type": "Ready", "status": "Unknown", "reason": None, "message": ""}]},
    {"conditions": [{"$patch": "delete", "type": "MemoryPressure"}]},
    {"$setElementOrder/conditions": order("Ready"), "conditions": []},
    {"$setElementOrder/conditions": order("Ready", "DiskPressure")},
    {"addresses": [{"type": "InternalIP", "address": "192.0.2.12"}, {"type": "Hostname", "address": "h"}]},
    {"addresses": [{"type": "InternalIP", "$patch": "delete"}]},
    {"volumesInUse": ["b", "a"], "$setElementOrder/volumesInUse": ["b", "a"]},
    {"$deleteFromPrimitiveList/volumesInUse": ["a", "x"]},
    {"nodeInfo": {"$patch": "replace", "machineID": "m2"}},
    {"nodeInfo": {"$retainKeys": ["machineID", "bootID"], "bootID": "b2"}},
    {"images": None, "volumesInUse": None, "features": None, "allocatable": None},
    {"conditions": [{"$patch": "replace"}, {"type": "Only", "status": "True"}]},
    {"conditions": None},
    {"conditions": [{"type": "Ready", "status": "True", "message": None}, {"type": "X", "$patch": "delete"}]},
    {"$patch": "replace", "phase": "Running"},
    {"$patch": "delete"},
]


def test_strategic_merge_patches_of_a_node_equal_the_servers_result(a_node: Target) -> None:
    for change in NODE_PATCHES:
        check(a_node, "PATCH", STRATEGIC_MERGE_PATCH, json.dumps({"status": change}).encode())


CONTAINER = {"name": "web", "ready": True, "restartCount": 0, "image": "nginx", "imageID": "nginx@sha256:00"}
POD_PATCHES: list[Json] = [
    # kubelet
    {
        "$setElementOrder/conditions": order(
            "PodReadyToStartContainers", "Initialized", "Ready", "PodScheduled"
        ),
        "conditions": [
            {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": THEN},
            {"type": "Ready", "status": "True", "reason": None, "message": None, "lastTransitionTime": THEN},
        ],
        "containerStatuses": [
            {
                **CONTAINER,
                "started": True,
                "containerID": "containerd://2",
                "state": {"running": {"startedAt": THEN}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": THEN}},
                "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
                "user": {"linux": {"uid": 0, "gid": 0, "supplementalGroups": [0]}},
            }
        ],
        "podIP": "10.20.0.6",
        "$setElementOrder/podIPs": [{"ip": "10.20.0.6"}, {"ip": "fd00:20::6"}],
        "podIPs": [
            {"ip": "10.20.0.6"},
            {"ip": "fd00:20::6"},
            {"$patch": "delete", "ip": "10.20.0.5"},
            {"$patch": "delete", "ip": "fd00:20::5"},
        ],
    },
    {"phase": "Failed", "reason": "Evicted", "message": "low on disk", "startTime": THEN},
    {"qosClass": None, "observedGeneration": None},
    {"conditions": [{"type": "Ready", "observedGeneration": None, "lastProbeTime": THEN}]},
    {"conditions": [{"type": "Ready", "status": "False", "$patch": "replace"}]},
    {"podIPs": [{"ip": "10.20.0.7"}]},
    {"podIP": "10.20.0.8"},
    {"podIPs": None, "podIP": "10.20.0.9"},
    {"podIP": None},
    {"hostIPs": [{"$patch": "replace"}, {"ip": "192.0.2.10"}]},
    {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "other"}]},
    {"resourceClaimStatuses": [{"$retainKeys": ["name"], "name": "gpu"}]},
    {"initContainerStatuses": [], "ephemeralContainerStatuses": None},
    {"containerStatuses": [{"name": "web", "ready": False, "state": {"waiting": {}}}]},
    {"startTime": None, "conditions": [{"$patch": "replace"}]},
    {},
]


def test_strategic_merge_patches_of_a_pod_equal_the_servers_result(a_pod: Target) -> None:
    uid = a_pod.document(Encoding.JSON)["metadata"]["uid"]
    for change in POD_PATCHES:
        body = {"metadata": {"uid": uid}, "status": change}
        check(a_pod, "PATCH", STRATEGIC_MERGE_PATCH, json.dumps(body).encode())


def generated(chance: random.Random) -> Json:
    """Return a generated patch of conditions and of a list that is replaced, unlike any client's."""
    chosen = chance.sample(TYPES, chance.randint(0, 4))
    conditions: list[Json] = []
    for each in chosen:
        match chance.randrange(6):
            case 0:
                conditions.append({"$patch": "delete", "type": each})
            case 1:
                conditions.append(
                    {"type": each, "status": "True", "reason": None, "message": chance.choice("ab")}
                )
            case _:
                conditions.append({"type": each, "status": chance.choice(["True", "False"]), "reason": "R"})
    if chance.random() < 0.1:
        conditions.insert(0, {"$patch": "replace"})
    status: Json = {"conditions": conditions} if chance.random() < 0.9 else {}
    if chance.random() < 0.5:
        named = [each["type"] for each in conditions if "$patch" not in each]
        for each in chance.sample(TYPES, 2):
            if each not in chosen:
                named.insert(chance.randint(0, len(named)), each)
        status["$setElementOrder/conditions"] = order(*named)
    if chance.random() < 0.3:
        status["volumesInUse"] = chance.sample("abc", chance.randint(0, 3))
    if chance.random() < 0.3:
        status["$deleteFromPrimitiveList/volumesInUse"] = chance.sample("abcd", 2)
        status.pop("volumesInUse", None)  # the server's response to both together varies
    if chance.random() < 0.2:
        status["$retainKeys"] = [*(each for each in status if not each.startswith("$")), "nodeInfo", "phase"]
    return status


def test_generated_patches_equal_the_servers_result(a_node: Target) -> None:
    chance = random.Random(7)
    for _ in range(150):
        check(a_node, "PATCH", STRATEGIC_MERGE_PATCH, json.dumps({"status": generated(chance)}).encode())


@pytest.mark.parametrize("which", ["a_node", "a_pod"])
def test_merge_patches_equal_the_servers_result(which: str, request: pytest.FixtureRequest) -> None:
    target: Target = request.getfixturevalue(which)
    merge_patches: list[Json] = [
        {"status": {"conditions": [{"type": "A", "status": "True", "reason": None}]}},
        {"status": {"phase": "Running"}},
        {"metadata": {"labels": {"app": None, "a": "1"}, "annotations": {"b": "2"}}},
        {"metadata": {"labels": None}},
        {"spec": {"nodeName": "x", "unschedulable": True}, "status": {"conditions": None}},
        {
            "status": {
                "conditions": [
                    {"type": "A", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05.5+02:00"}
                ]
            }
        },
        {"status": None},
    ]
    for patch in merge_patches:
        check(target, "PATCH", MERGE_PATCH, json.dumps(patch).encode())


def test_json_patches_equal_the_servers_result(a_pod: Target) -> None:
    json_patches: list[list[Json]] = [
        [{"op": "add", "path": "/status/conditions/0", "value": {"type": "A", "status": "True"}}],
        [{"op": "add", "path": "/status/conditions/-", "value": {"type": "B", "status": "True"}}],
        [
            {"op": "test", "path": "/status/conditions/0/type", "value": "A"},
            {"op": "replace", "path": "/status/conditions/0/status", "value": "False"},
            {"op": "remove", "path": "/status/conditions/-1"},
        ],
        [
            {"op": "copy", "from": "/status/conditions/0", "path": "/status/conditions/-"},
            {"op": "replace", "path": "/status/conditions/-1/type", "value": "C"},
        ],
        [{"op": "move", "from": "/status/conditions/0", "path": "/status/conditions/1"}],
        [
            {"op": "add", "path": "/metadata/annotations/a.b~1c~0d", "value": "x"},
            {"op": "remove", "path": "/metadata/annotations/a.b~1c~0d"},
        ],
        [{"op": "replace", "path": "/status/message", "value": "m"}],
        [{"op": "remove", "path": "/status/conditions"}],
    ]
    for patch in json_patches:
        check(a_pod, "PATCH", JSON_PATCH, json.dumps(patch).encode())


def test_refusals_equal_the_servers(a_pod: Target) -> None:
    before = {encoding: a_pod.raw(encoding) for encoding in Encoding}
    refused: list[tuple[str, str, bytes]] = [
        ("PATCH", STRATEGIC_MERGE_PATCH, b"{"),
        ("PATCH", STRATEGIC_MERGE_PATCH, b"[]"),
        ("PATCH", STRATEGIC_MERGE_PATCH, b'{"status":{"conditions":[{"type":5}]}}'),
        ("PATCH", STRATEGIC_MERGE_PATCH, b'{"status":{"$retainKeys":["phase"],"reason":"x"}}'),
        ("PATCH", STRATEGIC_MERGE_PATCH, b'{"metadata":{"resourceVersion":"1"}}'),
        ("PATCH", STRATEGIC_MERGE_PATCH, b'{"metadata":{"name":"x"}}'),
        ("PATCH", MERGE_PATCH, b"[]"),
        ("PATCH", MERGE_PATCH, b"null"),
        ("PATCH", MERGE_PATCH, b'{"metadata":{"labels":{"a":5}}}'),
        ("PATCH", MERGE_PATCH, b'{"status":{"startTime":"x","conditions":5}}'),
        ("PATCH", JSON_PATCH, b"{}"),
        ("PATCH", JSON_PATCH, b'[{"op":"test","path":"/status/phase","value":"x"}]'),
        ("PATCH", JSON_PATCH, b'[{"op":"remove","path":"/status/x"}]'),
        ("PATCH", JSON_PATCH, b'[{"op":"add","path":"/status/conditions/99","value":1}]'),
        ("PATCH", JSON_PATCH, b'[{"op":"add","path":"/status/x/y","value":1}]'),
        ("PATCH", JSON_PATCH, b'[{"op":"jump","path":"/status"}]'),
        ("PATCH", JSON_PATCH, json.dumps([{"op": "test", "path": "/kind", "value": "x"}] * 10_001).encode()),
        ("PATCH", "application/json", b"{}"),
        ("PUT", "application/json", b"{"),
        ("PUT", "application/json", b"{}"),
        ("PUT", "application/json", b'{"kind":"Service","apiVersion":"v1","metadata":{"name":"full"}}'),
        ("PUT", "application/json", b'{"metadata":{"name":"full"},"status":{"conditions":5}}'),
        ("PUT", "application/json", b'{"metadata":{"name":"full","uid":"x"}}'),
        ("PUT", "application/json", b'{"metadata":{"name":"full","resourceVersion":"1"}}'),
        ("PUT", "application/json", b'{"metadata":{"name":"full","namespace":"x"}}'),
        ("PUT", "application/merge-patch+json", b"{}"),
        ("PUT", Encoding.PROTOBUF, b"{}"),
        ("PUT", Encoding.PROTOBUF, b"k8s\0\xff"),
    ]
    for method, content_type, body in refused:
        status, theirs = a_pod.send(method, content_type, body)
        assert status >= 400, body
        for encoding, raw in before.items():
            with pytest.raises(StatusError) as caught:
                updated(encoding, "v1", "Pod", raw, method, content_type, body)
            assert (caught.value.code, caught.value.reason) == (status, theirs["reason"]), (body[:80], theirs)


@pytest.mark.parametrize("which", ["a_node", "a_pod"])
def test_the_server_accepts_the_written_object(
    which: str, encoding: Encoding, request: pytest.FixtureRequest
) -> None:
    target: Target = request.getfixturevalue(which)
    codec = codec_for(encoding)
    changes = (NODE_PATCHES if target.kind == "Node" else POD_PATCHES)[:2]
    for change in changes:
        body = json.dumps({"status": change}).encode()
        raw = updated(encoding, "v1", target.kind, target.raw(encoding), "PATCH", STRATEGIC_MERGE_PATCH, body)
        sent = codec.encode_single("v1", target.kind, raw)
        expected = written(status_document(encoding, "v1", target.kind, raw))
        check(target, "PUT", encoding, sent)
        assert written(target.document(encoding)) == expected


@pytest.mark.parametrize("which", ["a_node", "a_pod"])
def test_the_difference_replays_writes_made_while_the_server_was_away(
    which: str, encoding: Encoding, request: pytest.FixtureRequest
) -> None:
    target: Target = request.getfixturevalue(which)
    before = raw = target.raw(encoding)
    for change in (NODE_PATCHES if target.kind == "Node" else POD_PATCHES)[:4]:
        body = json.dumps({"status": change}).encode()
        raw = updated(encoding, "v1", target.kind, raw, "PATCH", STRATEGIC_MERGE_PATCH, body)
    first, last = (status_document(encoding, "v1", target.kind, each) for each in (before, raw))
    theirs = {"type": "example.com/Theirs", "status": "True", "lastProbeTime": None}
    target.cloud.admin.patch(
        f"{target.path}/status", {"status": {"conditions": [theirs]}}, STRATEGIC_MERGE_PATCH
    )
    diff = strategic_diff(first, last, target.kind)
    target.cloud.admin.patch(f"{target.path}/status", diff, STRATEGIC_MERGE_PATCH)
    now = target.document(encoding)["status"]
    conditions = {each["type"]: each for each in now.pop("conditions")}
    assert conditions.pop("example.com/Theirs")["status"] == "True"
    assert conditions == {each["type"]: each for each in last["status"].pop("conditions")}
    assert now == last["status"]
