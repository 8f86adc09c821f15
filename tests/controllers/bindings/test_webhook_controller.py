"""The webhook injects as workloads are written, on the real API server, and never stands in the way."""

from __future__ import annotations

import copy
import json
import ssl
import time
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3
import yaml

from controllers.bindings.webhook_controller import hosts_of, secret_data, trust_patch
from kube.json_type import Json
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.real import RealCloud
from tests.controllers.conftest import MANIFESTS, StartManager
from tests.controllers.support.binding_scene import POOL_NAME, RECORD, BindingScene, image_of
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import Scene
from tests.controllers.support.workloads import DEPLOYMENT, env, image

pytestmark = [pytest.mark.real]

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
ONLY = "--controllers=configbindingwebhook"
"""Then nothing but the webhook injects."""


@pytest.fixture(scope="module")
def webhook_port(managed_cloud: RealCloud) -> Iterator[int]:
    """The port that the API server calls: no kube-proxy leads to the Service here, so the configuration has a URL."""
    port = free_port()
    [configuration] = [
        each
        for each in yaml.safe_load_all((MANIFESTS / "webhook.yaml").read_text())
        if each["kind"] == "MutatingWebhookConfiguration"
    ]
    name = configuration["metadata"]["name"]
    shipped = managed_cloud.admin.get(f"{CONFIGURATIONS}/{name}")["webhooks"][0]
    assert shipped["failurePolicy"] == "Ignore"
    configuration["webhooks"][0]["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}/mutate-workload"}
    managed_cloud.admin.delete(f"{CONFIGURATIONS}/{name}")
    managed_cloud.admin.post(CONFIGURATIONS, configuration)
    yield port
    managed_cloud.admin.delete(f"{CONFIGURATIONS}/{name}")
    managed_cloud.apply(MANIFESTS / "webhook.yaml")


@pytest.fixture
def webhook(start_manager: StartManager, webhook_port: int, bindings: BindingScene) -> ManagerProcess:
    """A manager that does nothing but inject as workloads are written, once the API server calls it."""
    started = start_manager("--webhook-port", str(webhook_port), ONLY)
    wait_until_called(bindings)
    return started


def wait_until_called(bindings: BindingScene) -> None:
    """Return when the API server has the CA and calls the webhook."""
    bindings.bind("probe", items=[image("called")], name=bindings.scene.name("probe"))

    def called() -> bool:
        body = bindings.workload(DEPLOYMENT, "probe", "p", "")
        answer = bindings.scene.admin.request(
            "POST", bindings.deployments, query={"dryRun": "All"}, body=body
        )
        return image_of(answer.json()) == "called"

    bindings.scene.until(called)


def create(bindings: BindingScene, subject: str, pool: str = "hangzhou") -> Json:
    """A Deployment as the API server answers its creation."""
    return bindings.scene.admin.post(bindings.deployments, bindings.workload(DEPLOYMENT, subject, pool, ""))


def test_a_workload_is_right_from_the_start(bindings: BindingScene, webhook: ManagerProcess) -> None:
    name = bindings.scene.name("web")
    bindings.bind(name, items=[image("r/{{nodepool}}:2")])
    bindings.scene.until(lambda: dry_run(bindings, name) == "r/hangzhou:2")
    made = create(bindings, name)
    assert image_of(made) == "r/hangzhou:2"
    bindings.scene.until(lambda: bindings.rollouts(name) == 1)
    # A writer's own image is the new base; the record cannot be forged.
    forged = {"metadata": {"annotations": {RECORD: '{"image/app":{"was":"evil","set":"app:9"}}'}}}
    containers = {"template": {"spec": {"containers": [{"name": "app", "image": "app:9"}]}}}
    content_type = "application/strategic-merge-patch+json"
    path = f"{bindings.deployments}/{name}"
    changed = bindings.scene.admin.patch(path, {**forged, "spec": containers}, content_type)
    assert image_of(changed) == "r/hangzhou:2"
    assert '"was":"app:9"' in changed["metadata"]["annotations"][RECORD]
    # Without its label it is given back.
    given_back = bindings.scene.admin.patch(path, {"metadata": {"labels": {POOL_NAME: None}}})
    assert image_of(given_back) == "app:9"
    assert RECORD not in given_back["metadata"].get("annotations", {})


