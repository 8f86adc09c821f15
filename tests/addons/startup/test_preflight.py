"""Preparations and checks before a port opens: options, files, the state folder, and the address for pods."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from addons.settings import Settings, parse_settings
from addons.startup import preflight
from addons.startup.folder_owner import FolderOwner
from addons.startup.pod_interface import repair_commands
from addons.startup.state_folder import StateFolder
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority, Credential
from tests.repository.support.tree import ROOT

EVERY = "0.0.0.0"  # noqa: S104 - nothing listens there

NOBODY = FolderOwner("", "", (), ())


def settings(**given: Any) -> Settings:
    return parse_settings({"server": "https://a:6443", **given})


def check(given: Settings) -> None:
    preflight.check(given, given.servers)


def refusal(given: Settings) -> str:
    """Return the reason why the start fails; "" if it succeeds."""
    try:
        check(given)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"server": "http://127.0.0.1:10261"}, "hub_port"),
        ({"server": "https://localhost:10268"}, "hub_tls_port"),
        ({"server": "https://good:6443,http://127.0.0.1:10267"}, "hub_admin_port"),
        ({"server": "https://[::1]:10268", "listen": "::1"}, "hub_tls_port"),
        ({"server": "https://127.0.0.2:10268", "listen": EVERY, "pod_address": "10.0.0.1"}, "hub_tls_port"),
    ],
)
def test_a_server_url_that_is_a_port_of_the_hub_is_refused(given: dict[str, Any], option: str) -> None:
    reason = f"which is this hub itself ({option}): give hub_server the address"
    assert reason in refusal(settings(**given))


def test_a_server_name_that_resolves_to_the_hub_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(server=f"https://{os.uname().nodename}:10268")
    for address, is_hub in (("127.0.0.1", True), ("192.0.2.1", False)):
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 0))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, found=found: found)
        assert ("this hub itself (hub_tls_port)" in refusal(given)) == is_hub


@pytest.mark.parametrize(
    "given",
    [
        {"server": "https://127.0.0.1:6443"},
        {"server": "https://192.0.2.1:10268", "listen": EVERY, "pod_address": "10.0.0.1"},
        {"server": "https://127.0.0.2:10261"},
        {"server": "https://cloud:10268"},
        {"server": "http://127.0.0.1:10261", "port": 0},
    ],
)
def test_servers_other_than_the_hub_itself_are_accepted(given: dict[str, Any]) -> None:
    assert refusal(settings(**given)) == ""


def test_a_kubeconfig_that_points_at_the_hub_is_named_in_the_error() -> None:
    given = settings(server="", kubeconfig="/etc/kubernetes/kubelet.conf")
    with pytest.raises(
        ValueError, match=r"the server of hub_kubeconfig /etc/kubernetes/kubelet\.conf is http"
    ):
        preflight.check(given, settings(server="http://127.0.0.1:10261").servers)


@pytest.mark.parametrize(
    ("credential", "given", "is_reported"),
    [
        (Authority().issue_client("admin", ["system:masters"]), {}, True),
        (Authority().issue_client("admin", ["system:masters"]), {"plain_users": "root"}, False),
        (Authority().issue_client("admin", ["system:masters"]), {"port": 0}, False),
        (Authority().issue_node("n1"), {"node": "n1"}, False),
        (None, {}, False),
    ],
)
def test_a_plain_port_with_a_users_credentials_is_reported(
    tmp_path: Path, credential: Credential | None, given: dict[str, Any], is_reported: bool
) -> None:
    path = write_kubeconfig(tmp_path / "config", "https://10.0.0.1:6443", credential=credential)
    found = settings(kubeconfig=str(path), **given)
    line = preflight.doubt(found, preflight.credentials_of(found))
    assert bool(line) is is_reported
    if is_reported:
        user = pwd.getpwuid(os.geteuid()).pw_name
        assert (
            f"{path} is no node's: every process of this machine that reaches http://127.0.0.1:10261" in line
        )
        assert f"hub_plain_users {user}, or switch the port off by hub_port 0" in line


def test_unusable_certificate_files_are_refused_with_their_option(tmp_path: Path) -> None:
    certificate, key = Authority().issue_server("x", ["127.0.0.1"]).write(tmp_path, "mine")
    check(settings(tls_cert=str(certificate), tls_key=str(key)))
    with pytest.raises(ValueError, match="hub_tls_cert /none cannot be read: No such file or directory"):
        check(settings(tls_cert="/none", tls_key=str(key)))
    with pytest.raises(ValueError, match="hub_tls_key /none cannot be read"):
        check(settings(tls_cert=str(certificate), tls_key="/none"))
    with pytest.raises(ValueError, match="are not a PEM certificate and its private key"):
        check(settings(tls_cert=str(key), tls_key=str(certificate)))
    check(settings(tls_cert="/none", tls_key="/none", tls_port=0))


@pytest.mark.parametrize(
    ("where", "number", "message"),
    [
        (
            "127.0.0.1:10267",
            errno.EADDRINUSE,
            "hub_admin_port: cannot listen on 127.0.0.1:10267: Address already",
        ),
        ("hub:plain@127.0.0.1:10261", errno.EACCES, "hub_port: cannot listen on 127.0.0.1:10261"),
        ("hub:tls@::1:10268", errno.EADDRNOTAVAIL, "hub_listen must be an address of this"),
        ("hub:peer@10269", errno.EADDRINUSE, "hub_peer_port: cannot listen on 10269: Address already"),
        ("hub:peer@10.0.0.9:10269", errno.EADDRNOTAVAIL, "hub_peer_address must be an address of this"),
    ],
)
def test_a_listener_that_cannot_be_opened_is_reported_with_the_remedy(
    where: str, number: int, message: str
) -> None:
    assert message in preflight.cannot_listen(OSError(number, os.strerror(number), where), settings())


PREPARED = """\
import json, subprocess, sys
from addons.startup import pod_interface
from addons.startup.pod_interface import ensure, remove

