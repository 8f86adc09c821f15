"""The route of each request: answered by the hub, or relayed to the cloud and filtered."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import cast

import pytest
from mitmproxy import flow as mitmproxy_flow
from mitmproxy import http
from mitmproxy.test import tflow

from addons.filters.filter import Filter
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Verdict, ignore_note
from addons.offline.cached_response import MAX_UNPACKED
from addons.requests.caller import Caller
from addons.requests.route_decision import RouteKind
from addons.rules.filter_bindings import Bindings
from addons.rules.table import parse_rules
from addons.telemetry import metrics
from kube.json_type import Json
from kube.wire.api_objects import ApiObject
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.hand_source import HandSource
from tests.addons.support.observed import value_of
from tests.addons.support.routed import ANSWERERS, Routed, decided, flow_of, route_of, router_before_the_start
from tests.addons.support.samples import (
    HUB,
    NOBODY,
    SERVICES,
    SLICES,
    cloud_service,
    endpoint_slice,
    fill,
    raw,
    service,
)

ONE_SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-1"
ONE_SERVICE = "/api/v1/namespaces/default/services/web"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TOPOLOGY = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}


def body(flow: http.HTTPFlow) -> Json:
    assert flow.response is not None
    found: Json = json.loads(flow.response.content or b"")
    return found


def code_of(flow: http.HTTPFlow) -> int:
    return flow.response.status_code if flow.response is not None else 0


def requests(component: str, verb: str, resource: str, route: str, code: int) -> float:
    return value_of(metrics.REQUESTS.labels(component, verb, resource, route, code))


# -- requests ------------------------------------------------------------------------------------------------------


async def test_a_request_for_a_view_is_answered_by_the_hub_with_an_unchanged_flow(routed: Routed) -> None:
    caller = Caller(HUB.credential_source, "")
    flow = await routed.request(f"{SLICES}?watch=true", caller=caller, Cookie="secret", Connection="close")
    assert decided(flow).answerer is ANSWERERS[RouteKind.VIEW]
    assert flow.request.headers["Connection"] == "close"
    assert (flow.request.host, flow.response) == ("address", None)


async def test_a_relayed_request_is_unchanged(routed: Routed) -> None:
    flow = await routed.request("/version", "kubectl")
    assert (flow.request.host, flow.response) == ("address", None)
    assert flow.request.headers["Accept-Encoding"] == "gzip"
    assert route_of(flow) is RouteKind.RELAY


@pytest.mark.parametrize(
    ("accept", "asked"),
    [
        ("application/json", "application/json"),
        (None, "application/json"),
        (f"{PROTOBUF},application/json", f"{PROTOBUF},application/json"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json"),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "application/json"),
    ],
)
async def test_an_object_to_be_filtered_is_requested_complete_and_uncompressed(
    routed: Routed, accept: str | None, asked: str
) -> None:
    flow = await routed.request(ONE_SLICE, accept=accept)
    assert flow.request.headers["Accept"] == asked
    assert "Accept-Encoding" not in flow.request.headers


async def test_upgrade_headers_are_removed_from_requests_to_be_filtered(routed: Routed) -> None:
    flow = await routed.request(ONE_SLICE, Upgrade="websocket", Connection="Upgrade")
    assert "Upgrade" not in flow.request.headers


async def test_a_refusal_by_the_route_decision_is_the_response(routed: Routed) -> None:
    assert code_of(await routed.request(SLICES, caller=NOBODY)) == 401
    assert code_of(await routed.request(SLICES, accept="text/html")) == 406


async def test_a_request_that_rules_could_filter_waits_for_the_rules(routed: Routed) -> None:
    routed.known.is_known = False
    flow = await routed.request(SLICES)
    assert (code_of(flow), routed.known.waited) == (503, 1)
    assert flow.response is not None
    assert flow.response.headers["Retry-After"] == "1"
    assert code_of(await routed.request("/version")) == 0
    assert routed.known.waited == 1


async def test_a_request_before_the_start_is_503() -> None:
    flow = flow_of("/version")
    await router_before_the_start().requestheaders(flow)
    assert code_of(flow) == 503


async def test_a_hub_without_an_identity_answers_503(routed: Routed) -> None:
    routed.missing = "nobody has signed it"
    assert code_of(await routed.request("/version")) == 503
    routed.missing = ""
    assert code_of(await routed.request("/version")) == 0


async def test_an_unresolved_flow_is_500(routed: Routed) -> None:
    flow = tflow.tflow()
    await routed.router.requestheaders(flow)
    assert code_of(flow) == 500


# -- responses -----------------------------------------------------------------------------------------------------


def topology(routed: Routed, annotations: dict[str, str] = TOPOLOGY) -> None:
    """Provide the hub with the Service whose slices are requested."""
    fill(routed.sources.setdefault("services", HandSource()).store, [service("web", 5, annotations)], 7)


async def test_a_single_object_is_filtered(routed: Routed) -> None:
    topology(routed)
    flow = await routed.request(ONE_SLICE)
    await routed.answer(flow, endpoint_slice("web-1", ["n1", "n2"], 6))
    assert code_of(flow) == 200
    assert [each["nodeName"] for each in body(flow)["endpoints"]] == ["n1"]
    assert flow.response is not None
    assert flow.response.headers["Content-Length"] == str(len(flow.response.content or b""))


async def test_an_unfiltered_object_is_byte_for_byte_the_clouds(routed: Routed) -> None:
    topology(routed, {})
    sent = (
        raw(endpoint_slice("web-1", ["n1", "n2"], 6)) + b"\n"
    )  # kube-apiserver ends a body with a line break
    flow = await routed.answer(await routed.request(ONE_SLICE), sent)
    assert flow.response is not None
    assert flow.response.content == sent


async def test_a_hidden_object_is_404_and_counted_as_404(routed: Routed) -> None:
    seen = ("reader", "get", "services", "relay", 404)
    before = requests(*seen)
    flow = await routed.answer(await routed.request(ONE_SERVICE), cloud_service("web", 6))
    assert code_of(flow) == 404
    assert body(flow)["details"] == {"name": "web", "kind": "services"}
    assert "LoadBalancer" not in str(body(flow))
    assert requests(*seen) == before + 1


async def test_metadata_of_a_filtered_object_is_made_by_the_hub(routed: Routed) -> None:
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    flow = await routed.answer(await routed.request(ONE_SERVICE, accept=accept), service("web", 6))
    assert (body(flow)["kind"], body(flow)["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert "spec" not in body(flow)


async def test_a_table_of_a_filtered_object_is_made_by_the_hub(routed: Routed) -> None:
    topology(routed)
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    for query, include in (("", "PartialObjectMetadata"), ("?includeObject=Object", "EndpointSlice")):
        flow = await routed.request(ONE_SLICE + query, accept=table)
        await routed.answer(flow, endpoint_slice("web-1", ["n1", "n2"], 6))
        made = body(flow)
        (row,) = made["rows"]
        assert (made["kind"], made["metadata"]) == ("Table", {"resourceVersion": "6"})
        assert dict(zip((each["name"] for each in made["columnDefinitions"]), row["cells"], strict=True))[
            "Endpoints"
        ] == ("10.0.0.1")
        assert row["object"]["kind"] == include


@pytest.mark.parametrize("code", [404, 403, 500])
async def test_the_clouds_own_refusal_is_relayed(routed: Routed, code: int) -> None:
    flow = await routed.answer(await routed.request(ONE_SLICE), b"sorry", code, "text/plain")
    assert flow.response is not None
    assert (code_of(flow), flow.response.content) == (code, b"sorry")


@pytest.mark.parametrize(
    ("sent", "media_type"),
    [
        (b"{", "application/json"),
        (b"", "application/json"),
        (b"k8s\x00garbage", PROTOBUF),
        (codec_for(Encoding.PROTOBUF).encode_single("v1", "Pod", b"garbage"), PROTOBUF),
        (b'{"kind":"Table","columnDefinitions":[],"rows":[]}', "application/json"),
        (b"<html>", "text/html"),
        (b"{}", ""),
    ],
)
async def test_an_unreadable_response_is_not_relayed(
    routed: Routed, sent: bytes, media_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets the reason, and the log has no stack trace, as this is no fault of the hub."""
    topology(routed)
    before = requests("reader", "get", "endpointslices", "relay", 500)
    flow = await routed.answer(await routed.request(ONE_SLICE), sent, media_type=media_type)
    assert code_of(flow) == 500
    assert (body(flow)["kind"], body(flow)["code"]) == ("Status", 500)
    assert "the cloud's answer cannot be parsed" in body(flow)["message"]
    assert requests("reader", "get", "endpointslices", "relay", 500) == before + 1
    assert not caplog.records


