"""Kubeconfigs: the fields that are read, refusals in the operator's terms, and rotated files."""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.http.exec_plugin import ExecCredentials
from kube.http.kubeconfig import Credentials, DataOrFile, load_kubeconfig, parse_kubeconfig
from tests.cloud.pki import Authority

FOLDER = Path("/etc/edge")
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "bin/aws"}


def kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a kubeconfig with several contexts, as kubectl writes it."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "edge",
        "contexts": [
            {"name": "other", "context": {"cluster": "elsewhere", "user": "somebody"}},
            {"name": "edge", "context": {"cluster": "cloud", "user": "node"}},
        ],
        "clusters": [
            {"name": "elsewhere", "cluster": {"server": "https://192.0.2.1"}},
            {"name": "cloud", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}},
        ],
        "users": [{"name": "somebody", "user": {"token": "wrong"}}, {"name": "node", "user": user or {}}],
    }


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def parsed(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Credentials:
    return parse_kubeconfig(kubeconfig(cluster, user), FOLDER)


def test_the_current_context_names_cluster_and_user() -> None:
    found = parsed({"tls-server-name": "kubernetes"}, {"token": "secret"})
    assert found.cluster.server == "https://10.0.0.1:6443"
    assert found.cluster.server_name == "kubernetes"
    assert found.user.bearer == "Bearer secret"
    assert not found.cluster.insecure
    assert parsed({"insecure-skip-tls-verify": True}).cluster.insecure


def test_certificates_are_given_in_the_kubeconfig_or_in_files() -> None:
    found = parsed(
        {"certificate-authority-data": encoded(b"ca")},
        {"client-certificate": "pki/client.crt", "client-key": "/var/lib/client.key"},
    )
    assert found.cluster.authority.read() == b"ca"
    assert found.user.certificate.path == FOLDER / "pki/client.crt"
    assert found.user.key.path == Path("/var/lib/client.key")


def test_inline_data_overrides_a_file_like_in_client_go() -> None:
    found = parsed(user={"client-key-data": encoded(b"data"), "client-key": "/no/such/file"})
    assert found.user.key.read() == b"data"


def test_base64_data_may_be_wrapped_in_lines_like_in_go() -> None:
    text = encoded(b"x" * 100)
    found = parsed({"certificate-authority-data": f"{text[:64]}\n{text[64:]}\n"})
    assert found.cluster.authority.read() == b"x" * 100


def test_credentials_are_in_no_representation() -> None:
    found = parsed(user={"token": "secret", "client-key-data": encoded(b"private")})
    assert "secret" not in repr(found)
    assert "private" not in repr(found)


def without(*path: str | int) -> dict[str, Any]:
    """Return the kubeconfig with one of its parts missing."""
    document = copy.deepcopy(kubeconfig())
    *parents, last = path
    part: Any = document
    for parent in parents:
        part = part[parent]
    del part[last]
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "not a mapping"),
        ([], "not a mapping"),
        ({}, "it has no current-context, and none is named"),
        (without("current-context"), "it has no current-context, and none is named"),
        (without("contexts"), "contexts has no entry named 'edge'"),
        (without("contexts", 1), "contexts has no entry named 'edge'"),
        (without("contexts", 1, "context"), "clusters has no entry named None"),
        (without("clusters", 1), "clusters has no entry named 'cloud'"),
        (without("users", 1), "users has no entry named 'node'"),
        (kubeconfig(user={"exec": {"command": "aws"}}), "exec.apiVersion must be one of"),
        (kubeconfig(user={"exec": "aws"}), "exec is not a mapping"),
        (kubeconfig(user={"exec": {**EXEC, "args": 5}}), "exec.args is not a list"),
        (
            kubeconfig(user={"exec": {**EXEC, "env": ["REGION"]}}),
            "exec.env is not a list of names and values",
        ),
        (kubeconfig(user={"exec": {**EXEC, "env": [{"value": "x"}]}}), "exec.env is not a list of names"),
        (kubeconfig(user={"token": "two\nlines"}), "token is not a single line"),
        (kubeconfig(user={"exec": EXEC, "token": "t"}), "a user has exec, and a certificate or a token"),
        (kubeconfig(user={"auth-provider": {"name": "gcp"}}), "a user with auth-provider"),
        (kubeconfig(user={"username": "u", "password": "p"}), "a user with username"),
        (kubeconfig(user={"token": "t", "as": "other"}), "a user with as is"),
        (kubeconfig(user={"token": "t", "as-groups": ["g"]}), "a user with as-groups"),
        (kubeconfig({"proxy-url": "socks5://u:secret@y"}), "the URL of the proxy is not of the form"),
        (kubeconfig({"certificate-authority-data": "!"}), "certificate-authority-data is not base64"),
        (kubeconfig(user={"client-key-data": "AA"}), "client-key-data is not base64"),
        (kubeconfig({"certificate-authority-data": "é"}), "certificate-authority-data is not base64"),
    ],
)
def test_an_unusable_kubeconfig_is_refused_with_the_reason(document: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_kubeconfig(document, FOLDER)


def test_an_exec_plugin_gives_the_credentials() -> None:
    found = parsed(user={"exec": EXEC})
    assert found.user.plugin is not None
    assert found.user.plugin.command == "/etc/edge/bin/aws"
    assert found.user.bearer == ""
    found.user.use_output(ExecCredentials(b"token", b"certificate", b"key", None))
    assert (found.user.bearer, found.user.certificate.read(), found.user.key.read()) == (
        "Bearer token",
        b"certificate",
        b"key",
    )


def test_several_kubeconfigs_are_merged_like_by_kubectl(tmp_path: Path) -> None:
    """The first entry of a name is used, and missing files are skipped."""
    first, second = tmp_path / "a" / "config", tmp_path / "b" / "config"
    for path, document in (
        (first, {"current-context": "edge", "users": [{"name": "node", "user": {"tokenFile": "token"}}]}),
        (second, kubeconfig({"server": "https://second"}, {"token": "second"})),
    ):
        path.parent.mkdir()
        path.write_text(yaml.safe_dump(document))
    (tmp_path / "a" / "token").write_text("first")
    found = load_kubeconfig(tmp_path / "none", first, second)
    assert (found.cluster.server, found.user.bearer) == ("https://second", "Bearer first")
    other = load_kubeconfig(first, second, context="other")
    assert (other.cluster.server, other.user.bearer) == ("https://192.0.2.1", "Bearer wrong")
    with pytest.raises(ValueError, match="contexts has no entry named 'mine'"):
        load_kubeconfig(first, second, context="mine")
    with pytest.raises(ValueError, match="there is no such file"):
        load_kubeconfig(tmp_path / "none", tmp_path / "neither")


def test_files_are_relative_to_the_kubeconfigs_folder(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig(user={"tokenFile": "token"})))
    assert load_kubeconfig(path).user.bearer == "Bearer secret"


