"""Kubelet's lease as the hub answers it, online and offline, in both encodings."""

from __future__ import annotations

import json

import orjson
import pytest
from multidict import CIMultiDict

from addons.offline.cached_response import ResponseKey
from addons.requests.answers import ClientRequest, RelayToCloud
from addons.requests.caller import Caller, CredentialSource
from addons.requests.route_decision import Route, RouteKind
from kube.errors import StatusError
from kube.http.client import ApiResponse, Unreachable
from kube.json_type import Json
from kube.objects.object_patches import MERGE_PATCH
from kube.requests.request_info import parse_request
from tests.addons.support.exchange import Exchange
from tests.addons.support.lease_parts import GONE, LEASE, LEASES, World, lease, protobuf_lease
from tests.addons.support.offline_parts import JSON, PROTOBUF, read
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import raw

# -- responses to kubelet ------------------------------------------------------------------------------------------


async def test_each_verb_on_the_lease_is_answered(kubelet: World) -> None:
    kubelet.cloud.says = [GONE]

    async def send(method: str, target: str, body: Json | None = None) -> tuple[int, Json]:
        info, route = parse_request(method, target), Route(RouteKind.LOCAL, "test")
        wanted = ClientRequest(
            *(info, "kubelet", Caller(CredentialSource.HUB), route),
            target=target,
            headers=CIMultiDict({"Accept": JSON, "Content-Type": JSON}),
            body=raw(body) if body else b"",
        )
        exchange = Exchange()
        exchange.start(kubelet.lease.answer(wanted, exchange))
        found: Json = json.loads(await exchange.read_body())
        return await exchange.status, found

    assert (await send("GET", LEASE))[0] == 404
    kubelet.cloud.usual = lease(version=7)
    assert (await send("POST", LEASES, lease()))[0] == 201
    renewed = lease(version=7, duration=41)
    assert await send("PUT", LEASE, renewed) == (200, renewed)
    assert await send("GET", LEASE) == (200, renewed)
    assert (await send("PUT", LEASE, lease("n2")))[0] == 400


async def test_only_the_first_get_of_the_lease_reads_from_the_cloud(kubelet: World) -> None:
    kubelet.cloud.usual = lease(version=7)
    for _ in range(2):
        code, body, content_type = await kubelet.ask("GET")
        assert (code, read(body).version, content_type) == (200, 7, JSON)
    assert kubelet.cloud.lines == [("GET", LEASE)]


async def test_an_update_of_the_lease_is_answered_locally(kubelet: World) -> None:
    sent = lease(version=5)
    code, body, _ = await kubelet.ask("PUT", sent)
    assert (code, read(body).encode()) == (200, raw(sent))
    assert (await kubelet.ask("GET"))[1] == body
    assert not kubelet.cloud.heard


RENEWED: Json = {"spec": {"renewTime": "2026-01-02T03:04:15.000000Z"}}
PATCHES = {
    "application/merge-patch+json": RENEWED,
    "application/strategic-merge-patch+json": RENEWED,
    "application/json-patch+json": [
        {"op": "replace", "path": "/spec/renewTime", "value": RENEWED["spec"]["renewTime"]}
    ],
}


@pytest.mark.parametrize("content_type", PATCHES)
@pytest.mark.parametrize("is_up", [True, False])
@pytest.mark.parametrize("cached", [JSON, PROTOBUF])
async def test_a_patch_of_the_lease_is_answered_like_the_equivalent_put(
    kubelet: World, content_type: str, is_up: bool, cached: str
) -> None:
    await kubelet.ask("PUT", lease() if cached == JSON else protobuf_lease(), cached, cached)
    kubelet.is_up = is_up
    kubelet.now += 39
    patch = orjson.dumps(PATCHES[content_type])
    code, body, kind = await kubelet.ask("PATCH", patch, f"{PROTOBUF},{JSON}", content_type)
    wanted = lease()
    wanted["spec"] |= RENEWED["spec"]
    spec = read(body).fields.child("spec")
    assert (code, kind, spec.text("renewTime")) == (200, JSON, wanted["spec"]["renewTime"])
    assert (spec.text("holderIdentity"), spec.number("leaseDurationSeconds")) == ("n1", 40)
    assert (await kubelet.ask("GET"))[1] == body
    kubelet.now += 39
    assert kubelet.lease.is_alive()
    assert not kubelet.cloud.heard