@pytest.mark.parametrize("packed", [gzip.compress(b" " * (MAX_UNPACKED + 1)), b"no gzip"])
async def test_a_response_is_decompressed_for_a_filter_up_to_a_bound(routed: Routed, packed: bytes) -> None:
    """The hub once decompressed 4 MB of unrequested gzip to 4 GB."""
    topology(routed)
    flow = await routed.request(ONE_SLICE)
    flow.response = http.Response.make(200, b"", {"Content-Type": "application/json"})
    flow.response.headers["Content-Encoding"] = "gzip"
    flow.response.raw_content = packed
    routed.router.responseheaders(flow)
    await routed.router.response(flow)
    assert code_of(flow) == 500
    assert "unpack" in body(flow)["message"]


async def test_nothing_is_relayed_if_a_filter_fails(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        name = "failing"

        def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
            raise RuntimeError("broken")

    monkeypatch.setattr(Bindings, "chain", lambda *_: (cast(Filter, Failing()),))
    before = requests("reader", "get", "services", "relay", 500)
    flow = await routed.answer(await routed.request(ONE_SERVICE), service("web", 6))
    assert code_of(flow) == 500
    assert "ports" not in str(body(flow))
    assert requests("reader", "get", "services", "relay", 500) == before + 1


async def test_a_response_waits_for_an_unknown_input(routed: Routed) -> None:
    flow = await routed.request(ONE_SLICE)
    answering = asyncio.create_task(routed.answer(flow, endpoint_slice("web-1", ["n1", "n2"], 6)))
    await asyncio.sleep(0)
    topology(routed)
    await answering
    assert [each["nodeName"] for each in body(flow)["endpoints"]] == ["n1"]


async def test_an_input_that_stays_unknown_is_a_503(routed: Routed) -> None:
    flow = await routed.answer(await routed.request(ONE_SLICE), endpoint_slice("web-1", ["n1"], 6))
    assert code_of(flow) == 503
    assert flow.response is not None
    assert flow.response.headers["Retry-After"] == "1"


async def test_a_response_from_a_view_is_streamed_and_one_to_be_filtered_is_not(routed: Routed) -> None:
    for target, streamed in ((f"{SLICES}?watch=true", True), (ONE_SLICE, False)):
        flow = await routed.request(target)
        flow.response = http.Response.make(200)
        routed.router.responseheaders(flow)
        assert bool(flow.response.stream) is streamed


# -- counting ------------------------------------------------------------------------------------------------------


async def test_each_request_is_counted_once_with_its_code(routed: Routed) -> None:
    named = ("counted", "list", "pods", "relay")
    before = requests(*named, 200), requests(*named, 502)
    flow = await routed.request("/api/v1/pods", "counted")
    await routed.answer(flow, b"{}")
    flow.error = mitmproxy_flow.Error("connection lost")
    routed.router.error(flow)
    assert (requests(*named, 200) - before[0], requests(*named, 502) - before[1]) == (1, 0)


@pytest.mark.parametrize(("message", "code"), [("Client disconnected.", 499), ("connection refused", 502)])
async def test_a_request_without_a_response_is_counted(routed: Routed, message: str, code: int) -> None:
    named = ("counted", "list", "pods", "relay", code)
    before = requests(*named)
    flow = await routed.request("/api/v1/pods", "counted")
    flow.error = mitmproxy_flow.Error(message)
    routed.router.error(flow)
    assert requests(*named) == before + 1


# -- edits of the rules --------------------------------------------------------------------------------------------


BOUND = parse_rules({"filter_servicetopology": "later/endpointslices#watch"})


async def test_an_edit_ends_the_relayed_watches_that_it_filters(
    routed: Routed, broken: list[http.HTTPFlow]
) -> None:
    ended = await routed.request(f"{SLICES}?watch=true", "later")
    await routed.request(f"{SERVICES}?watch=true", "later")
    await routed.request(f"{SLICES}?watch=true", "other")
    await routed.request(SLICES, "later")
    routed.known.rules = BOUND
    routed.router.rules_changed()
    assert broken == [ended]


@pytest.mark.parametrize("end", ["response", "error", "answered by a later part"])
async def test_an_ended_watch_is_removed(routed: Routed, broken: list[http.HTTPFlow], end: str) -> None:
    """If no server is up, mitmproxy calls `response` without `responseheaders`."""
    flow = await routed.request(f"{SLICES}?watch=true", "later")
    if end == "response":
        await routed.answer(flow, b"")
    elif end == "error":
        flow.error = mitmproxy_flow.Error("lost")
        routed.router.error(flow)
    else:
        flow.response = http.Response.make(503)
        await routed.router.response(flow)
    assert not routed.router._relayed
    routed.known.rules = BOUND
    routed.router.rules_changed()
    assert broken == []


@pytest.mark.parametrize(
    "target",
    [f"{SLICES}?watch=true", SLICES, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/s"],
)
async def test_a_response_to_a_request_that_an_edit_filters_meanwhile_is_503(
    routed: Routed, target: str
) -> None:
    flow = await routed.request(target, "later")
    routed.known.rules = parse_rules({"filter_servicetopology": "later/endpointslices#get;list;watch"})
    flow.response = http.Response.make(200)
    routed.router.responseheaders(flow)
    assert code_of(flow) == 503


async def test_an_object_is_filtered_by_the_rules_in_force_at_its_arrival(routed: Routed) -> None:
    target = "/api/v1/namespaces/default/services/lb"
    flow = await routed.request(target, "reader")
    routed.known.rules = parse_rules({})
    assert code_of(await routed.answer(flow, service("lb", 6, type="LoadBalancer"))) == 200


async def test_unknown_names_from_a_client_are_not_metric_labels(routed: Routed) -> None:
    before = requests("other", "other", "other", "relay", 200)
    flow = await routed.request("/apis/x.io/v1/namespaces/a/inventions/b", "other", method="BREW")
    await routed.answer(flow, b"{}")
    assert requests("other", "other", "other", "relay", 200) == before + 1
