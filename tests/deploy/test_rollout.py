"""Five nodes with systemd get hubs by Jobs, revert a bad version, are upgraded, and lose their hubs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kube.json_type import Json
from scripts.building.release import build_packages
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.hollow import is_ready
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.controllers.conftest import MANIFESTS
from tests.controllers.nodes.support.converted_nodes import EDGE_WORKER, JOBS
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import NODES, POOL_LABEL, POOLS, condition
from tests.deploy.support.booted import PROGRAM, PYTHON, BootedNode, why_not
from tests.deploy.test_systemd import HUB, LIMIT, LOAD
from tests.support.worker import Worker

pytestmark = [pytest.mark.real, pytest.mark.timeout(2400)]

NAMES = [f"rolled-{number}" for number in range(1, 6)]
LEADER = NAMES[0]
POOL = "rolled"
GOOD, BAD = "0.3.0", "0.3.1"
KUBELET = "/etc/kubernetes/kubelet.conf"
BESIDE = """\
set -e
cp -a /opt/edgehub /opt/edgehub-{good}
sed -i '1s,/opt/edgehub/,/opt/edgehub-{good}/,' /opt/edgehub-{good}/bin/edgehub
for each in $(grep -rlE '^VERSION = ' --include=option.py /opt/edgehub-{good}); do
    sed -i 's/^VERSION = .*/VERSION = "{good}"/' $each
done
mkdir -p /opt/edgehub-{bad}/bin
cd /opt/edgehub-{bad}/bin
printf '#!/bin/sh\\n(sleep 8; kill -9 $$) &\\nexec /opt/edgehub-{good}/bin/edgehub "$@"\\n' > edgehub
chmod 755 edgehub
"""
"""A script that installs two more versions beside the current one. The hub of one of them is killed some seconds after
each start."""


RENEW = """\
import http.client, sys, time
path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + sys.argv[1]
def ask(method, body=None):
    conn = http.client.HTTPConnection("127.0.0.1", 10261, timeout=60)
    conn.request(method, path, body, {"User-Agent": "kubelet/v1", "Content-Type": "application/json"})
    return conn.getresponse().read()
while True:
    try:
        ask("PUT", ask("GET"))
    except (OSError, http.client.HTTPException):
        pass
    time.sleep(3)
"""
"""A script that renews the node's Lease like kubelet: the hollow kubelet has another User-Agent, so the hub relays its
writes."""


class Jobs(Worker):
    """Run the command of each Job on its node, and write its result: the tests' kubelets run no containers."""

    def __init__(self, cloud: RealCloud, nodes: Sequence[BootedNode]) -> None:
        self._client = cloud.client(cloud.authority.issue_admin())
        self._nodes = {node.node: node for node in nodes}
        self._pool = ThreadPoolExecutor(len(nodes))
        self._begun: set[str] = set()
        self.running: set[str] = set()
        self.ran: list[tuple[str, str]] = []
        """The action and the node of each Job."""

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._pool.shutdown()

    def upgraded(self) -> list[str]:
        return [node for action, node in self.ran if action == "upgrade"]

    def _work(self) -> None:
        while not self._ended.wait(0.2):
            for job in self._client.get(JOBS)["items"]:
                name = job["metadata"]["name"]
                if name not in self._begun:
                    self._begun.add(name)
                    self.running.add(name)
                    self._pool.submit(self._run, job)

    def _run(self, job: Json) -> None:
        pod = job["spec"]["template"]["spec"]
        node = self._nodes[pod["nodeName"]]
        action, *options = pod["containers"][0]["args"]
        assert options[:3] == ["--root", "/host", "--systemctl"]
        self.ran.append((action, node.node))
        if action == "install":
            # systemd runs these hubs, so there is no image; and nothing here signs the certificate for pods.
            assert options[4] == "--static-pod"
            options = [*options[:4], *options[6:], "--", "--tls-signer=local"]
        command = [*node.enter, PROGRAM, action, *options[4:]]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        print(node.node, action, done.returncode, done.stdout[-400:], done.stderr[-800:])
        _end(self._client, job, is_well=not done.returncode)
        self.running.discard(job["metadata"]["name"])