def dry_run(bindings: BindingScene, name: str) -> str:
    body = bindings.workload(DEPLOYMENT, name, "hangzhou", "")
    answer = bindings.scene.admin.request("POST", bindings.deployments, query={"dryRun": "All"}, body=body)
    return image_of(answer.json())


def test_what_has_no_place_is_warned_of(bindings: BindingScene, webhook: ManagerProcess) -> None:
    name = bindings.scene.name("web")
    bindings.bind(name, items=[env("none", A="x"), image("app:2")])
    bindings.scene.until(lambda: dry_run(bindings, name) == "app:2")
    manifest = yaml.safe_dump({**bindings.workload(DEPLOYMENT, name, "hangzhou", "")})
    done = bindings.scene.cloud.kubectl("apply", "-n", bindings.scene.namespace, "-f", "-", stdin=manifest)
    assert "env/none/A: ContainerNotFound" in done.stderr


def test_scale_and_what_has_no_label_are_let_alone(bindings: BindingScene, webhook: ManagerProcess) -> None:
    name, plain = bindings.scene.name("web"), bindings.scene.name("web")
    for subject in (name, plain):
        bindings.bind(subject, items=[{"replicas": 5}, image("app:2")])
    bindings.scene.until(lambda: dry_run(bindings, plain) == "app:2")
    assert create(bindings, name)["spec"]["replicas"] == 5
    scale = f"{bindings.deployments}/{name}/scale"
    assert bindings.scene.admin.patch(scale, {"spec": {"replicas": 7}})["spec"]["replicas"] == 7
    assert image_of(create(bindings, plain, pool="")) == "app:1"


def test_kube_system_is_never_asked_about(bindings: BindingScene, webhook: ManagerProcess) -> None:
    body = copy.deepcopy(bindings.workload(DEPLOYMENT, "probe", "p", ""))
    path = "/apis/apps/v1/namespaces/kube-system/deployments"
    binding = bindings.get(bindings.bind("probe", items=[image("called")]))
    binding = {key: binding[key] for key in ("apiVersion", "kind", "spec")}
    binding["metadata"] = {"name": bindings.scene.name("probe")}
    system = "/apis/apps.openyurt.io/v1alpha1/namespaces/kube-system/yurtappconfigbindings"
    bindings.scene.admin.post(system, binding)
    wait_until_called(bindings)
    answer = bindings.scene.admin.request("POST", path, query={"dryRun": "All"}, body=body)
    assert image_of(answer.json()) == "app:1"
    bindings.scene.admin.delete(f"{system}/{binding['metadata']['name']}")


def test_without_a_manager_everything_passes_and_the_next_one_repairs(
    bindings: BindingScene, webhook_port: int, start_manager: StartManager, webhook: ManagerProcess
) -> None:
    name = bindings.scene.name("web")
    bindings.bind(name, items=[image("app:2")])
    webhook.process.kill()
    began = time.monotonic()
    assert image_of(create(bindings, name)) == "app:1"
    assert time.monotonic() - began < 1.0
    started = start_manager("--webhook-port", "0", "--controllers=configbinding")
    bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    # This one sees what the webhook misses.
    other = bindings.scene.name("web")
    bindings.bind(other, items=[image("app:3")], name=bindings.scene.name("binding"))
    bindings.scene.until(lambda: "SubjectFound" in str(bindings.scene.admin.get(bindings.path)))
    create(bindings, other)
    bindings.sees(other, lambda obj: image_of(obj) == "app:3")
    bindings.scene.until(lambda: started.metric("edgehub_manager_webhook_missed_total") >= 1)
    bindings.scene.until(lambda: "Injected" in bindings.scene.events(other, bindings.scene.namespace))


def client(scene: Scene) -> urllib3.PoolManager:
    """Trusts the webhook's CA."""
    bundle = b64decode(scene.admin.get(f"{SECRETS}/edgehub-manager-webhook")["data"]["ca.crt"]).decode()
    return urllib3.PoolManager(retries=False, ssl_context=ssl.create_default_context(cadata=bundle))


