"""A hub whose certificate nobody signs, or whose clock is wrong, says so: log, doctor, metric and Event."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.real import RealCloud
from tests.hub.support.bootstrap import (
    APPROVED,
    CONTROLLERS,
    FLAG,
    MAY_ASK,
    OTHERS,
    RENEWED,
    bootstrap_kubeconfig,
    make_token,
)
from tests.hub.support.process import ROOT, SLACK, Hub
from tests.hub.test_bootstrap import until

EXPIRY = "edgehub_certificate_expiry_seconds"
HOUR = 3600.0
"""kube-controller-manager lets a certificate begin five minutes before it signs it."""
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]) -> Iterator[RealCloud]:
    with RealCloud(
        tmp_path_factory.mktemp("faults"), cloud_programs, controllers=CONTROLLERS, apiserver_flags=[FLAG]
    ) as made:
        made.apply(HUB_RBAC)
        made.apply([MAY_ASK, APPROVED, RENEWED])
        yield made


def doctor(hub: Hub, root: Path, env: Mapping[str, str], *flags: str) -> str:
    """The doctor's findings about a node below `root`, which has the hub's state."""
    ports = ("--port", hub.port, "--tls-port", hub.tls_port, "--admin-port", hub.admin_port)
    arguments = [
        "--root",
        root,
        "--node",
        hub.node,
        "--",
        *ports,
        "--state-dir",
        f"/{hub.state.relative_to(root)}",
        *flags,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "addons.command", "doctor", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def events(cloud: RealCloud, node: str) -> list[str]:
    """The Events about a node's certificates that hubs have written."""
    found = cloud.admin.get("/api/v1/namespaces/default/events")["items"]
    return [
        each["message"]
        for each in found
        if each["reason"] == "NoCertificate" and each["involvedObject"]["name"] == node
    ]


def has_bootstrap(cloud: RealCloud, root: Path, token: str) -> Path:
    """The kubeconfig with a token, where an installation has it."""
    path = root / "etc/kubernetes/edgehub-bootstrap.conf"
    path.parent.mkdir(parents=True)
    return bootstrap_kubeconfig(cloud, path, token)


def test_an_identity_that_nobody_approves(cloud: RealCloud, tmp_path: Path, node: str) -> None:
    bootstrap = has_bootstrap(cloud, tmp_path, make_token(cloud, OTHERS))
    flags = ("--bootstrap-kubeconfig", str(bootstrap))
    hub = Hub(tmp_path, cloud.url, node=node, flags=flags, program=("tests.hub.support.impatient",))
    hub.launch()
    try:
        hub.process.wait_for_line(
            "of this node yet: certificate request .* is not answered: who approves", SLACK
        )
        assert "warning  certificate  of this node: the hub has asked for it and has none" in doctor(
            hub, tmp_path, {}
        )
    finally:
        hub.stop()


def test_a_serving_certificate_that_nobody_approves(cloud: RealCloud, tmp_path: Path, node: str) -> None:
    status = {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"}]}
    cloud.admin.post("/api/v1/nodes", {"metadata": {"name": node}, "status": status})
    identity = cloud.node_kubeconfig(node)
    (tmp_path / "etc/kubernetes").mkdir(parents=True)
    (tmp_path / "etc/kubernetes/edgehub.conf").write_bytes(identity.read_bytes())
    signer = ("--tls-signer", "cluster")
    hub = Hub(
        *(tmp_path, cloud.url),
        node=node,
        kubeconfig=identity,
        flags=signer,
        program=("tests.hub.support.impatient",),
    )
    with hub:
        hub.process.wait_for_line("of the TLS port yet: certificate request .* is not answered", SLACK)
        until(lambda: any("is not answered: who approves it?" in each for each in events(cloud, node)))
        assert "warning  certificate  of the TLS port, by the cluster: " in doctor(hub, tmp_path, {}, *signer)
        assert hub.metric(EXPIRY, use="serving") > 0, "the local CA's"


def test_a_clock_that_is_an_hour_slow(cloud: RealCloud, tmp_path: Path, node: str) -> None:
    clock = tmp_path / "clock"
    clock.write_bytes(struct.pack("d", -HOUR))
    wrong = Path(__file__).parent / "wrong_clock"
    env = {"PYTHONPATH": os.pathsep.join((str(wrong), str(ROOT))), "WRONG_CLOCK": str(clock)}
    flags = ("--bootstrap-kubeconfig", str(has_bootstrap(cloud, tmp_path, make_token(cloud))))
    cloud.admin.post("/api/v1/nodes", {"metadata": {"name": node}})
    hub = Hub(tmp_path, cloud.url, node=node, flags=flags, program=("addons.command",), env=env)
    hub.launch()
    try:
        hub.process.wait_for_line(r"this node's clock says .*: set the clock \(NTP\)", SLACK)
        until(lambda: any("set the clock (NTP)" in each for each in events(cloud, node)))
        said = doctor(hub, tmp_path, env)
        assert "failed   certificate  " in said
        assert "is the clock of this node right?" in said
        assert hub.metric(EXPIRY, use="client") > HOUR
    finally:
        hub.stop()
