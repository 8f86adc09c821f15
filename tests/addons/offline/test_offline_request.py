"""A request that the hub answers offline: its headers and body, the encoding of the response, and its Warning
header."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta

import pytest
from multidict import CIMultiDict

from addons.offline.copy_answers import copy_warning
from addons.offline.offline_request import SUFFIX_ALPHABET, SUFFIX_LENGTH, OfflineRequest
from kube.json_type import Json
from kube.requests.request_info import parse_request
from kube.schemas.recoded import recoded
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from tests.addons.support.offline_parts import JSON, PROTOBUF, asked, body_of, in_protobuf, read
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import raw

PODS = "/api/v1/namespaces/a/pods"


def pod(**metadata: str) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"unknown": 1}}


def test_headers_are_read_in_any_case_and_media_types_without_parameters() -> None:
    headers = CIMultiDict({"content-type": "application/json; charset=utf-8", "accept-encoding": "gzip"})
    made = OfflineRequest.of(parse_request("POST", PODS), PODS, headers, b"x")
    assert (made.content_type, made.accept, made.accept_encoding) == (JSON, None, "gzip")


def test_the_path_of_an_object_has_no_subresource_and_no_query() -> None:
    assert asked("PATCH", f"{PODS}/p/status?fieldManager=k").object_path == f"{PODS}/p"
    assert asked("PATCH", "/api/v1/nodes/n1/status").object_path == "/api/v1/nodes/n1"


@pytest.mark.parametrize(
    ("accept", "encodings"),
    [
        (None, [Encoding.JSON]),
        ("*/*", [Encoding.JSON]),
        (f"{PROTOBUF},{JSON}", [Encoding.PROTOBUF, Encoding.JSON]),
        (f"{JSON};as=Table;v=v1;g=meta.k8s.io,{JSON}", [Encoding.JSON]),
        (f"{JSON};as=Table;v=v1;g=meta.k8s.io", []),
        ("application/yaml", []),
    ],
)
def test_objects_are_encoded_as_the_client_accepts(accept: str | None, encodings: list[Encoding]) -> None:
    assert asked("GET", f"{PODS}/p", accept=accept).encodings() == encodings


def test_stored_responses_differ_by_body_identity_and_form() -> None:
    requests = [
        asked("POST", PODS, b"one"),
        asked("POST", PODS, b"other"),
        asked("POST", PODS, b"one", accept=PROTOBUF),
        asked("POST", f"{PODS}/p", b"one"),
    ]
    names = {each.key(identity) for each in requests for identity in ("", "alice")}
    assert len(names) == 2 * len(requests)
    assert asked("POST", PODS, b"one").key("") == requests[0].key("")


@pytest.mark.parametrize("encoding", Encoding)
def test_a_body_is_read_in_either_encoding(encoding: Encoding) -> None:
    body = body_of(in_protobuf("v1", "Pod", "p", "a")) if encoding is Encoding.PROTOBUF else b""
    body = body or json.dumps(pod(name="p", namespace="a")).encode()
    codec, obj = asked("POST", PODS, body, content_type=encoding).named("Pod")
    assert (codec.encoding, obj.name, obj.namespace, obj.kind) == (encoding, "p", "a", "Pod")


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"{", JSON, 400),
        (b"", JSON, 400),
        (b"[]", JSON, 400),
        (b"{}", JSON, 400),
        (json.dumps({**pod(name="p"), "kind": "Node"}).encode(), JSON, 400),
        (b"no magic", PROTOBUF, 400),
        (b"k8s\x00\xff\xff", PROTOBUF, 400),
        (b"kind: Pod", "application/yaml", 415),
        (json.dumps(pod(name="p", namespace="b")).encode(), JSON, 400),
        (json.dumps(pod()).encode(), JSON, 400),
    ],
)
def test_an_unacceptable_body_is_refused_with_kube_apiservers_code(
    body: bytes, content_type: str, code: int
) -> None:
    with refuses(code):
        asked("POST", PODS, body, content_type=content_type).named("Pod")


def test_a_body_without_a_content_type_is_json() -> None:
    assert asked("POST", PODS, pod(name="p"), content_type="").decoded("Pod")[0].encoding is Encoding.JSON


@pytest.mark.parametrize("lacking", [["kind"], ["apiVersion"], ["kind", "apiVersion"]])
def test_json_without_apiversion_or_kind_gets_them_from_its_path(lacking: list[str]) -> None:
    body = {name: value for name, value in pod(name="p").items() if name not in lacking}
    _, obj = asked("POST", PODS, body).named("Pod")
    assert (obj.api_version, obj.kind, obj.name) == ("v1", "Pod", "p")


def test_a_created_object_gets_a_generated_name_and_the_requests_namespace() -> None:
    _, obj = asked("POST", PODS, pod(generateName="web-")).named("Pod")
    assert re.fullmatch(rf"web-[{SUFFIX_ALPHABET}]{{{SUFFIX_LENGTH}}}", obj.name)
    assert obj.namespace == "a"
    assert json.loads(obj.encode())["spec"] == {"unknown": 1}
    assert asked("POST", PODS, pod(generateName="web-")).named("Pod")[1].name != obj.name


@pytest.mark.parametrize("encoding", Encoding)
def test_an_echo_is_the_sent_object_in_the_same_encoding(encoding: Encoding) -> None:
    obj = (
        in_protobuf("v1", "Pod", "p", "a")
        if encoding is Encoding.PROTOBUF
        else read(json.dumps(pod()).encode())
    )
    sent = Encoded.of(codec_for(encoding), obj)
    answer = asked("POST", PODS, accept=f"{PROTOBUF},{JSON}").answered(sent, 201)
    assert isinstance(answer.body, bytes)
    assert (answer.status, answer.headers["Content-Type"]) == (201, codec_for(encoding).content_type)
    assert answer.headers["Cache-Control"] == "no-cache, private"
    assert read(answer.body, encoding).encode() == obj.encode()


def test_a_response_is_in_an_encoding_that_the_client_accepts() -> None:
    sent = Encoded.of(codec_for(Encoding.PROTOBUF), in_protobuf("v1", "Pod", "p"))
    answer = asked("POST", PODS, accept=JSON).answered(sent, 201)
    assert isinstance(answer.body, bytes)
    assert json.loads(answer.body)["metadata"] == {"name": "p"}
    malformed = sent._replace(codec=codec_for(Encoding.JSON), raw=b'{"metadata":{"name":7}}')
    for accept, refused, code in (("text/plain", sent, 406), (PROTOBUF, malformed, 400)):
        with refuses(code):
            asked("POST", PODS, accept=accept).answered(refused)


NOW = datetime(2026, 11, 23, 12, 5)
COPIED, AWAY = NOW.replace(minute=3, second=10), NOW.replace(minute=3, second=20)


@pytest.mark.parametrize(
    ("copied", "away", "is_partial", "text"),
    [
        (COPIED, AWAY, False, "copy of 12:03:10, the cloud is away since 12:03:20"),
        (None, AWAY, False, "copy, the cloud is away since 12:03:20"),
        (COPIED - timedelta(days=1), None, False, "copy of 2026-11-22 12:03:10, the cloud is away"),
        (
            COPIED,
            AWAY,
            True,
            "copy of 12:03:10, the cloud is away since 12:03:20, and the list has this node's objects only",
        ),
    ],
)
def test_kubectl_gets_a_warning_with_the_age_and_gaps_of_the_copy(
    copied: datetime | None, away: datetime | None, is_partial: bool, text: str
) -> None:
    found = copy_warning("kubectl", NOW, copied, away, is_partial=is_partial)
    assert found == {"Warning": f'299 - "{text}"'}


def test_components_get_no_warning() -> None:
    assert copy_warning("kubelet", NOW, COPIED, AWAY, is_partial=False) == {}


ALL = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
NONE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
EVICTION = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}}


def packed(tree: Json) -> bytes:
    found = recoded(
        Encoded(codec_for(Encoding.JSON), tree["apiVersion"], tree["kind"], raw(tree)), Encoding.PROTOBUF
    )
    return found.body()


@pytest.mark.parametrize(
    ("method", "target", "body", "content_type", "is_dry"),
    [
        ("PATCH", f"{PODS}/p?dryRun=All", b"{}", JSON, True),
        ("PATCH", f"{PODS}/p?dry%52un=All", b"{}", JSON, True),
        ("PATCH", f"{PODS}/p?fieldManager=dryRun=", b'{"dryRun":["All"]}', JSON, False),
        ("DELETE", f"{PODS}/p?dryRun=All", b"", JSON, True),
        ("DELETE", f"{PODS}/p", b"", JSON, False),
        ("DELETE", f"{PODS}/p", raw(ALL), JSON, True),
        ("DELETE", PODS, raw(ALL), JSON, True),
        ("DELETE", f"{PODS}/p?dryRun=All", raw(NONE), JSON, False),
        ("DELETE", f"{PODS}/p", packed(ALL), PROTOBUF, True),
        ("DELETE", f"{PODS}/p?dryRun=All", packed(NONE), PROTOBUF, False),
        ("DELETE", f"{PODS}/p", b"dryRun: [All]", "application/yaml", True),
        ("POST", f"{PODS}/p/eviction", raw({**EVICTION, "deleteOptions": ALL}), JSON, True),
        ("POST", f"{PODS}/p/eviction", packed({**EVICTION, "deleteOptions": ALL}), PROTOBUF, True),
        ("POST", f"{PODS}/p/eviction", raw(EVICTION), JSON, False),
    ],
)
def test_a_dry_run_is_detected_in_every_option_that_the_cloud_reads(
    method: str, target: str, body: bytes, content_type: str, is_dry: bool
) -> None:
    assert asked(method, target, body, content_type=content_type).is_dry_run is is_dry