ADDRESSES = ("169.254.2.1", "fd00::2:1")

def ip(*words):
    subprocess.run(["ip", *words], check=True)

def addresses(name):
    shown = subprocess.run(["ip", "-json", "addr", "show", "dev", name], capture_output=True, check=False).stdout
    return {each["local"] for link in json.loads(shown or "[]") for each in link["addr_info"]}
"""


@pytest.fixture
def namespace() -> list[str]:
    """Return the prefix of a command that runs as root in its own network namespace."""
    inside = ["unshare", "--map-root-user", "--net"]
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine allows no network namespaces, or has no ip")
    return inside


def run(inside: list[str], script: str) -> str:
    """Run a script; return its output."""
    command = [*inside, sys.executable, "-c", PREPARED + script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("kinds", "before", "name"),
    [
        (("dummy", "bridge"), "", "edgehub0"),
        (("bridge",), "", "edgehub0"),
        ((), "", "lo"),
        ((), 'ip("link", "add", "edgehub0", "type", "veth", "peer", "name", "other")', "edgehub0"),
        ((), 'for each in ADDRESSES: ip("addr", "add", each, "dev", "lo")', "lo"),
    ],
    ids=["first choice", "no dummy", "neither", "an interface of the name", "addresses that are there"],
)
def test_pod_addresses_are_added_repaired_and_removed(
    namespace: list[str], kinds: tuple[str, ...], before: str, name: str
) -> None:
    script = f"""
pod_interface.KINDS = {kinds!r}
ip("link", "set", "lo", "up")
{before}
assert ensure(ADDRESSES) == {name!r}
assert addresses({name!r}) >= set(ADDRESSES)
ip("addr", "del", ADDRESSES[0] + "/32", "dev", {name!r})
assert ensure(ADDRESSES) == {name!r}
assert addresses({name!r}) >= set(ADDRESSES)
remove(ADDRESSES)
assert not (addresses("edgehub0") | addresses("lo")) & set(ADDRESSES)
print("done")
"""
    assert run(namespace, script) == "done\n"


def test_a_missing_capability_is_reported_with_the_remedy(namespace: list[str]) -> None:
    script = """
try:
    ensure(("192.0.2.77",))
except ValueError as error:
    print(error)
