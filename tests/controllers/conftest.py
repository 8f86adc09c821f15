"""One control plane for the controllers' tests, with the manifests applied, and managers under their own account."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority
from tests.cloud.real import RealCloud
from tests.controllers.support.binding_scene import BindingScene
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import Scene

MANIFESTS = Path(__file__).parents[2] / "controllers" / "manifests"

SERVICE_RANGE = "127.96.0.0/16"

type Running = list[ManagerProcess]
"""The managers that run now."""

type StartManager = Callable[..., ManagerProcess]
"""Starts a manager with these flags, ready; it is stopped after the test."""

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def managed_cloud(
    tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]
) -> Iterator[RealCloud]:
    """Start a control plane with some controllers, separate from the session's, as managers change its objects."""
    folder = tmp_path_factory.mktemp("managed")
    controllers = [
        "garbage-collector-controller",
        "deployment-controller",
        "certificatesigningrequest-signing-controller",
        "clusterrole-aggregation-controller",
    ]
    flags = [
        # Services have loopback addresses, where a test can act as kube-proxy.
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--admission-control-config-file={identity_for_webhooks(folder)}",
    ]
    with RealCloud(folder, cloud_programs, controllers=controllers, apiserver_flags=flags) as cloud:
        cloud.apply(MANIFESTS)
        yield cloud


def identity_for_webhooks(folder: Path) -> Path:
    """Write an AdmissionConfiguration with which the API server presents `front-proxy.crt` to its webhooks."""
    authority = Authority("front proxy CA")
    (folder / "front-proxy.crt").write_bytes(authority.certificate)
    shown = authority.issue_client("front-proxy-client")
    kubeconfig = write_kubeconfig(folder / "webhooks.kubeconfig", "", credential=shown, user="*")
    by_file = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "MutatingAdmissionWebhook", "configuration": by_file}],
    }
    written = folder / "admission.json"
    written.write_text(json.dumps(configuration))
    return written


@pytest.fixture(scope="package")
def account(managed_cloud: RealCloud) -> Path:
    """Return a kubeconfig with the identity that the manifests give the manager."""
    return managed_cloud.kubeconfig("account", token=managed_cloud.token("kube-system", "edgehub-manager"))


@pytest.fixture(scope="package")
def running() -> Running:
    """Return the running controllers of the other fixtures, to wait until they are idle."""
    return []


@pytest.fixture
def start_manager(account: Path, tmp_path: Path, running: Running) -> Iterator[StartManager]:
    """Start managers for a test that needs its own, while no other one runs."""
    with ExitStack() as stack:

        def start(*flags: str) -> ManagerProcess:
            name = f"manager-{next(_numbers)}"
            started = stack.enter_context(ManagerProcess(tmp_path, account, *flags, name=name))
            running.append(started)
            stack.callback(running.remove, started)
            return started

        yield start


@pytest.fixture(scope="module")
def manager(
    account: Path, tmp_path_factory: pytest.TempPathFactory, running: Running
) -> Iterator[ManagerProcess]:
    """Run the manager that leads during the tests of a module; check that none of its requests was forbidden."""
    with ManagerProcess(tmp_path_factory.mktemp("manager"), account) as started:
        started.wait_until_leading()
        running.append(started)
        yield started
        running.remove(started)
        assert started.metric("edgehub_manager_writes_total", code="403") == 0


@pytest.fixture
def scene(managed_cloud: RealCloud, running: Running) -> Scene:
    """Return new names, and the steps and conditions of a test on the cluster."""
    return Scene(managed_cloud, running)


@pytest.fixture
def bindings(scene: Scene) -> BindingScene:
    """Return a scene with bindings and workloads."""
    return BindingScene(scene)