def test_a_token_file_overrides_a_token_and_is_read_again_when_changed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    found = parsed(user={"token": "of the day", "tokenFile": str(path)})
    assert found.user.bearer == "Bearer first"
    # kubelet rotates a projected token this way: a new file replaces the old one.
    new = tmp_path / "new"
    new.write_text("second\nand another\n")
    new.replace(path)
    assert found.user.bearer == "Bearer second"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory$"),
        (b"a: [", "it is not one document of YAML"),
        (b"a: b: c", "it is not one document of YAML"),
        (b"a: b\n---\na: b\n", "it is not one document of YAML"),
        (b"\xff\xfe\xff", "can't decode"),
        (b"kind: Pod", "it has no current-context, and none is named"),
        (b"", "it is not a mapping"),
        (b"- 1", "it is not a mapping"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named_in_the_error(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "no.kubeconfig"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=f"kubeconfig {path}: .*{message}"):
        load_kubeconfig(path)


def test_a_token_is_used_until_its_file_first_exists_like_in_client_go() -> None:
    found = parsed(user={"token": "of the day", "tokenFile": "/no/such/file"})
    assert found.user.bearer == "Bearer of the day"


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        DataOrFile(path=tmp_path / "client.key").read()


def test_the_old_credential_is_used_during_an_unfinished_rotation(tmp_path: Path) -> None:
    """The credential's file was deleted, or truncated to be rewritten."""
    path = tmp_path / "client.crt"
    path.write_bytes(b"old")
    piece = DataOrFile(path=path)
    assert piece.read() == b"old"
    path.unlink()
    assert piece.read() == b"old"
    for written, found in ((b"", b"old"), (b"new", b"new")):
        path.write_bytes(written)
        assert piece.read() == found


def test_authorities_are_the_certificates_of_the_bundle() -> None:
    bundle = Authority("one").certificate + Authority("two").certificate
    found = parsed({"certificate-authority-data": encoded(bundle)})
    assert len(found.cluster.authorities) == 2


@pytest.mark.parametrize("field", ["username", "password", "auth-provider", "as", "as-groups"])
@pytest.mark.parametrize("value", [None, "", []])
def test_a_field_without_a_value_is_ignored(field: str, value: object) -> None:
    found = parse_kubeconfig(kubeconfig(user={"token": "t", field: value}), FOLDER)
    assert found.user.bearer == "Bearer t"
