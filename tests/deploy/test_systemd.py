"""A node with a real systemd gets a hub and loses it again: the units written by `edgehub install`, in operation."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from addons.install.kubeconfigs import bootstrap_kubeconfig
from kube.json_type import Json
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.hollow import is_ready
from tests.cloud.real import RealCloud
from tests.deploy.support.booted import PROGRAM, PYTHON, SERVER, BootedNode, why_not
from tests.support.objects import obj

NODE = "booted"
HUB = "edgehub.service"
LIMIT = 400.0
"""Seconds until a node is Ready; it takes several, more on a busy machine."""
LOAD = """\
import collections, http.client, sys, threading
ends, done = collections.Counter(), threading.Event()
def ask():
    while not done.is_set():
        conn = http.client.HTTPConnection("127.0.0.1", 10261, timeout=60)
        try:
            conn.request("GET", "/version", headers={"User-Agent": "kubelet/v1"})
            ends[str(conn.getresponse().status)] += 1
        except Exception as error:
            ends[type(error).__name__] += 1
        conn.close()
        done.wait(0.01)
        print(".", flush=True)
threads = [threading.Thread(target=ask) for _ in range(4)]
[each.start() for each in threads]
sys.stdin.read()
done.set()
[each.join() for each in threads]
print(__import__("json").dumps(ends))
"""
"""Clients that open a connection for each request until their input ends, and then print how the requests ended."""

WAITING = f"""\
[Service]
ExecStart=
ExecStart={PROGRAM} --bootstrap-kubeconfig /etc/kubernetes/ended.conf --node {NODE}
"""
"""A hub whose token the cloud does not know."""
ASK = """\
import http.client
conn = http.client.HTTPConnection("127.0.0.1", 10261, timeout=60)
conn.request("GET", "/version", headers={"User-Agent": "kubelet/v1"})
answer = conn.getresponse()
print(answer.status, answer.headers["Retry-After"])
"""
COMPONENT = """\
import http.client, ssl, sys
name, token, path = sys.argv[1:]
if token:
    conn = http.client.HTTPSConnection("127.0.0.1", 10268, timeout=60, context=ssl._create_unverified_context())
else:
    conn = http.client.HTTPConnection("127.0.0.1", 10261, timeout=60)
conn.request("GET", path, headers={"User-Agent": name, **({"Authorization": f"Bearer {token}"} if token else {})})
answer = conn.getresponse()
print(answer.status, answer.read().decode())
"""
READ = """\
from mitmproxy.io import FlowReader
for flow in FlowReader(open("/srv/flows", "rb")).stream():
    print(flow.request.path, flow.response.status_code)
"""

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def booted(
    empty_cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BootedNode]:
    """A node with a kubelet, and no hub."""
    if reason := why_not():
        pytest.skip(f"no systemd can be started here: {reason}")
    empty_cloud.apply(HUB_RBAC)
    with BootedNode(tmp_path_factory.mktemp("booted"), empty_cloud, NODE, cloud_programs) as node:
        empty_cloud.admin.wait_for("/api/v1/nodes", NODE, is_ready, timeout=LIMIT)
        yield node


@pytest.fixture(scope="module")
def kubelet_conf(booted: BootedNode) -> str:
    """kubelet's kubeconfig before there was a hub."""
    return booted.run("cat", "/etc/kubernetes/kubelet.conf")


@pytest.fixture(scope="module")
def installed(booted: BootedNode, kubelet_conf: str) -> BootedNode:
    """Return the node, with its hub."""
    assert "server: https:" in kubelet_conf
    assert f"{NODE} is behind its hub" in booted.run(PROGRAM, "install", "--timeout", str(LIMIT))
    return booted


def pid_of_hub(node: BootedNode) -> str:
    return node.shown(HUB, "MainPID")["MainPID"]


def test_the_hub_runs_within_the_limits_of_its_unit(installed: BootedNode) -> None:
    shown = installed.shown(HUB, "ActiveState", "NRestarts", "MemoryHigh", "LimitNOFILE")
    assert shown == {
        "ActiveState": "active",
        "NRestarts": "0",
        "MemoryHigh": str(512 << 20),
        "LimitNOFILE": "65536",
    }
    pid = pid_of_hub(installed)
    status = dict(line.split(":\t", 1) for line in installed.run("cat", f"/proc/{pid}/status").splitlines())
    # The hub's only capability.
    net_admin = 1 << 12
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == net_admin
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    state = "touch /var/lib/edgehub/x && rm /var/lib/edgehub/x"
    others = "for each in etc usr home; do ! touch /$each/x || exit 1; done"
    installed.run("nsenter", f"--target={pid}", "--mount", "sh", "-c", f"{state} && {others}")

    assert installed.run("stat", "--format=%a", "/var/lib/edgehub").strip() == "700"
    assert {"cache", "pki"} <= set(installed.run("ls", "/var/lib/edgehub").split())


