"""Kubeconfigs for the hub retain all other fields; copies find their files; diffs contain no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from addons.install.kubeconfigs import (
    bootstrap_kubeconfig,
    moved,
    pointed_at,
    redacted,
    server_of,
    without_credentials,
)
from kube.http.kubeconfig import load_kubeconfig

HUB = "http://127.0.0.1:10261"
KUBEADM = """\
# written by kubeadm
apiVersion: v1
kind: Config
current-context: node@k
contexts:
- context: {cluster: k, user: node}
  name: node@k
clusters:
- cluster:
    server: https://10.0.0.1:6443  # the load balancer
  name: other
- cluster:
    certificate-authority: ../pki/ca.crt
    server: https://10.0.0.1:6443
  name: k
users:
- name: node
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
"""


def test_only_the_server_line_changes() -> None:
    changed = pointed_at(KUBEADM, HUB)
    before, after = KUBEADM.splitlines(), changed.splitlines()
    assert [new for old, new in zip(before, after, strict=True) if old != new] == [f"    server: {HUB}"]
    assert server_of(changed) == HUB


def test_a_proxy_url_is_removed_from_a_clients_kubeconfig() -> None:
    proxied = KUBEADM.replace("    server:", "    proxy-url: http://proxy.example:3128\n    server:")
    document = yaml.safe_load(pointed_at(proxied, HUB))
    assert [each["cluster"] for each in document["clusters"]] == [
        {"server": HUB},
        {"certificate-authority": "../pki/ca.crt", "server": HUB},
    ]


def test_a_copied_kubeconfig_still_finds_its_files() -> None:
    here, there = Path("/etc/kubernetes"), Path("/etc/edgehub")
    assert moved(KUBEADM, here, here) == KUBEADM
    cluster = yaml.safe_load(moved(KUBEADM, here, there))["clusters"][1]["cluster"]
    assert cluster["certificate-authority"] == "/etc/kubernetes/../pki/ca.crt"
    absolute = KUBEADM.replace("../pki", "/pki")
    assert moved(absolute, here, there) == absolute


@pytest.mark.parametrize(
    "user",
    [
        "{client-key-data: U0VDUkVU, token: secret.secret, password: secret}",
        '{"client-key-data": "U0VDUkVU", "token": "secret.secret"}',
        "\n    client-key-data: U0VDUkVU\n    token: 'secret.secret'\n    password: secret",
        "\n    client-key-data: |\n      U0VDUkVU\n      U0VDUkVV\n    token: >-\n      secret.secret",
        "\n    client-key-data: U0VDUkVU\n      U0VDUkVV",
    ],
    ids=["flow", "JSON", "block", "scalars of several lines", "a plain scalar of two lines"],
)
def test_a_diff_shows_neither_keys_nor_tokens(user: str) -> None:
    text = f"clusters:\n- cluster: {{server: https://a}}\nusers:\n- name: secretary\n  user: {user}\n"
    shown = redacted("".join(f"+{line}\n" for line in text.splitlines()), [text])
    assert "U0VDUkV" not in shown
    assert "secret" not in shown.replace("secretary", "")
    assert "server: https://a" in shown
    assert "name: " in shown


def test_a_diff_of_a_malformed_kubeconfig_hides_its_values() -> None:
    assert redacted("+    token: secret\n+    server: https://a\n", ["a: b: c"]) == (
        "+    token: (not shown)\n+    server: https://a\n"
    )


def test_a_kubeconfig_of_yurthub_with_an_undefined_user_is_accepted() -> None:
    text = yaml.safe_dump({**yaml.safe_load(KUBEADM), "users": None})
    assert server_of(text) == "https://10.0.0.1:6443"
    assert server_of(pointed_at(text, HUB)) == HUB


@pytest.mark.parametrize("text", ["a: b: c", "[]", "{}"])
def test_a_malformed_kubeconfig_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        server_of(text)


def test_a_bootstrap_kubeconfig_contains_the_ca_and_the_token(tmp_path: Path) -> None:
    path = tmp_path / "conf"
    path.write_text(bootstrap_kubeconfig("https://c:6443", b"authority", "abcdef.0123456789abcdef"))
    made = load_kubeconfig(path)
    assert (made.cluster.server, made.user.bearer) == ("https://c:6443", "Bearer abcdef.0123456789abcdef")
    assert made.cluster.authority.read() == b"authority"


def test_a_kubeconfig_without_credentials_points_at_the_hub_anonymously(tmp_path: Path) -> None:
    path = tmp_path / "conf"
    path.write_text(without_credentials(HUB))
    made = load_kubeconfig(path)
    assert (made.cluster.server, made.user.bearer) == (HUB, "")
    assert not made.cluster.authority.read() + made.user.certificate.read() + made.user.key.read()