async def test_a_patch_of_an_unknown_lease_is_relayed_and_its_response_stored(kubelet: World) -> None:
    kubelet.cloud.says = [GONE]
    merge = "application/merge-patch+json"
    with refuses(404):
        await kubelet.ask("PATCH", orjson.dumps(RENEWED), content_type=merge)
    kubelet.cloud.usual = lease(version=7)
    code, body, _ = await kubelet.ask("PATCH", orjson.dumps(RENEWED), content_type=merge)
    assert (code, read(body).version) == (200, 7)
    kubelet.is_up = False
    assert (await kubelet.ask("GET"))[1] == body
    kubelet.fresh()
    assert read((await kubelet.ask("PATCH", orjson.dumps(RENEWED), content_type=merge))[1]).version == 7


@pytest.mark.parametrize(
    ("patch", "content_type", "code"),
    [
        (b"{", "application/merge-patch+json", 400),
        (b'{"metadata": {"name": "n2"}}', "application/merge-patch+json", 400),
        (b'{"kind": "Pod"}', "application/merge-patch+json", 400),
        (b'[{"op": "test", "path": "/kind", "value": "Pod"}]', "application/json-patch+json", 422),
        (b"{}", "application/json", 415),
    ],
)
async def test_a_patch_that_a_server_would_refuse_is_refused(
    kubelet: World, patch: bytes, content_type: str, code: int
) -> None:
    await kubelet.put()
    before = await kubelet.ask("GET")
    with refuses(code):
        await kubelet.ask("PATCH", patch, content_type=content_type)
    assert await kubelet.ask("GET") == before


async def test_a_form_that_only_the_cloud_supports_is_relayed(kubelet: World) -> None:
    await kubelet.put()
    for method, content_type in (("PATCH", "application/apply-patch+yaml"), ("PUT", "application/yaml")):
        with pytest.raises(RelayToCloud):
            await kubelet.ask(method, raw(lease()), content_type=content_type)
    for accept in ("application/yaml", f"{JSON};as=Table;v=v1;g=meta.k8s.io"):
        with pytest.raises(RelayToCloud):
            await kubelet.ask("GET", accept=accept)


async def test_a_client_of_another_encoding_gets_the_lease_in_it(kubelet: World) -> None:
    for is_up in (True, False):
        kubelet.is_up = is_up
        code, _, content_type = await kubelet.ask("PUT", protobuf_lease(), JSON, PROTOBUF)
        assert (code, content_type) == (200, JSON)
        assert read((await kubelet.ask("GET", accept=JSON))[1]).name == "n1"
        code, _, content_type = await kubelet.ask("PATCH", b"{}", PROTOBUF, MERGE_PATCH)
        assert (code, content_type) == (200, PROTOBUF)
    assert not kubelet.cloud.heard


async def test_a_renewal_of_another_lease_is_refused(kubelet: World) -> None:
    """kube-apiserver compares the uid; the hub would have accepted the renewal, and then lost its own lease."""
    await kubelet.put()
    for is_up in (True, False):
        kubelet.is_up = is_up
        with refuses(409):
            await kubelet.put(uid="another")
        await kubelet.put(uid="")
        await kubelet.put()
    assert kubelet.lease.is_alive()


async def test_a_lease_that_kubelet_created_directly_in_the_cloud_is_renewed(kubelet: World) -> None:
    await kubelet.put()
    kubelet.cloud.usual = lease()
    kubelet.cloud.usual["metadata"]["uid"] = "new"
    await kubelet.put(uid="new")
    assert kubelet.cloud.lines == [("GET", LEASE)]
    assert read((await kubelet.ask("GET"))[1]).uid == "new"


@pytest.mark.parametrize(
    "accept",
    [f"{JSON};as=Table;v=v1;g=meta.k8s.io,{JSON}", f"{JSON};as=PartialObjectMetadata;v=v1;g=meta.k8s.io,*/*"],
)
async def test_a_lease_is_fetched_from_the_cloud_as_an_object_and_never_as_a_table(
    kubelet: World, accept: str
) -> None:
    """A table requested by a user must not become kubelet's lease."""
    kubelet.cloud.usual = lease(version=7)
    await kubelet.ask("GET", accept=accept)
    assert [each.accept for each in kubelet.cloud.heard] == [JSON]