"""
    # root without a network namespace: it may not change the machine's network
    said = run(["unshare", "--map-root-user"], script)
    assert said.startswith(
        "hub_pod_address: Operation not permitted: give the hub CAP_NET_ADMIN, or type `ip link add"
    )


def test_the_commands_name_each_address() -> None:
    assert (
        "ip addr add 169.254.2.1/32 dev edgehub0 && ip addr add fd00::1/128 dev edgehub0"
        in repair_commands(("169.254.2.1", "fd00::1"))
    )


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_state_folder_is_accessible_to_its_user_only(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "var" / "edgehub")
    folder.claim(NOBODY)
    assert mode_of(tmp_path / "var" / "edgehub") == 0o700
    assert mode_of(tmp_path / "var" / "edgehub" / "lock") == 0o600
    folder.release()


def test_a_state_folder_in_use_by_another_hub_is_refused(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path / "state"), StateFolder(tmp_path / "state")
    first.claim(NOBODY)
    with pytest.raises(ValueError, match=f"is in use by another hub \\(process {os.getpid()}\\)"):
        second.claim(NOBODY)
    first.release()
    first.release()
    second.claim(NOBODY)
    second.release()


def test_a_state_folder_writable_by_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    for mode in (0o777, 0o1777, 0o775):
        (tmp_path / "state").chmod(mode)
        with pytest.raises(
            ValueError, match="can be written by other users; check its files, then: chmod go-w"
        ):
            StateFolder(tmp_path / "state").claim(NOBODY)
        assert mode_of(tmp_path / "state") == mode, "the hub takes no folder away from others"


def test_a_state_folder_below_a_folder_writable_by_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ValueError, match="by other users, who could put another folder in its place"):
        StateFolder(tmp_path / "open" / "state").claim(NOBODY)
    (tmp_path / "open").chmod(0o1777)
    folder = StateFolder(tmp_path / "open" / "other")
    folder.claim(NOBODY)
    folder.release()


@pytest.mark.parametrize("folder", ["/proc/edgehub/state", f"/{'x' * 300}"])
def test_a_state_folder_that_cannot_be_created_is_refused(folder: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be written: (No such file|File name too long)"):
        StateFolder(Path(folder)).claim(NOBODY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
@pytest.mark.parametrize("is_link", [False, True])
def test_a_state_folder_created_by_another_user_is_refused(tmp_path: Path, is_link: bool) -> None:
    path = tmp_path / "state"
    if is_link:
        (tmp_path / "own").mkdir()
        path.symlink_to(tmp_path / "own")
    else:
        path.mkdir()
    os.chown(path, 12345, 12345, follow_symlinks=False)
    with pytest.raises(ValueError, match=r"belongs to another user \(uid 12345\)"):
        StateFolder(path).claim(NOBODY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_a_state_folder_in_another_users_folder_is_refused(tmp_path: Path) -> None:
    """The owner of the outer folder can move the hub's folder away while the hub runs."""
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", 12345, 12345)
    with pytest.raises(
        ValueError, match=r"home belongs to another user \(uid 12345\), who could put another"
    ):
        StateFolder(tmp_path / "home" / "state").claim(NOBODY)


def test_a_symbolic_link_to_an_own_folder_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    folder = StateFolder(tmp_path / "state")
    folder.claim(NOBODY)
    assert (tmp_path / "disk" / "lock").exists()
    folder.release()


def test_a_symbolic_link_at_the_lock_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "state" / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ValueError, match="cannot be written"):
        StateFolder(tmp_path / "state").claim(NOBODY)
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_file_at_the_path_of_the_state_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(
        ValueError, match="cannot be written: Not a directory; give the hub a folder of its own"
    ):
        StateFolder(tmp_path / "state").claim(NOBODY)


def test_a_missing_permission_ends_the_start_and_a_broken_disk_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node needs its hub even with a broken disk; the operator can correct a missing permission."""

    def fail(number: int) -> None:
        def mkdir(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Path, "mkdir", mkdir)

    fail(errno.EACCES)
    with pytest.raises(ValueError, match="cannot be written: Permission denied"):
        StateFolder(tmp_path / "state").claim(NOBODY)
    fail(errno.EROFS)
    with pytest.raises(OSError, match="Read-only file system"):
        StateFolder(tmp_path / "state").claim(NOBODY)
