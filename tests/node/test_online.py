"""A node behind its hub while the cloud is there: its certificate is renewed, it is drained, deleted and back."""

from __future__ import annotations

import pytest

from scripts.node_machine import cloud
from scripts.node_machine.commands import until
from scripts.node_machine.machine import Machine
from tests.node.support.callers import LONG, Caller

pytestmark = [pytest.mark.node, pytest.mark.timeout(900), pytest.mark.usefixtures("behind_hub", "prepared")]
CERTIFICATE = "/var/lib/kubelet/pki/kubelet-client-current.pem"
REQUEST = f"""\
openssl req -new -key {CERTIFICATE} -subj "/O=system:nodes/CN=system:node:$(hostname)"
"""
SIGN = """\
printf 'keyUsage=critical,digitalSignature\\nextendedKeyUsage=clientAuth\\n' >/tmp/extensions
openssl x509 -req -CA /etc/kubernetes/pki/ca.crt -CAkey /etc/kubernetes/pki/ca.key -extfile /tmp/extensions \
    -not_before "$(date -u -d '-9 days' +%Y%m%d%H%M%SZ)" -not_after "$(date -u -d '+1 hour' +%Y%m%d%H%M%SZ)"
"""
REPLACE = f"""\
openssl pkey -in {CERTIFICATE} >/tmp/key
cat - /tmp/key >/var/lib/kubelet/pki/kubelet-client-old.pem
rm /tmp/key
ln -sf /var/lib/kubelet/pki/kubelet-client-old.pem {CERTIFICATE}
systemctl restart kubelet
"""


def test_kubelet_renews_its_certificate_and_the_hub_goes_on_with_the_new_one(
    node: Machine, clouds: Machine
) -> None:
    signed = clouds.run("sh", "-euc", SIGN, stdin=node.run("sh", "-euc", REQUEST))
    node.run("sh", "-euc", REPLACE, stdin=signed)
    until("kubelet has another certificate", lambda: holds_a_day(node), LONG)
    # The hub has kubelet's certificate, and would soon be without one.
    node.run("systemctl", "restart", "edgehub")
    assert_serves(node, clouds)


def test_a_drained_node_takes_pods_again(node: Machine, clouds: Machine) -> None:
    drained = Caller("drained", node, clouds)
    drained.start()
    ways = ("--ignore-daemonsets", "--force", "--delete-emptydir-data", f"--timeout={LONG:.0f}s")
    cloud.kubectl(clouds, "drain", node.name, *ways)
    assert "drained" not in cloud.kubectl(clouds, "get", "pods")
    cloud.kubectl(clouds, "uncordon", node.name)
    drained.start()


def test_a_deleted_node_joins_again(node: Machine, clouds: Machine) -> None:
    cloud.kubectl(clouds, "delete", "node", node.name)
    node.run("systemctl", "restart", "kubelet")
    until("the node is there", lambda: node.name in cloud.kubectl(clouds, "get", "nodes"), LONG)
    assert_serves(node, clouds)


def holds_a_day(node: Machine) -> bool:
    return node.try_run("openssl", "x509", "-noout", "-checkend", "86400", "-in", CERTIFICATE).returncode == 0


def assert_serves(node: Machine, clouds: Machine) -> None:
    """The node is Ready, and a new pod has the API server and DNS."""
    cloud.wait_until_ready(clouds, [node.name])
    new = Caller("new", node, clouds)
    new.start()
    cloud.kubectl(clouds, "delete", "pod", new.name, f"--timeout={LONG:.0f}s")
