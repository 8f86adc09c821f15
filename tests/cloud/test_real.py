"""The real control plane: what it starts, who its callers are, what its audit log tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.audit import requests
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient, RestError
from tests.cloud.versions import chosen

SERVICE = "/api/v1/namespaces/default/services/kubernetes"


def who_am_i(client: RestClient) -> tuple[str, list[str]]:
    """The caller's name and groups, as the server sees them."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    seen = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
    return seen["username"], seen["groups"]


def test_it_is_of_the_chosen_version(real_cloud: RealCloud) -> None:
    version = chosen()
    assert real_cloud.admin.get("/version")["gitVersion"] == version
    client = real_cloud.kubectl("version", "--client", "-o=yaml").stdout
    assert f"gitVersion: {version}\n" in client


def test_each_caller_is_known_by_its_certificate_or_token(real_cloud: RealCloud, node: str) -> None:
    assert who_am_i(real_cloud.admin) == ("admin", ["system:masters", "system:authenticated"])
    name, groups = who_am_i(real_cloud.client(real_cloud.authority.issue_node(node)))
    assert (name, groups) == (f"system:node:{node}", ["system:nodes", "system:authenticated"])
    name, groups = who_am_i(real_cloud.client(token=real_cloud.token("default", "somebody")))
    assert name == "system:serviceaccount:default:somebody"
    assert "system:serviceaccounts:default" in groups
    with pytest.raises(RestError, match="anonymous"):
        real_cloud.client().get("/api/v1/namespaces")
    with pytest.raises(RestError, match="401"):
        real_cloud.client(token="made up").get("/api/v1/namespaces")


def test_the_audit_log_tells_every_request_once(real_cloud: RealCloud, node: str) -> None:
    itself = real_cloud.client(real_cloud.authority.issue_node(node))
    mark = real_cloud.audit_mark()
    itself.request("GET", f"/api/v1/nodes/{node}", query={"resourceVersion": "0"})
    itself.request("GET", "/api/v1/secrets")
    nothing = {"resourceVersion": "0", "labelSelector": "a=b", "timeoutSeconds": "1"}
    assert list(itself.watch("/api/v1/services", timeout=30, **nothing)) == []
    received = [each for each in real_cloud.audit(mark) if each.stage == "RequestReceived"]
    seen = [(each.verb, each.uri) for each in received if each.user == f"system:node:{node}"]
    assert seen == [
        ("get", f"/api/v1/nodes/{node}?resourceVersion=0"),
        ("list", "/api/v1/secrets"),
        ("watch", "/api/v1/services?resourceVersion=0&labelSelector=a%3Db&timeoutSeconds=1&watch=true"),
    ]
    assert {each.user_agent for each in received if each.user == f"system:node:{node}"} == {"edgehub-tests"}
    codes = {each.uri.split("?")[0]: each.code for each in requests(real_cloud.audit(mark))}
    assert codes["/api/v1/secrets"] == 403


@pytest.fixture(scope="module")
def own_cloud(
    tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]
) -> Iterator[RealCloud]:
    """One that may be stopped, with a few controllers."""
    controllers = ["serviceaccount-controller", "endpointslice-controller"]
    with RealCloud(tmp_path_factory.mktemp("own"), cloud_programs, controllers=controllers) as cloud:
        yield cloud


def test_after_a_crash_the_port_refuses_until_the_next_start(own_cloud: RealCloud) -> None:
    before = own_cloud.admin.get(SERVICE)
    own_cloud.stop_apiserver(crash=True)
    with pytest.raises(OSError, match="refused"):
        own_cloud.admin.get(SERVICE)
    own_cloud.start_apiserver()
    assert own_cloud.admin.get(SERVICE) == before
