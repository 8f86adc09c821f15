"""The real control plane: its version, and its audit log."""

from __future__ import annotations

from tests.cloud.audit import requests
from tests.cloud.real import RealCloud
from tests.cloud.versions import chosen


def test_the_control_plane_has_the_chosen_version(real_cloud: RealCloud) -> None:
    version = chosen()
    assert real_cloud.admin.get("/version")["gitVersion"] == version
    client = real_cloud.kubectl("version", "--client", "-o=yaml").stdout
    assert f"gitVersion: {version}\n" in client


def test_the_audit_log_has_every_request_once(real_cloud: RealCloud, node: str) -> None:
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