def test_the_hub_adds_the_pod_address_to_the_node(installed: BootedNode) -> None:
    assert " 169.254.2.1/32 " in installed.run("ip", "-brief", "address", "show", "edgehub0")
    installed.run(PYTHON, "-c", "import socket; socket.create_connection(('169.254.2.1', 10268), 30)")


def test_no_connection_is_refused_while_systemd_restarts_the_hub(installed: BootedNode) -> None:
    former = pid_of_hub(installed)
    with subprocess.Popen(
        [*installed.enter, PYTHON, "-c", LOAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        for _ in range(50):
            load.stdout.readline()
        installed.systemctl("restart", HUB)
        for _ in range(50):
            load.stdout.readline()
        load.stdin.close()
        ends = Counter(json.loads(load.stdout.read().splitlines()[-1]))
    assert pid_of_hub(installed) != former
    assert ends["200"] >= 80  # a request in progress at the previous hub may fail with it
    assert ends["ConnectionRefusedError"] < 1, ends


def test_systemd_restarts_a_killed_hub_with_its_address(installed: BootedNode) -> None:
    installed.run("ip", "link", "del", "edgehub0")
    installed.systemctl("kill", "--signal=KILL", HUB)
    again = {"NRestarts": "1", "ActiveState": "active"}
    installed.until(lambda: installed.shown(HUB, *again) == again)
    assert " 169.254.2.1/32 " in installed.run("ip", "-brief", "address", "show", "edgehub0")


def test_the_hub_uses_the_certificate_that_kubelet_has_renewed(installed: BootedNode) -> None:
    installed.rotate(2, timedelta(hours=2))
    expiry = 'edgehub_certificate_expiry_seconds{use="client"} '
    installed.until(lambda: 0 < installed.metric(expiry) <= 7200)


def test_the_doctor_finds_no_error_and_an_upgrade_restarts_the_hub(installed: BootedNode) -> None:
    assert f"ok       node         {NODE}, kubelet v" in installed.run(PROGRAM, "doctor")
    former = pid_of_hub(installed)
    upgraded = installed.run(PROGRAM, "upgrade", "--timeout", str(LIMIT), "--healthy", "5")
    assert "the hub runs with this program" in upgraded
    assert pid_of_hub(installed) != former


def test_kubelet_starts_while_the_hub_waits_for_its_identity(
    installed: BootedNode, empty_cloud: RealCloud
) -> None:
    ended = bootstrap_kubeconfig(SERVER, empty_cloud.authority.certificate, "abcdef.0123456789abcdef")
    installed.write("/etc/kubernetes/ended.conf", ended.encode())
    drop_in = "/run/systemd/system/edgehub.service.d/waiting.conf"
    installed.write(drop_in, WAITING.encode())
    installed.systemctl("daemon-reload")
    installed.systemctl("stop", "kubelet.service", HUB)
    # One transaction, as at boot: kubelet starts after the hub.
    installed.systemctl("start", "--no-block", HUB, "kubelet.service")
    installed.until(lambda: installed.shown("kubelet.service", "ActiveState") == {"ActiveState": "active"})
    shown = installed.shown(HUB, "ActiveState", "StatusText")
    assert shown["ActiveState"] == "active"
    assert "the cluster has not signed the certificate of this node yet" in shown["StatusText"]
    assert installed.run(PYTHON, "-c", ASK).split() == ["503", "1"]

    installed.run("rm", drop_in)
    installed.systemctl("daemon-reload")
    installed.systemctl("restart", HUB)
    installed.until(lambda: installed.run(PYTHON, "-c", ASK).split()[0] == "200")
    assert installed.shown(HUB, "StatusText") == {"StatusText": ""}


def test_the_five_minute_diagnosis_works_without_a_restart(
    installed: BootedNode, empty_cloud: RealCloud
) -> None:
    class Person:
        """A user who diagnoses a node with the commands of its running hub."""

        def __init__(self, node: BootedNode) -> None:
            self.node = node

        def ask(self, component: str, path: str, token: str = "") -> str:
            """Send a request like a component; return the status and the body."""
            return self.node.run(PYTHON, "-c", COMPONENT, component, token, path)

        def observed(self, component: str) -> Json:
            """Return the last request of a component, as `edgehub observe` prints it."""
            output = self.node.run(
                PROGRAM, "observe", "--component", component, "--since", "5m", "-o", "json"
            )
            found: Json = json.loads(output.splitlines()[-1])
            return found

        @contextlib.contextmanager
        def attached(self) -> Iterator[None]:
            """Save the hub's flows to a file while attached."""
            attach = f"echo $$ > /run/attach.pid; exec {PROGRAM} attach -w /srv/flows"
            with subprocess.Popen([*self.node.enter, "sh", "-c", attach]) as writing:
                self.node.until(
                    lambda: (
                        self.ask("kubelet/v1", "/version") and self.node.run("cat", "/srv/flows", check=False)
                    )
                )
                yield
                # The process that enters the node forwards no signals.
                self.node.run("sh", "-c", "kill -INT $(cat /run/attach.pid)")
                assert writing.wait(LIMIT) == 0

    person, hub = Person(installed), pid_of_hub(installed)
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    shop = obj("Service", "shop", "default", spec=spec)
    rules = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "yurt-hub-cfg", "namespace": "kube-system"},
        "data": {"filter_discardcloudservice": "dashboard/services#list"},
    }
    services = "/api/v1/namespaces/default/services"

    # A rule hides too much: find its entry from the line of the request, and the effect of removing it.
    empty_cloud.apply([shop, rules])
    installed.until(lambda: "shop" not in person.ask("dashboard/v1", services))
    line = person.observed("dashboard")
    assert (line["verdict"], line["status"]) == ("filtered", 200)
    assert line["filters"][0]["filter"] == "discardcloudservice"
    asked = ("--component", "dashboard", "--resource", "services", "--namespace", "default", "--name", "shop")
    assert "discardcloudservice" in installed.run(PROGRAM, "explain", *asked)
    page = (
        "import urllib.request as it; print(it.urlopen('http://127.0.0.1:10267/debug/rules').read().decode())"
    )
    assert "dashboard" in installed.run(PYTHON, "-c", page)
    installed.write("/srv/rules.yaml", b"data: {}\n")
    assert "+ default/shop" in installed.run(PROGRAM, "rules", "try", "/srv/rules.yaml", check=False)
    empty_cloud.apply([{**rules, "data": {}}])
    installed.until(lambda: "shop" in person.ask("dashboard/v1", services))

    # The link is slow: the request's line has the cloud's time, and nothing is reported as offline.
    installed.delay = 0.5
    assert person.ask("slowpoke/v1", services).startswith("200 ")
    installed.delay = 0.0
    line = person.observed("slowpoke")
    assert (line["verdict"], line["source"]) == ("relayed", "cloud")
    assert line["seconds"] >= 1, "to the cloud and back"
    assert installed.run(PROGRAM, "status").startswith("Online")

    # A token that expired in 1970.
    ended = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2s4cyIsImV4cCI6MX0.c2lnbmVk"
    # A token has expired: its flow has the cloud's response and the caller.
    with person.attached():
        assert person.ask("shop/v1", services, ended).startswith("401 ")
    assert (person.observed("shop")["status"], person.observed("shop")["source"]) == (401, "cloud")
    assert f"{services} 401" in installed.run(PYTHON, "-c", READ)
    assert ended not in installed.run("cat", "/srv/flows")
    assert pid_of_hub(installed) == hub


def test_uninstalling_restores_the_node(
    installed: BootedNode, empty_cloud: RealCloud, kubelet_conf: str
) -> None:
    assert "every file is as it was" in installed.run(PROGRAM, "uninstall")
    assert installed.run("cat", "/etc/kubernetes/kubelet.conf") == kubelet_conf
    for unit in (HUB, "edgehub.socket"):
        assert installed.shown(unit, "LoadState", "ActiveState") == {
            "LoadState": "not-found",
            "ActiveState": "inactive",
        }
    assert "edgehub0" not in installed.run("ip", "-brief", "link")
    empty_cloud.admin.wait_for("/api/v1/nodes", NODE, is_ready, timeout=LIMIT)