async def test_a_creation_of_the_lease_is_sent_to_the_cloud(kubelet: World) -> None:
    kubelet.cloud.usual = lease(version=12)
    code, body, _ = await kubelet.ask("POST", lease())
    assert (code, read(body).version) == (201, 12)
    assert kubelet.cloud.lines == [("POST", LEASES)]


async def test_creating_an_existing_lease_is_a_conflict(kubelet: World) -> None:
    kubelet.cloud.says = [StatusError(409, "AlreadyExists", "there")]
    with refuses(409):
        await kubelet.ask("POST", lease())
    kubelet.is_up = False
    await kubelet.put()
    with pytest.raises(StatusError) as refused:
        await kubelet.ask("POST", lease())
    assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")


@pytest.mark.parametrize("how", ["known to be gone", "found to be gone"])
async def test_a_lease_is_created_locally_without_a_cloud(kubelet: World, how: str) -> None:
    if how == "known to be gone":
        kubelet.is_up = False
    kubelet.cloud.says = [Unreachable("no route")]
    code, body, _ = await kubelet.ask("POST", lease())
    assert (code, read(body).name) == (201, "n1")
    assert (await kubelet.ask("GET"))[0] == 200


@pytest.mark.parametrize(
    ("method", "name", "code"), [("PUT", "n2", 400), ("POST", "n2", 403), ("PUT", "", 400), ("POST", "", 400)]
)
async def test_the_lease_of_another_node_is_refused(
    kubelet: World, method: str, name: str, code: int
) -> None:
    with refuses(code):
        await kubelet.ask(method, lease(name))
    assert not kubelet.cloud.heard
    assert kubelet.lease.describe()["secondsSinceKubelet"] is None, "no sign of life"


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [(b"{", JSON, 400), (raw({**lease(), "kind": "Pod"}), JSON, 400), (b"x", "text/plain", 415)],
)
async def test_a_malformed_lease_is_no_heartbeat(
    kubelet: World, body: bytes, content_type: str, code: int
) -> None:
    with refuses(code):
        await kubelet.ask("PUT", body, content_type=content_type)
    assert kubelet.lease.describe() == {"node": "n1", "secondsSinceKubelet": None, "renewing": False}


@pytest.mark.parametrize(
    "answer",
    [
        ApiResponse("text/html", b"<html>"),
        ApiResponse(JSON, b"{"),
        ApiResponse(JSON, raw({"kind": "Status"})),
    ],
)
async def test_a_response_that_is_no_lease_counts_as_a_failure(kubelet: World, answer: ApiResponse) -> None:
    kubelet.cloud.usual = answer
    with refuses(503):
        await kubelet.ask("GET")
    assert (await kubelet.ask("POST", lease()))[0] == 201


# -- after a restart without a cloud -------------------------------------------------------------------------------


async def test_the_stored_lease_is_returned_without_a_cloud(kubelet: World) -> None:
    await kubelet.ask("PUT", protobuf_lease(), PROTOBUF, PROTOBUF)
    await kubelet.put()
    await kubelet.written()
    kubelet.fresh()
    kubelet.is_up = False
    assert read((await kubelet.ask("GET"))[1]).encode() == raw(lease())
    assert (await kubelet.ask("GET", accept=PROTOBUF))[2] == PROTOBUF


async def test_a_lease_that_was_never_cached_is_503_offline(kubelet: World) -> None:
    kubelet.is_up = False
    with refuses(503):
        await kubelet.ask("GET")


async def test_an_unreadable_stored_lease_is_ignored(kubelet: World) -> None:
    await kubelet.put()
    for name in list(kubelet.answers.index):
        kubelet.answers.cache_response(ResponseKey(name), {"content-type": JSON}, b"{")
    kubelet.fresh()
    kubelet.is_up = False
    with refuses(503):
        await kubelet.ask("GET")


async def test_only_changes_beside_the_renew_time_of_the_lease_are_written_to_disk(kubelet: World) -> None:
    cached: list[ResponseKey] = []
    cache = kubelet.answers.cache_response

    def count(name: ResponseKey, headers: dict[str, str], body: bytes) -> None:
        cached.append(name)
        cache(name, headers, body)

    vars(kubelet.answers)["cache_response"] = count
    for version in range(1, 5):
        await kubelet.ask("PUT", {**lease(version=version), "spec": {"renewTime": str(version)}})
    assert len(cached) == 1
    await kubelet.put(zone="a")
    assert len(cached) == 2
