"""The cached relay: no stored response after the cloud refused the request; paged lists, and lists at past versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.requests.answers import ClientRequest
from addons.requests.caller import Caller
from addons.requests.route_decision import Route, RouteKind
from kube.requests.request_info import parse_request
from tests.addons.offline.test_cached_relay import A_TOKEN, OBJECT, TOKEN, TYPED, Node, node_in
from tests.addons.support.observed import until
from tests.addons.support.samples import HUB, POD, raw, read_of


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_in(tmp_path) as made:
        yield made


async def test_a_response_to_a_token_is_stored_for_its_user_alone(node: Node) -> None:
    node.upstream.users = {POD.authorization: "pod", "Bearer stranger": ""}
    node.passed("GET", OBJECT, 200, b"the pod's", caller=POD)
    stranger = Caller(POD.credential_source, "Bearer stranger")
    node.passed("GET", OBJECT, 200, b"nobody's", caller=stranger)
    await node.lose_cloud()
    assert (await node.ask())[0] == 503
    assert (await node.ask(caller=stranger))[0] == 503
    assert (await node.ask(caller=POD))[:2] == (200, b"the pod's")


async def test_a_caller_with_a_token_needs_a_stored_permission_for_a_stored_response(node: Node) -> None:
    """Pods with one service account share stored responses, but each token has its own review."""
    other = Caller(POD.credential_source, "Bearer another token of the pod's account")
    node.upstream.users = {POD.authorization: "pod", other.authorization: "pod"}
    node.passed("GET", OBJECT, 200, b"the pod's", caller=POD)
    node.passed("GET", OBJECT + "-other", 404, b"", caller=other)
    await node.lose_cloud()
    assert (await node.ask(caller=other))[0] == 503
    assert (await node.ask(caller=POD))[:2] == (200, b"the pod's")


@pytest.mark.parametrize(
    ("caller", "code", "offline"),
    [
        (HUB, 403, 503),
        (HUB, 404, 503),
        (HUB, 401, 200),  # the node's own identity has expired, so the cloud counts as unavailable
        (HUB, 500, 200),
        (POD, 403, 403),
        (POD, 404, 503),
        (POD, 401, 503),
        (POD, 500, 200),
    ],
)
async def test_a_stored_response_is_not_served_after_the_cloud_refused_the_request(
    node: Node, caller: Caller, code: int, offline: int
) -> None:
    node.upstream.users = {POD.authorization: "pod"}
    for said in (200, code):
        node.passed("GET", OBJECT, said, b"a secret", caller=caller)
        await until(lambda: not node.cached_relay.answers._tasks)
    await node.lose_cloud()
    assert (await node.ask(caller=caller))[0] == offline


@pytest.mark.parametrize("code", [403, 404])
@pytest.mark.parametrize("query", ["", "?includeObject=Object"])
async def test_a_refusal_in_one_form_deletes_the_stored_responses_in_each(
    node: Node, code: int, query: str
) -> None:
    """A person read an object as JSON and, when it was gone, as a Table; offline it was there again."""
    node.upstream.users = {POD.authorization: "pod"}
    for caller in (HUB, POD):
        secret = raw({"kind": "Secret", "apiVersion": "v1"})
        node.passed("GET", OBJECT, 200, secret, caller=caller, headers=TYPED)
    await until(lambda: not node.cached_relay.answers._tasks)
    node.passed("GET", OBJECT + query, code, b"", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    await node.lose_cloud()
    assert (await node.ask())[0] == 503
    assert (await node.ask(caller=POD))[0] == 200  # whose own reads have not been refused


@pytest.mark.parametrize(("code", "offline"), [(403, 503), (404, 200)])
async def test_a_404_from_a_gateway_does_not_delete_a_cached_list(
    node: Node, code: int, offline: int
) -> None:
    for said in (200, code):
        node.passed("GET", "/api/v1/nodes", said, b"{}")
    await node.lose_cloud()
    assert (await node.ask("/api/v1/nodes"))[0] == offline


async def test_a_service_account_token_is_served_from_the_cache_until_a_refusal(node: Node) -> None:
    node.passed("POST", TOKEN, 201, A_TOKEN, sent=b"for a pod", headers=TYPED)
    node.passed("POST", TOKEN, 403, b"no", sent=b"for another", headers=TYPED)
    await node.lose_cloud()
    assert (await node.send("POST", TOKEN, b"for a pod"))[:2] == (201, A_TOKEN)
    assert (await node.send("POST", TOKEN, b"for another"))[0] == 503
    node.passed("POST", TOKEN, 404, b"no", sent=b"for a pod", headers=TYPED)
    assert (await node.send("POST", TOKEN, b"for a pod"))[0] == 503


PODS_PATH = "/api/v1/namespaces/a/pods"


def page(version: int, *, following: str = "") -> bytes:
    return raw(
        {"kind": "PodList", "metadata": {"resourceVersion": str(version), "continue": following}, "items": []}
    )


async def test_a_list_of_several_pages_is_stored_with_its_last_page(node: Node) -> None:
    """kubectl lists in pages of 500, and such lists were once never stored."""
    pages = {f"{PODS_PATH}?limit=5": page(7, following="t"), f"{PODS_PATH}?limit=5&continue=t": page(7)}
    for target, body in pages.items():
        node.passed("GET", target, 200, body, headers=TYPED)
    node.health.failed("gone")
    route = Route(RouteKind.CACHED_RELAY, "test", read=read_of(PODS_PATH))
    for target, body in pages.items():
        wanted = ClientRequest(parse_request("GET", target), "kubectl", HUB, route)
        assert (await node.send_as(wanted, target))[:2] == (200, body)


@pytest.mark.parametrize(
    "query", ["resourceVersionMatch=Exact&resourceVersion=3", "resourceVersion=3&limit=5"]
)
async def test_a_list_at_an_exact_version_does_not_replace_the_current_one(node: Node, query: str) -> None:
    node.passed("GET", PODS_PATH, 200, page(7), headers=TYPED)
    node.passed("GET", f"{PODS_PATH}?{query}", 200, page(3), headers=TYPED)
    node.health.failed("gone")
    assert (await node.ask(PODS_PATH))[:2] == (200, page(7))


async def test_a_lease_that_the_hub_does_not_renew_is_refused_with_the_reason_of_the_outage(
    node: Node,
) -> None:
    """A component with the node's identity, which the cloud does not accept now, saw only that there is no cloud."""
    path = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/web"
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15}
    lease = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "spec": spec}
    lease["metadata"] = {"namespace": "shop", "name": "web", "resourceVersion": "7"}
    node.tables.leases.named = {("shop", "web")}
    node.passed("PUT", path, 200, raw(lease), caller=HUB, headers=TYPED)
    node.health.refuses_node = True
    change = raw({"spec": {"holderIdentity": "mine"}})
    status, body, _ = await node.send("PATCH", path, change, was_sent=True)
    assert status == 503
    assert b"only its holder renews this Lease meanwhile (" in body
    assert b"identity" in body
