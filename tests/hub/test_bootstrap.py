"""A hub gets its identity from a real cluster with a bootstrap token, and renews it with its own certificate."""

from __future__ import annotations

import base64
import secrets
import stat
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import urllib3
import yaml
from cryptography import x509

from addons.install.cloud import hash_of
from kube.json_type import Json
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.hollow import is_ready
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.real import RealCloud
from tests.cloud.rights import bound, group, rights, rule, user
from tests.hub.support.machine import Machine, edgehub
from tests.hub.support.process import SLACK, Hub
from tests.support.polling import eventually

CONTROLLERS = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
    "bootstrap-signer-controller",
)
"""Controllers of kube-controller-manager that handle certificate requests, and sign the published CA for each token."""
FLAG = "--enable-bootstrap-token-auth=true"
"""A flag of kube-apiserver that kubeadm sets."""
GROUP = "system:bootstrappers:kubeadm:default-node-token"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def binding(role: str, *groups: str) -> Json:
    """Return a ClusterRoleBinding like kubeadm's."""
    return bound(role, *map(group, groups), name=f"test-{role.rpartition(':')[2]}")


OTHERS = "system:bootstrappers:others"
MAY_ASK = binding("system:node-bootstrapper", GROUP, OTHERS)
APPROVED = binding("system:certificates.k8s.io:certificatesigningrequests:nodeclient", GROUP)
"""The binding by which kube-controller-manager approves the requests of tokens."""
RENEWED = binding("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes")


def make_token(cloud: RealCloud, group: str = GROUP) -> str:
    """Create a bootstrap token like `kubeadm token create`. Requests with another group are not approved."""
    name, secret = secrets.token_hex(3), secrets.token_hex(8)
    data = {
        "token-id": name,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": group,
    }
    metadata = {"name": f"bootstrap-token-{name}"}
    cloud.admin.post(
        "/api/v1/namespaces/kube-system/secrets",
        {"metadata": metadata, "type": "bootstrap.kubernetes.io/token", "stringData": data},
    )
    return f"{name}.{secret}"


def bootstrap_kubeconfig(cloud: RealCloud, path: Path, token: str) -> Path:
    return write_kubeconfig(path, cloud.url, authority=cloud.authority.certificate, token=token)


def publish_authority(cloud: RealCloud) -> None:
    """Permit everyone to read the cluster's CA, like kubeadm."""
    authority = base64.b64encode(cloud.authority.certificate).decode()
    cluster = {"server": cloud.url, "certificate-authority-data": authority}
    document = {"clusters": [{"name": "", "cluster": cluster}]}
    named = {"namespace": "kube-public", "name": "cluster-info"}
    published = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named}
    may_read = {**rule("", "configmaps", "get"), "resourceNames": ["cluster-info"]}
    everybody = user("system:anonymous")
    cloud.apply(
        [
            {**published, "data": {"kubeconfig": yaml.safe_dump(document)}},
            *rights("cluster-info", [may_read], everybody, namespace="kube-public"),
        ]
    )


def is_signed(cloud: RealCloud, token: str) -> bool:
    """Return True if kube-controller-manager has signed the published CA for a token, which takes it some time."""
    published = cloud.admin.get("/api/v1/namespaces/kube-public/configmaps/cluster-info")
    return f"jws-kubeconfig-{token[:6]}" in published["data"]


def requests_of(cloud: RealCloud, node: str) -> list[Json]:
    """Return the requests for a node's identity, the oldest first."""
    found = [
        each
        for each in cloud.admin.get(REQUESTS)["items"]
        if each["metadata"]["name"].startswith(f"edgehub-client-{node}-")
    ]
    return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))


LIFE = "24s"
"""The validity of each certificate issued by this cluster; kube-controller-manager backdates it by five minutes."""
KUBELET_OF_YURTHUB = """\
apiVersion: v1
clusters:
- cluster:
    server: {url}
  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
preferences: {{}}
"""
"""A kubeconfig as written by `yurtadm join` and OpenYurt's documents: it names no user."""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]) -> Iterator[RealCloud]:
    with RealCloud(
        tmp_path_factory.mktemp("bootstrap"),
        cloud_programs,
        controllers=CONTROLLERS,
        apiserver_flags=[FLAG],
        manager_flags=[f"--cluster-signing-duration={LIFE}"],
    ) as made:
        made.apply(HUB_RBAC)
        made.apply([MAY_ASK, RENEWED])
        yield made


until = partial(eventually, what="it is so", patience=2 * SLACK)


def hub_with(cloud: RealCloud, folder: Path, node: str, token: str) -> Hub:
    bootstrap = bootstrap_kubeconfig(cloud, folder / "bootstrap.conf", token)
    return Hub(folder, cloud.url, node=node, flags=("--bootstrap-kubeconfig", str(bootstrap)))


def serial(hub: Hub) -> int:
    """Return the serial number of the hub's certificate; 0 without one."""
    file = hub.state / "pki" / "node.pem"
    return x509.load_pem_x509_certificate(file.read_bytes()).serial_number if file.exists() else 0


def status_of_node(hub: Hub) -> int:
    """Return the status of the cloud's response to the hub's identity, for the lease that only the node may read."""
    url = f"{hub.url}/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{hub.node}"
    return urllib3.request("GET", url, headers={"User-Agent": "kubelet/v1"}, retries=False).status