def test_a_standby_serves_too(webhook: ManagerProcess, scene: Scene, start_manager: StartManager) -> None:
    webhook.wait_until_leading()
    port = free_port()
    standby = start_manager("--webhook-port", str(port), ONLY)
    assert not standby.leads()
    answer = client(scene).request("POST", f"https://{LOOPBACK}:{port}/mutate-workload", body=b"{}")
    assert (answer.status, answer.data) == (400, b"no request for a Deployment or StatefulSet\n")


def test_a_manager_that_ends_answers_what_it_was_asked(
    bindings: BindingScene, webhook: ManagerProcess, webhook_port: int
) -> None:
    name = bindings.scene.name("web")
    bindings.bind(name, items=[image("app:2")])
    bindings.scene.until(lambda: dry_run(bindings, name) == "app:2")
    request = {
        "uid": "u",
        "kind": {"kind": "Deployment"},
        "namespace": bindings.scene.namespace,
        "object": bindings.workload(DEPLOYMENT, name, "hangzhou", ""),
    }
    body = json.dumps({"request": request}).encode()
    caller = client(bindings.scene)
    answers: list[int] = []

    def ask_until_nobody_listens() -> None:
        while True:
            # Each on a connection of its own: one that is idle may end at any time.
            headers = {"Connection": "close"}
            try:
                url = f"https://{LOOPBACK}:{webhook_port}/mutate-workload"
                answer = caller.request("POST", url, body=body, headers=headers)
            except urllib3.exceptions.NewConnectionError:
                return
            answers.append(answer.status if b"JSONPatch" in answer.data else 0)

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask_until_nobody_listens)
        bindings.scene.until(lambda: len(answers) > 20)
        webhook.process.stop()
        asking.result(timeout=30)
    assert set(answers) == {200}


def test_a_certificate_that_is_lost_is_made_anew(bindings: BindingScene, webhook: ManagerProcess) -> None:
    path = f"{SECRETS}/edgehub-manager-webhook"
    before = bindings.scene.admin.get(path)
    assert before["type"] == "kubernetes.io/tls"
    bindings.scene.admin.delete(path)
    bindings.scene.sees(
        SECRETS, "edgehub-manager-webhook", lambda obj: obj["data"]["ca.crt"] != before["data"]["ca.crt"]
    )
    name = bindings.scene.name("web")
    bindings.bind(name, items=[image("app:2")])
    bindings.scene.until(lambda: dry_run(bindings, name) == "app:2")


def test_the_manifest_bounds_what_a_failure_costs() -> None:
    documents = yaml.safe_load_all((Path(MANIFESTS) / "webhook.yaml").read_text())
    [webhook] = next(each for each in documents if "webhooks" in each)["webhooks"]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 3)
    assert webhook["reinvocationPolicy"] == "Never"


SERVICE = {"service": {"name": "m", "namespace": "ns"}}


@pytest.mark.parametrize(
    ("client", "hosts"),
    [
        (SERVICE, {"m.ns.svc"}),
        ({"url": "https://127.0.0.1:9443/x"}, {"127.0.0.1"}),
        ({"url": "https://[fd00::1]:9443/x"}, {"fd00::1"}),
        ({}, set()),
    ],
)
def test_the_name_that_the_api_server_calls(client: Json, hosts: set[str]) -> None:
    assert hosts_of({"webhooks": [{"clientConfig": client}]}) == hosts


def test_trust_is_written_once() -> None:
    configuration: Json = {
        "metadata": {"resourceVersion": "7"},
        "webhooks": [{"name": "w", "clientConfig": SERVICE}],
    }
    patch = trust_patch(configuration, b"ca")
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["webhooks"] == [{"name": "w", "clientConfig": {**SERVICE, "caBundle": "Y2E="}}]
    assert trust_patch({**configuration, **patch}, b"ca") == {}


@pytest.mark.parametrize("obj", [None, {}, {"data": {"tls.crt": "%%"}}, {"data": {"tls.crt": 1}}])
def test_garbage_in_a_secret_is_absent(obj: Json | None) -> None:
    assert secret_data(obj).get("tls.crt", b"") == b""
