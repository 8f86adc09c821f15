"""A state folder has one owner: another owner's content is moved aside, and only the newest such content is
retained."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from addons.link.servers import parse_server
from addons.startup.folder_owner import FILE, SET_ASIDE_FOLDER, FolderOwner, take_over
from kube.certificate_authority import certificate_pem, make_authority
from kube.http.kubeconfig import Cluster, Credentials, DataOrFile, User
from tests.addons.requests.test_caller import jwt

N2 = FolderOwner("n2", "system:node:n2", ("ca-1",), ("https://cloud:6443",), ("/k8s/clusters/c-1",))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"servers": ("https://another:6443",)}, ""),
        ({"authorities": ("ca-1", "ca-2")}, ""),
        ({"identity": ""}, ""),
        ({"authorities": ()}, ""),
        ({"node": "n3"}, "node n2"),
        ({"identity": "admin"}, "identity system:node:n2"),
        ({"authorities": ("ca-2",)}, "cluster https://cloud:6443"),
        ({"authorities": (), "servers": ("http://another",)}, "cluster https://cloud:6443"),
        ({"prefixes": ()}, ""),
        ({"prefixes": ("/k8s/clusters/c-2",)}, "cluster https://cloud:6443 at /k8s/clusters/c-1"),
    ],
)
def test_a_changed_identity_makes_another_owner(changed: dict[str, object], why: str) -> None:
    assert N2._replace(**changed).is_another_than(N2) == why  # type: ignore[arg-type]  # as the fields are


def write(folder: Path, text: str) -> None:
    for name in ("cache/cache.db", "pki/ca.key", "journal.done"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def test_the_state_of_another_node_is_moved_aside_and_one_copy_is_retained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kubeconfig").write_text("an operator's")
    take_over(tmp_path, N2)
    write(tmp_path, "n2's")
    take_over(tmp_path, N2)
    assert (tmp_path / "cache" / "cache.db").read_text() == "n2's"
    assert not caplog.text
    for number, name in enumerate(("n3", "n4")):
        take_over(tmp_path, N2._replace(node=name, identity=f"system:node:{name}"))
        assert {each.name for each in tmp_path.iterdir()} == {SET_ASIDE_FOLDER, FILE, "kubeconfig"}
        aside = (tmp_path / SET_ASIDE_FOLDER / "cache" / "cache.db").read_text()
        assert aside == ("n2's", "n3's")[number]
        write(tmp_path, f"{name}'s")
    assert f"belongs to node n2: moved to {tmp_path / SET_ASIDE_FOLDER}" in caplog.text
    assert (tmp_path / SET_ASIDE_FOLDER / FILE).exists()


def test_an_interrupted_takeover_of_a_folder_is_finished(tmp_path: Path) -> None:
    take_over(tmp_path, N2)
    write(tmp_path, "n2's")
    fresh = tmp_path / f"{SET_ASIDE_FOLDER}.new"
    fresh.mkdir()
    (tmp_path / "cache").rename(fresh / "cache")
    take_over(tmp_path, N2._replace(node="n3"))
    assert {each.name for each in tmp_path.iterdir()} == {SET_ASIDE_FOLDER, FILE}
    assert {each.name for each in (tmp_path / SET_ASIDE_FOLDER).iterdir()} == {
        "cache",
        "pki",
        "journal.done",
        FILE,
    }


def test_an_unknown_identity_does_not_replace_a_known_one(tmp_path: Path) -> None:
    take_over(tmp_path, N2)
    take_over(tmp_path, N2._replace(identity=""))
    write(tmp_path, "n2's")
    take_over(tmp_path, N2._replace(identity="admin"))
    assert (tmp_path / SET_ASIDE_FOLDER).exists()


@pytest.mark.parametrize("content", [None, "{", "[]", '{"node": "n2"}'])
def test_a_folder_without_an_owner_is_claimed(tmp_path: Path, content: str | None) -> None:
    write(tmp_path, "of a hub before")
    if content is not None:
        (tmp_path / FILE).write_text(content)
    take_over(tmp_path, N2)
    assert (tmp_path / "cache" / "cache.db").exists()
    take_over(tmp_path, N2._replace(node="n3"))
    assert not (tmp_path / "cache").exists()


def test_state_that_cannot_be_moved_aside_is_not_read(tmp_path: Path) -> None:
    take_over(tmp_path, N2)
    write(tmp_path, "n2's")
    (tmp_path / f"{SET_ASIDE_FOLDER}.new").write_text("in the way")
    with pytest.raises(ValueError, match="belongs to node n2, and cannot be moved"):
        take_over(tmp_path, N2._replace(node="n3"))


def test_identity_and_cluster_are_read_from_the_credentials() -> None:
    def _credentials(certificate: bytes = b"", authority: bytes = b"", token: bytes = b"") -> Credentials:
        user = User(DataOrFile(certificate), token=DataOrFile(token))
        return Credentials(Cluster(authority=DataOrFile(authority)), user)

    servers, now = [parse_server("https://cloud:6443/k8s/clusters/c-1")], datetime.now(UTC)
    authority = make_authority("cluster", now, now + timedelta(days=1))
    pem = certificate_pem(authority.certificate)
    found = FolderOwner.of("n", _credentials(certificate=pem, authority=pem), servers)
    assert (found.identity, len(found.authorities), found.servers) == ("cluster", 1, ("https://cloud:6443",))
    assert found.prefixes == ("/k8s/clusters/c-1",)
    token = jwt({"sub": "system:serviceaccount:a:b"}).removeprefix("Bearer ").encode()
    assert FolderOwner.of("n", _credentials(token=token), servers).identity == "system:serviceaccount:a:b"
    for nobody in (
        _credentials(),
        _credentials(token=b"opaque"),
        _credentials(certificate=b"bad", authority=b"bad"),
    ):
        assert FolderOwner.of("n", nobody, servers)[1:3] == ("", ())