@pytest.mark.timeout(300)
def test_an_identity_is_requested_again_after_a_denial_and_then_renewed(
    cloud: RealCloud, tmp_path: Path, node: str
) -> None:
    def is_put_off(hub: Hub) -> bool:
        """Return True if the hub tells a client to retry later."""
        try:
            answer = urllib3.request(
                "GET", f"{hub.url}/version", headers={"User-Agent": "kubelet/v1"}, retries=False
            )
        except urllib3.exceptions.HTTPError:
            return False  # the port is not open yet
        put_off = (answer.status, answer.headers.get("Retry-After")) == (503, "1")
        return put_off and "of this node yet" in answer.json()["message"]

    hub = hub_with(cloud, tmp_path, node, make_token(cloud))
    hub.launch()
    try:
        until(lambda: requests_of(cloud, node))
        first = requests_of(cloud, node)[0]
        assert first["spec"]["username"].startswith("system:bootstrap:")
        cloud.kubectl("certificate", "deny", first["metadata"]["name"])
        hub.process.wait_for_line("is denied: ", SLACK)
        assert not serial(hub)
        # The log is written shortly before the page and the responses.
        until(lambda: " is denied: " in hub.admin("/readyz"))
        until(lambda: is_put_off(hub))

        cloud.apply([APPROVED])
        hub.wait_until_ready()
        given = serial(hub)
        assert given
        assert stat.S_IMODE((hub.state / "pki" / "node.pem").stat().st_mode) == 0o600
        assert 0 < hub.metric("edgehub_certificate_expiry_seconds", use="client") <= 24
        # The cloud knows the node, which has no lease yet.
        until(lambda: status_of_node(hub) == 404)

        until(lambda: serial(hub) != given)
        # On a busy machine a certificate may expire before its renewal; then the token is used again.
        until(
            lambda: f"system:node:{node}" in (each["spec"]["username"] for each in requests_of(cloud, node))
        )
        # Connections with the former certificate are not used after its expiry.
        until(lambda: status_of_node(hub) == 404)
    finally:
        hub.stop()


@pytest.mark.timeout(300)
def test_a_new_node_joins_through_its_hub_with_a_bootstrap_token(
    cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path: Path, node: str
) -> None:
    cloud.apply([APPROVED])
    publish_authority(cloud)
    token = make_token(cloud)
    until(lambda: is_signed(cloud, token))
    given = [
        "--server",
        cloud.url,
        "--token",
        token,
        "--ca-hash",
        hash_of(x509.load_pem_x509_certificate(cloud.authority.certificate)),
    ]
    with Machine(tmp_path, cloud, cloud.url, node, cloud_programs, has_joined=False) as machine:
        services = ("--systemctl", str(machine.systemctl), "--timeout", "120")
        done = edgehub(machine, "install", *given, "--node", node, *services, hub=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert is_ready(cloud.admin.get(f"/api/v1/nodes/{node}"))
        assert (machine.state / "pki" / "node.pem").exists()
        assert f"CN=system:node:{node},O=system:nodes" in edgehub(machine, "doctor", hub=True).stdout
        # Without the hub's stored identity, the token is used.
        well = edgehub(machine, "doctor", "--", "--state-dir", "/var/lib/none")
        assert "ok       token        may request the identity of a node" in well.stdout, well.stdout
        assert edgehub(machine, "uninstall", *services[:2]).returncode == 0
        assert machine.files() == {}


@pytest.mark.timeout(300)
def test_a_node_of_openyurt_gets_the_hub_instead_of_yurthub(
    cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path: Path, node: str
) -> None:
    cloud.apply([APPROVED])
    bootstrap = bootstrap_kubeconfig(cloud, tmp_path / "bootstrap.conf", make_token(cloud))
    with Machine(tmp_path, cloud, cloud.url, node, cloud_programs, has_joined=False) as machine:
        kubernetes = machine.root / "etc/kubernetes"
        (kubernetes / "kubelet.conf").write_text(KUBELET_OF_YURTHUB.format(url=machine.url))
        (kubernetes / "manifests/yurt-hub.yaml").write_text("{}\n")
        machine.start_kubelet()
        # The steps of docs/nodes.md.
        (kubernetes / "manifests/yurt-hub.yaml").rename(kubernetes / "yurt-hub.yaml")
        before = machine.files()
        services = ("--systemctl", str(machine.systemctl), "--timeout", "120")
        given = ("--bootstrap-kubeconfig", str(bootstrap), "--node", node)
        done = edgehub(machine, "install", *given, *services, hub=True)
        assert done.returncode == 0, done.stdout + done.stderr
        cloud.admin.wait_for("/api/v1/nodes", node, is_ready, timeout=120)
        undone = edgehub(machine, "uninstall", *services[:2])
        assert undone.returncode == 0, undone.stdout + undone.stderr
        assert machine.files() == before


@pytest.mark.timeout(300)
def test_an_identity_that_expired_in_an_outage_is_requested_again(
    cloud: RealCloud, tmp_path: Path, node: str
) -> None:
    cloud.apply([APPROVED])
    ended = cloud.authority.issue_node(node, timedelta(seconds=-60))
    file = tmp_path / "state" / "pki" / "node.pem"
    file.parent.mkdir(parents=True)
    file.parents[1].chmod(0o700)
    file.write_bytes(ended.certificate + ended.key)
    hub = hub_with(cloud, tmp_path, node, "abcdef.0123456789abcdef")
    hub.launch()
    try:
        hub.wait_until_ready("/healthz")
        before = serial(hub)
        hub.process.wait_for_line("the cloud rejects the token of", SLACK)
        assert hub.metric("edgehub_certificate_expiry_seconds", use="client") < 0
        bootstrap_kubeconfig(cloud, tmp_path / "bootstrap.conf", make_token(cloud))
        until(lambda: serial(hub) != before)
        hub.wait_until_ready()
        until(lambda: status_of_node(hub) == 404)
    finally:
        hub.stop()
