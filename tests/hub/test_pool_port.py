"""The peer port of a real leader: its certificate from the cluster, and who is served there and who is not."""

from __future__ import annotations

import base64
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import quote

import pytest
import urllib3

from kube.json_type import Json
from kube.peers import NODES_GROUP
from kube.wire.codec import WatchFrame, codec_for
from kube.wire.encoding import Encoding
from tests.cloud.pki import Authority, Credential
from tests.cloud.real import RealCloud
from tests.hub.support.pool_site import ENDPOINTS, SERVICES, SHARED, SLICES, Member, Site, eventually
from tests.hub.test_views import endpoint_slice, slices

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
LIFE = timedelta(hours=1)
ALMOST_OVER = LIFE - timedelta(seconds=30)
"""The age of a certificate that the hub renews before the next half minute is over."""
PATIENCE = 30.0
"""Seconds that an answer, or the next piece of one, may take."""


@pytest.fixture(scope="module")
def site(real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A pool of two nodes. The first leads with a certificate from the cluster that is due soon."""
    made = Site(real_cloud, tmp_path_factory.mktemp("site"), "quay", 32)
    made.prepare(1, 2, given=False)
    leader = made.members[0]
    addresses = [
        {"type": "InternalIP", "address": leader.address},
        {"type": "Hostname", "address": leader.name},
    ]
    real_cloud.admin.patch(f"/api/v1/nodes/{leader.name}/status", {"status": {"addresses": addresses}})
    # Whatever the ConfigMap names, only what pools may share is served.
    made.lead(leader, scope=f"{SHARED},/v1/secrets,/v1/pods,,x")
    try:
        leader.hub.start()
        eventually(lambda: leader.pool()["whyNot"] == "no certificate yet", "the hub cannot lead yet")
        sign(made, leader, ALMOST_OVER)
        eventually(lambda: leader.pool()["role"] == "leader", "the first node leads")
        yield made
    finally:
        made.close()


def sign(site: Site, member: Member, age: timedelta) -> None:
    """Approve and sign the member's request, as the manager and kube-controller-manager do; it began `age` ago."""
    eventually(lambda: pending(site, member), "a certificate is asked for")
    request = pending(site, member)[0]
    assert request["metadata"]["annotations"] == {"edgehub.io/peer": "true"}
    path = f"{REQUESTS}/{request['metadata']['name']}"
    condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "as the manager does"}
    request["status"] = {"conditions": [condition]}
    approved = site.cloud.admin.put(f"{path}/approval", request)
    signed = site.cloud.authority.sign_request(base64.b64decode(request["spec"]["request"]), LIFE, age)
    approved["status"]["certificate"] = base64.b64encode(signed).decode()
    site.cloud.admin.put(f"{path}/status", approved)


def pending(site: Site, member: Member) -> list[Json]:
    found = site.cloud.admin.get(REQUESTS)["items"]
    user = f"system:node:{member.name}"
    return [each for each in found if each["spec"]["username"] == user and not each["status"]]


@contextmanager
def asking(
    site: Site, credential: Credential | None, path: str, method: str = "GET", headers: Mapping[str, str] = {}
) -> Iterator[urllib3.BaseHTTPResponse]:
    """An answer of the leader's peer port, whose body is not read yet."""
    files = credential.write(site.folder, "asking") if credential is not None else (None, None)
    shown = {name: str(file) for name, file in zip(("cert_file", "key_file"), files, strict=True) if file}
    leader = site.members[0]
    url = f"https://{leader.address}:{site.port}{path}"
    with urllib3.PoolManager(ca_certs=str(site.cloud.authority_file), retries=False, **shown) as http:  # type: ignore[arg-type]  # urllib3 takes any pool's keywords
        answer = http.request(method, url, headers=headers, preload_content=False, timeout=PATIENCE)
        try:
            yield answer
        finally:
            answer.close()


def test_the_certificate_is_renewed_without_an_end_of_streams(site: Site) -> None:
    leader, member = site.members
    kept = leader.hub.state / "pki" / "peer.pem"
    eventually(kept.exists, "the certificate is kept")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    first = kept.read_bytes()
    accept = {"Accept": Encoding.JSON.value}
    with asking(site, member.credential, f"{SLICES}?watch=true", headers=accept) as answer:
        assert answer.status == 200
        sign(site, leader, timedelta(0))
        eventually(lambda: kept.read_bytes() != first, "the new certificate is kept")
        made = site.cloud.admin.post(slices("default"), endpoint_slice("renewed", "web", "n1"))
        reader = codec_for(Encoding.JSON).frames()
        pieces = (reader.feed(piece) for piece in answer.stream())
        assert any(b'"renewed"' in frame.raw for frames in pieces for frame in frames)
    newest = f"resourceVersion={made['metadata']['resourceVersion']}"
    with asking(site, member.credential, f"{SLICES}?{newest}") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("path", [SERVICES, SLICES])
def test_a_node_of_the_pool_lists_and_watches_what_is_shared(
    site: Site, path: str, encoding: Encoding
) -> None:
    member, accept = site.members[1], {"Accept": encoding.value}
    with asking(site, member.credential, path, headers=accept) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, encoding)
        page = codec_for(encoding).decode_list(answer.data)
        assert page.items
        assert answer.headers["x-edgehub-age"] == "0"
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with asking(site, member.credential, f"{path}?{query}", headers=accept) as answer:
        reader = codec_for(encoding).frames()
        frames: list[WatchFrame] = []
        for piece in answer.stream():
            frames += reader.feed(piece)
            if frames and frames[-1].type == "BOOKMARK":
                break
        assert len(frames) > len(page.items)


