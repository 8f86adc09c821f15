"""The cloud as a whole: over TLS, with a log of what it was asked."""

from __future__ import annotations

import ssl
from pathlib import Path

from tests.cloud.caller import Caller
from tests.cloud.pki import Authority
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.request_log import matching

SERVICES = "/api/v1/services"


async def test_the_log_of_requests(cloud: ScriptableCloud, caller: Caller) -> None:
    cloud.access.tokens["t"] = User("alice")
    headers = {
        "User-Agent": "kubelet/v1.36.0 (linux)",
        "Accept": "application/json;q=0.9",
        "Authorization": "Bearer t",
    }
    await caller.send("GET", SERVICES, headers=headers, query={"limit": "5"})
    await caller.send("GET", "/api/v1/namespaces/x/pods/none")
    await caller.send("POST", "/api/v1/namespaces/x/serviceaccounts/none/token")
    async with caller.watch(SERVICES):
        pass
    first, second, third, fourth = cloud.requests
    assert (first.method, first.path, first.query, first.user) == ("GET", SERVICES, "limit=5", "alice")
    assert (first.user_agent, first.accept) == (headers["User-Agent"], headers["Accept"])
    assert (first.verb, first.resource, first.status) == ("list", "services", 200)
    assert (second.verb, second.user, second.status) == ("get", "system:anonymous", 404)
    assert (third.resource, fourth.verb, fourth.status) == ("serviceaccounts/token", "watch", 200)
    assert cloud.requests.count(verb="list", resource="services") == 1
    assert cloud.requests.where(matching(user="alice")) == [first]
    cloud.requests.clear()
    assert len(cloud.requests) == 0


async def test_over_tls_a_certificate_says_who_calls(tmp_path: Path) -> None:
    authority = Authority()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.issue_server("cloud", ["127.0.0.1"]).write(tmp_path, "server"))
    server.load_verify_locations(cadata=authority.certificate.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.load_cert_chain(*authority.issue_node("n1").write(tmp_path, "node"))
    async with ScriptableCloud(tls=server) as cloud, Caller(cloud.url, context=client) as caller:
        cloud.access.certificates["system:node:n1"] = User("system:node:n1", ("system:nodes",))
        assert cloud.url.startswith("https://")
        assert (await caller.send("GET", SERVICES)).status == 200
        assert [request.user for request in cloud.requests] == ["system:node:n1"]