def _end(client: RestClient, job: Json, *, is_well: bool) -> None:
    """Write the status as the Job controller does."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    types = ("SuccessCriteriaMet", "Complete") if is_well else ("FailureTarget", "Failed")
    conditions = [{"type": each, "status": "True", "lastTransitionTime": now} for each in types]
    status: Json = {"conditions": conditions, "startTime": job["metadata"]["creationTimestamp"]}
    if is_well:
        status |= {"completionTime": now, "succeeded": 1}
    client.patch(f"{JOBS}/{job['metadata']['name']}/status", {"status": status})


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]) -> Iterator[RealCloud]:
    if reason := why_not():
        pytest.skip(f"no systemd can be started here: {reason}")
    flags = ["--allow-privileged=true"]
    with RealCloud(tmp_path_factory.mktemp("rollout"), cloud_programs, apiserver_flags=flags) as made:
        made.apply(HUB_RBAC)
        made.apply(MANIFESTS)
        yield made


@pytest.fixture(scope="module")
def nodes(
    cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[BootedNode]]:
    """Nodes without hubs, with three versions of the program on their disks."""
    built = tmp_path_factory.mktemp("wheel")
    build_packages(built)
    (wheel,) = built.glob("*.whl")
    with ExitStack() as stack:
        made = [
            stack.enter_context(BootedNode(tmp_path_factory.mktemp(name), cloud, name, cloud_programs, wheel))
            for name in NAMES
        ]
        for node in made:
            cloud.admin.wait_for(NODES, node.node, is_ready, timeout=LIMIT)
            node.run("sh", "-c", BESIDE.format(good=GOOD, bad=BAD))
            node.write("/srv/renew.py", RENEW.encode())
            node.run("systemd-run", "--unit=renew", PYTHON, "/srv/renew.py", node.node)
        yield made


class Rollout:
    """The pool, as an administrator sees it."""

    def __init__(self, cloud: RealCloud) -> None:
        self._cloud, self._admin = cloud, cloud.admin
        kind = {"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool"}
        meta = {"name": POOL, "annotations": {"edgehub.io/max-unavailable": "100%"}}
        self._admin.post(POOLS, {**kind, "metadata": meta, "spec": {"type": "Edge"}})

    def label(self, value: str | None) -> None:
        for name in NAMES:
            labels = {POOL_LABEL: POOL, EDGE_WORKER: value}
            self._admin.patch(f"{NODES}/{name}", {"metadata": {"labels": labels}})

    def lead(self) -> None:
        leaders = [{"nodeName": LEADER, "address": "10.0.0.1"}]
        self._admin.patch(f"{POOLS}/{POOL}/status", {"status": {"leaderEndpoints": leaders}})

    def ask_for(self, version: str, wave: str) -> None:
        annotations = {"edgehub.io/hub-version": version, "edgehub.io/max-unavailable": wave}
        self._admin.patch(f"{POOLS}/{POOL}", {"metadata": {"annotations": annotations}})

    def until(self, reason: str, message: str = "") -> float:
        """Wait for the pool's condition; return the minutes that it took."""
        began = time.monotonic()
        while not (self.pool_condition()[0] == reason and self.pool_condition()[1].startswith(message)):
            assert time.monotonic() < began + LIMIT, self.pool_condition()
            time.sleep(0.5)
        return (time.monotonic() - began) / 60

    def pool_condition(self) -> tuple[str, str]:
        try:
            said = condition(self._admin.get(f"{POOLS}/{POOL}"), "HubsInstalled")
        except KeyError:
            return "", ""
        return said["reason"], said["message"]

    def fleet(self) -> str:
        kubeconfig = str(self._cloud.admin_kubeconfig())
        command = [sys.executable, "-m", "addons.command", "fleet", "--kubeconfig", kubeconfig]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(scope="module")
def manager(cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagerProcess]:
    flags = ("--controllers=nodes,nodepool", "--hub-image=edgehub:0.2.0", "--no-leader-elect")
    with ManagerProcess(tmp_path_factory.mktemp("manager"), cloud.admin_kubeconfig(), *flags) as made:
        yield made


@pytest.mark.usefixtures("manager")
def test_five_nodes_get_hubs_roll_back_upgrade_and_lose_their_hubs(
    nodes: list[BootedNode], cloud: RealCloud
) -> None:
    @contextmanager
    def loaded(node: BootedNode) -> Iterator[Counter[str]]:
        """Run clients of the node's hub during this block; then return how their requests ended."""
        ends = Counter[str]()
        with subprocess.Popen(
            [*node.enter, PYTHON, "-c", LOAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as load:
            assert load.stdin is not None
            assert load.stdout is not None
            said = load.stdout
            lines: list[str] = []
            reader = threading.Thread(target=lambda: lines.extend(said))
            reader.start()
            try:
                yield ends
            finally:
                load.stdin.close()
                reader.join()
            ends.update(json.loads(lines[-1]))

    rollout = Rollout(cloud)
    with Jobs(cloud, nodes) as jobs:
        before = [node.run("cat", KUBELET) for node in nodes]
        rollout.label("true")
        minutes = rollout.until("Complete", "5 of 5 nodes have a hub")
        print(f"five nodes joined in {minutes:.1f} min")
        assert sorted(jobs.ran) == [("install", name) for name in NAMES], "each node once"
        assert all(f"\n{name} " in rollout.fleet() for name in NAMES)
        rollout.lead()
        units = [node.run("cat", "/etc/systemd/system/edgehub.service") for node in nodes]

        rollout.ask_for(BAD, "2")
        minutes = rollout.until("Stopped", "5 of 5 nodes have a hub, 0 of them")
        print(f"a bad version stopped five nodes after {minutes:.1f} min")
        nodes[0].until(lambda: not jobs.running)
        tried = jobs.upgraded()
        assert len(tried) <= 2
        assert LEADER not in tried
        assert [node.run("cat", "/etc/systemd/system/edgehub.service") for node in nodes] == units
        nodes[0].until(lambda: f"rolled back from /opt/edgehub-{BAD}/bin/edgehub: " in rollout.fleet())

        with loaded(nodes[2]) as ends:
            rollout.ask_for(GOOD, "100%")
            minutes = rollout.until("Complete", f"5 of 5 nodes have a hub, 5 of them {GOOD}")
        print(f"five nodes rolled forward in {minutes:.1f} min")
        assert ends["ConnectionRefusedError"] < 1, ends
        assert ends["200"] > 100
        assert sorted(jobs.upgraded()[len(tried) :]) == NAMES, "each node once"
        assert jobs.upgraded()[-1] == LEADER
        assert "rolled back" not in rollout.fleet()

        rollout.label(None)
        minutes = rollout.until("Complete", "0 of 0 nodes have a hub")
        print(f"five nodes left in {minutes:.1f} min")
    for node in nodes:
        assert node.shown(HUB, "LoadState") == {"LoadState": "not-found"}
    assert [node.run("cat", KUBELET) for node in nodes] == before
    for node in nodes:
        cloud.admin.wait_for(NODES, node.node, is_ready, timeout=LIMIT)