@pytest.mark.parametrize("query", ["", "limit=1", "resourceVersion=0&limit=1"])
def test_the_pages_of_a_list_hold_together_what_the_list_holds(site: Site, query: str) -> None:
    made = site.cloud.admin.post(slices("default"), endpoint_slice(f"paged-{len(query)}", "web"))
    everything = site.cloud.admin.get(SLICES)
    # Its own version: a list's is the newest of all resources, which no copy of slices need ever reach.
    not_older = f"resourceVersion={made['metadata']['resourceVersion']}&resourceVersionMatch=NotOlderThan"
    with asking(site, site.members[1].credential, f"{SLICES}?{not_older}") as answer:
        assert answer.status == 200, answer.data
    names: list[str] = []
    path = f"{SLICES}?{query}"
    while path:
        with asking(site, site.members[1].credential, path, headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.status == 200
            page = answer.json()
        names += (each["metadata"]["name"] for each in page["items"])
        more = page["metadata"].get("continue", "")
        path = f"{SLICES}?limit=50&continue={quote(more)}" if more else ""
    # In whatever order: the copy has them as they came.
    assert sorted(names) == sorted(each["metadata"]["name"] for each in everything["items"])


ONE = "/api/v1/namespaces/default/services"
NODE, ADMIN, STRANGER, FOREIGNER, NOBODY = "node", "admin", "stranger", "foreigner", "nobody"
EXPIRED, MISNAMED, SERVER = "expired", "misnamed", "server"


@pytest.fixture(scope="module")
def callers(site: Site) -> dict[str, Credential | None]:
    """A caller of the peer port, with its client certificate."""
    authority, member = site.cloud.authority, site.members[1].name
    return {
        NODE: site.members[1].credential,
        ADMIN: authority.issue_admin(),
        STRANGER: authority.issue_node("another-node"),
        FOREIGNER: Authority("foreign CA").issue_node(member),
        EXPIRED: authority.issue_node(member, timedelta(minutes=-1)),
        MISNAMED: authority.issue_client(member, [NODES_GROUP]),
        SERVER: authority.issue_server(f"system:node:{member}", [member], [NODES_GROUP]),
        NOBODY: None,
    }


@pytest.mark.parametrize(
    ("who", "path", "method", "code", "reason"),
    [
        (NOBODY, SERVICES, "GET", 401, "no certificate"),
        (FOREIGNER, SERVICES, "GET", 401, "foreign certificate"),
        (EXPIRED, SERVICES, "GET", 401, "foreign certificate"),
        (SERVER, SERVICES, "GET", 401, "foreign certificate"),
        (MISNAMED, SERVICES, "GET", 403, "no node"),
        (STRANGER, SERVICES, "GET", 403, "other pool"),
        (ADMIN, SERVICES, "GET", 403, "no node"),
        (NODE, ENDPOINTS, "GET", 403, "resource"),
        (NODE, "/api/v1/secrets", "GET", 403, "resource"),
        (NODE, "/api/v1/pods?watch=true", "GET", 403, "resource"),
        (NODE, SERVICES, "DELETE", 403, "verb"),
        (NODE, ONE, "POST", 403, "verb"),
        (NODE, f"{ONE}/kubernetes", "GET", 403, "verb"),
        (NODE, f"{ONE}/kubernetes/status", "GET", 403, "subresource"),
        (NODE, f"{SERVICES}?fieldSelector=spec.type%3DClusterIP", "GET", 403, "selection"),
        (NODE, "/version", "GET", 404, "path"),
        (NODE, "/metrics", "GET", 404, "path"),
        (NODE, "/debug/pool", "GET", 404, "path"),
    ],
)
def test_nobody_else_is_served(
    site: Site,
    callers: dict[str, Credential | None],
    who: str,
    path: str,
    method: str,
    code: int,
    reason: str,
) -> None:
    hub = site.members[0].hub
    before = hub.metric("edgehub_peer_refused_total", reason=reason)
    with asking(site, callers[who], path, method) as answer:
        assert answer.status == code
        assert answer.json()["kind"] == "Status"
    assert hub.metric("edgehub_peer_refused_total", reason=reason) == before + 1


@pytest.mark.parametrize("who", [NOBODY, NODE])
@pytest.mark.parametrize("header", ["Authorization", "Impersonate-User"])
def test_no_token_and_no_other_identity_is_taken(
    site: Site, callers: dict[str, Credential | None], who: str, header: str
) -> None:
    """kube-apiserver itself accepts this token, and lets this user impersonate others."""
    shown = {
        "Authorization": f"Bearer {site.cloud.token('default', 'peer')}",
        "Impersonate-User": "system:node:" + site.members[1].name,
    }
    with asking(site, callers[who], SERVICES, headers={header: shown[header]}) as answer:
        assert answer.status == 401


def test_nothing_of_a_refused_token_is_logged(site: Site, callers: dict[str, Credential | None]) -> None:
    secret = "Bearer-that-nobody-may-see"
    with asking(site, callers[NODE], SERVICES, headers={"Authorization": f"Bearer {secret}"}) as answer:
        assert answer.status == 401
    hub = site.members[0].hub
    assert secret not in hub.process.log.read_text()


def test_the_node_says_that_its_hub_can_lead(site: Site) -> None:
    leader = site.members[0]
    node = site.cloud.admin.get(f"/api/v1/nodes/{leader.name}")
    assert node["metadata"]["annotations"]["edgehub.io/peer"] == str(site.port)
