"""Bootstrap tokens of a real cluster, and the cluster's answers to the requests that hubs send with them."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import yaml

from kube.json_type import Json
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.real import RealCloud
from tests.cloud.rights import bound, group, rights, rule, user

CONTROLLERS = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
    "bootstrap-signer-controller",
)
"""Controllers of kube-controller-manager that answer certificate requests, and sign the published CA for each token."""
FLAG = "--enable-bootstrap-token-auth=true"
"""A flag of kube-apiserver, which kubeadm sets."""
GROUP = "system:bootstrappers:kubeadm:default-node-token"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def binding(role: str, *groups: str) -> Json:
    """A ClusterRoleBinding, as kubeadm makes them."""
    return bound(role, *map(group, groups), name=f"test-{role.rpartition(':')[2]}")


OTHERS = "system:bootstrappers:others"
MAY_ASK = binding("system:node-bootstrapper", GROUP, OTHERS)
APPROVED = binding("system:certificates.k8s.io:certificatesigningrequests:nodeclient", GROUP)
"""The binding by which kube-controller-manager approves the requests of tokens."""
RENEWED = binding("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes")


def make_token(cloud: RealCloud, group: str = GROUP) -> str:
    """A new bootstrap token, as `kubeadm token create` makes it. Requests with another group are not approved."""
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
    """Let everybody read the cluster's CA, as kubeadm does."""
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
    """Whether kube-controller-manager has signed the published CA for a token, which takes it a moment."""
    published = cloud.admin.get("/api/v1/namespaces/kube-public/configmaps/cluster-info")
    return f"jws-kubeconfig-{token[:6]}" in published["data"]


def requests_of(cloud: RealCloud, node: str) -> list[Json]:
    """The requests for a node's identity, the oldest first."""
    found = [
        each
        for each in cloud.admin.get(REQUESTS)["items"]
        if each["metadata"]["name"].startswith(f"edgehub-client-{node}-")
    ]
    return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))
