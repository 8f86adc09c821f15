"""The address for pods, in network namespaces of the tests: the interface that has it, and the error without rights."""

from __future__ import annotations

import subprocess
import sys

import pytest

from addons.startup.pod_interface import how_to
from tests.repository.support.tree import ROOT

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
    """What a command begins with that runs as root of a network of its own."""
    inside = ["unshare", "--map-root-user", "--net"]
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine allows no network namespaces, or has no ip")
    return inside


def run(inside: list[str], script: str) -> str:
    """What a script prints."""
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
def test_the_addresses_are_made_kept_right_and_removed(
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


def test_without_the_right_it_says_what_to_type(namespace: list[str]) -> None:
    script = """
try:
    ensure(("192.0.2.77",))
except ValueError as error:
    print(error)
"""
    # root of no network: the machine's own, which it may not change
    said = run(["unshare", "--map-root-user"], script)
    assert said.startswith(
        "hub_pod_address: Operation not permitted: give the hub CAP_NET_ADMIN, or type `ip link add"
    )


def test_the_commands_name_each_address() -> None:
    assert "ip addr add 169.254.2.1/32 dev edgehub0 && ip addr add fd00::1/128 dev edgehub0" in how_to(
        ("169.254.2.1", "fd00::1")
    )
