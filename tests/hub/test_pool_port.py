"""The peer port of a real leader: its certificate from the cluster, and the accepted and refused clients."""

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
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.pki import Credential
from tests.cloud.real import RealCloud
from tests.hub.support.objects import endpoint_slice, slices
from tests.hub.support.pool_site import SHARED, SLICES, Member, Site
from tests.support.polling import eventually

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
LIFE = timedelta(hours=1)
ALMOST_OVER = LIFE - timedelta(seconds=30)
"""The age of a certificate that the hub renews within the next half minute."""
PATIENCE = 30.0
"""Seconds that a response, or the next piece of one, may take."""


@pytest.fixture(scope="module")
def site(real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run a pool of two nodes. The first leads with a certificate from the cluster that must be renewed soon."""
    made = Site(real_cloud, tmp_path_factory.mktemp("site"), "quay", 32)
    made.prepare(1, 2, given=False)
    leader = made.members[0]
    addresses = [
        {"type": "InternalIP", "address": leader.address},
        {"type": "Hostname", "address": leader.name},
    ]
    real_cloud.admin.patch(f"/api/v1/nodes/{leader.name}/status", {"status": {"addresses": addresses}})
    # Only resources that pools may share are served, whatever the ConfigMap names.
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
    """Approve and sign the member's request, like the manager and kube-controller-manager; it starts `age` ago."""
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
    """Open a response of the leader's peer port, with an unread body."""
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


def test_the_certificate_is_renewed_without_ending_streams(site: Site) -> None:
    leader, member = site.members
    stored = leader.hub.state / "pki" / "peer.pem"
    eventually(stored.exists, "the certificate is kept")
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    first = stored.read_bytes()
    accept = {"Accept": Encoding.JSON.value}
    with asking(site, member.credential, f"{SLICES}?watch=true", headers=accept) as answer:
        assert answer.status == 200
        sign(site, leader, timedelta(0))
        eventually(lambda: stored.read_bytes() != first, "the new certificate is kept")
        made = site.cloud.admin.post(slices("default"), endpoint_slice("renewed", "web", "n1"))
        reader = codec_for(Encoding.JSON).frames()
        pieces = (reader.feed(piece) for piece in answer.stream())
        assert any(b'"renewed"' in frame.raw for frames in pieces for frame in frames)
    newest = f"resourceVersion={made['metadata']['resourceVersion']}"
    with asking(site, member.credential, f"{SLICES}?{newest}") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("query", ["", "limit=1", "resourceVersion=0&limit=1"])
def test_the_pages_of_a_list_contain_all_its_items(site: Site, query: str) -> None:
    made = site.cloud.admin.post(slices("default"), endpoint_slice(f"paged-{len(query)}", "web"))
    everything = site.cloud.admin.get(SLICES)
    # The object's own version: a list's version is the newest of all resources, which a copy of slices may never reach.
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
    # In any order: the copy has them in order of arrival.
    assert sorted(names) == sorted(each["metadata"]["name"] for each in everything["items"])
