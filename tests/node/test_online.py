"""A node with its hub while the cloud is up: its certificate is renewed, it is drained, deleted and recreated."""

from __future__ import annotations

import pytest

from scripts.node_machine import cloud
from scripts.node_machine.commands import until
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import address
from scripts.node_machine.node import SOCKET, join
from tests.node.support import hub
from tests.node.support.callers import LONG, Caller

pytestmark = [pytest.mark.node, pytest.mark.timeout(900), pytest.mark.usefixtures("behind_hub", "prepared")]
PKI, CONFIGURATION = "/var/lib/kubelet/pki", "/var/lib/kubelet/config.yaml"
REQUEST = f"""\
openssl req -new -key {PKI}/kubelet-$1-current.pem -subj "/O=system:nodes/CN=system:node:$(hostname)"
"""
SIGN = """\
printf "keyUsage=critical,digitalSignature\\nextendedKeyUsage=$1Auth\\nsubjectAltName=DNS:$2,IP:$3\\n" >/tmp/extensions
openssl x509 -req -CA /etc/kubernetes/pki/ca.crt -CAkey /etc/kubernetes/pki/ca.key -extfile /tmp/extensions \
    -not_before "$(date -u -d '-9 days' +%Y%m%d%H%M%SZ)" -not_after "$(date -u -d '+1 hour' +%Y%m%d%H%M%SZ)"
"""
"""A program that signs a certificate with nine tenths of its validity past, when kubelet requests the next one."""
REPLACE = f"""\
openssl pkey -in {PKI}/kubelet-$1-current.pem >/tmp/key
cat - /tmp/key >{PKI}/kubelet-$1-old.pem
rm /tmp/key
ln -sf {PKI}/kubelet-$1-old.pem {PKI}/kubelet-$1-current.pem
systemctl restart kubelet
"""


def test_kubelet_renews_its_certificate_and_the_hub_uses_the_new_one(node: Machine, clouds: Machine) -> None:
    make_old(node, clouds, "client")
    until("kubelet has another certificate", lambda: holds_a_day(node, "client"), LONG)
    # The hub uses kubelet's certificate, and would soon have none.
    node.run("systemctl", "restart", "edgehub")
    assert_serves(node, clouds)


def test_kubelet_has_a_serving_certificate_and_renews_it_through_the_hub(
    node: Machine, clouds: Machine
) -> None:
    serving = "--field-selector=spec.signerName=kubernetes.io/kubelet-serving"

    def approved() -> bool:
        """Approve kubelet's request like an administrator; return True if kubelet has its serving certificate."""
        names = cloud.kubectl(clouds, "get", "csr", "--output=name", serving).split()
        if names:
            cloud.kubectl(clouds, "certificate", "approve", *names)
        return holds_a_day(node, "server")

    former = node.run("cat", CONFIGURATION)
    node.write(CONFIGURATION, f"{former}serverTLSBootstrap: true\n")
    try:
        node.run("systemctl", "restart", "kubelet")
        until("kubelet has a serving certificate", approved, LONG)
        make_old(node, clouds, "server")
        until("kubelet has another serving certificate", approved, LONG)
        assert_serves(node, clouds)
    finally:
        node.write(CONFIGURATION, former)
        node.run("systemctl", "restart", "kubelet")


def test_a_drained_node_runs_pods_again(node: Machine, clouds: Machine) -> None:
    drained = Caller("drained", node, clouds)
    drained.start()
    options = ("--ignore-daemonsets", "--force", "--delete-emptydir-data", f"--timeout={LONG:.0f}s")
    cloud.kubectl(clouds, "drain", node.name, *options)
    assert "drained" not in cloud.kubectl(clouds, "get", "pods")
    cloud.kubectl(clouds, "uncordon", node.name)
    drained.start()


def test_a_deleted_node_joins_again(node: Machine, clouds: Machine) -> None:
    cloud.kubectl(clouds, "delete", "node", node.name)
    node.run("systemctl", "restart", "kubelet")
    until("the node is there", lambda: node.name in cloud.kubectl(clouds, "get", "nodes"), LONG)
    assert_serves(node, clouds)


def test_a_node_that_was_reset_joins_again(node: Machine, clouds: Machine) -> None:
    cloud.kubectl(clouds, "delete", "node", node.name)
    node.run("kubeadm", "reset", "--force", f"--cri-socket={SOCKET}")
    join(node)
    cloud.wait_until_ready(clouds, [node.name])
    hub.install(node)
    hub.start_pods_anew(clouds, node.name)
    assert "127.0.0.1" in node.run("grep", "server:", "/etc/kubernetes/kubelet.conf")
    assert_serves(node, clouds)


def make_old(node: Machine, clouds: Machine, use: str) -> None:
    """Restart kubelet with a certificate for its key that expires soon."""
    requested = node.run("sh", "-euc", REQUEST, "sh", use)
    own = (use, node.name, address(node.name))
    node.run(
        "sh", "-euc", REPLACE, "sh", use, stdin=clouds.run("sh", "-euc", SIGN, "sh", *own, stdin=requested)
    )


def holds_a_day(node: Machine, use: str) -> bool:
    """Return True if kubelet has a certificate that does not expire soon."""
    file = f"{PKI}/kubelet-{use}-current.pem"
    return node.try_run("openssl", "x509", "-noout", "-checkend", "86400", "-in", file).returncode == 0


def assert_serves(node: Machine, clouds: Machine) -> None:
    """Check that the node is Ready, and that a new pod reaches the API server and DNS."""
    cloud.wait_until_ready(clouds, [node.name])
    new = Caller("new", node, clouds)
    new.start()
    cloud.kubectl(clouds, "delete", "pod", new.name, f"--timeout={LONG:.0f}s")
