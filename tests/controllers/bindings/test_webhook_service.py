"""The webhook through its Service on the real API server: replicas end, certificates change, and no replica runs."""

from __future__ import annotations

import copy
import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import Event

import pytest
import urllib3

from kube.json_type import Json
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.rest import STRATEGIC_PATCH
from tests.controllers.conftest import StartManager
from tests.controllers.support.binding_scene import POOL_NAME, RECORD, BindingScene, image_of
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.webhook_service import (
    CONFIGURATION,
    ONLY,
    SECRET,
    SECRETS,
    WebhookService,
    bound,
    client,
    create,
    dry_run,
    wait_until_called,
)
from tests.controllers.support.workloads import DEPLOYMENT, image

pytestmark = [pytest.mark.real]


def test_writes_pass_without_a_manager_and_the_next_manager_injects_them(
    bindings: BindingScene, start_manager: StartManager, webhook: ManagerProcess
) -> None:
    name = bindings.scene.name("web")
    bindings.bind(name, items=[image("app:2")])
    webhook.process.kill()
    assert image_of(create(bindings, name)) == "app:1"
    started = start_manager("--webhook-port", "0", "--controllers=configbinding")
    bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    # The controller finds the workloads that the webhook missed.
    other = bindings.scene.name("web")
    bindings.bind(other, items=[image("app:3")], name=bindings.scene.name("binding"))
    bindings.scene.until(lambda: "SubjectFound" in str(bindings.scene.admin.get(bindings.path)))
    create(bindings, other)
    bindings.sees(other, lambda obj: image_of(obj) == "app:3")
    bindings.scene.until(lambda: started.metric("edgehub_manager_webhook_missed_total") >= 1)
    bindings.scene.until(lambda: "Injected" in bindings.scene.events(other, bindings.scene.namespace))


@pytest.mark.usefixtures("service")
def test_a_write_without_a_manager_takes_less_than_a_second(bindings: BindingScene) -> None:
    """The webhook is registered, but its Service has no Pod: neither clients' nor the manager's writes wait for it."""
    binding = bindings.bind(bindings.scene.name("web"), items=[image("app:2")])
    manager = "/apis/apps/v1/namespaces/kube-system/deployments/edgehub-manager"
    seconds: list[float] = []

    def takes(write: Callable[[], Json], kind: str = "Deployment") -> None:
        began = time.monotonic()
        assert write()["kind"] == kind
        seconds.append(time.monotonic() - began)

    annotated: Json = {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}
    for number in range(3):
        name, pools = bindings.scene.name("web"), {"subject": {"pools": [f"p{number}"]}}
        takes(lambda name=name: create(bindings, name))  # type: ignore[misc]  # the name of now
        takes(lambda name=name: bindings.scene.admin.patch(f"{bindings.deployments}/{name}", annotated))  # type: ignore[misc]  # as above
        for pool in ("hangzhou", None):
            labels = {"metadata": {"labels": {POOL_NAME: pool}}}
            takes(lambda labels=labels: bindings.scene.admin.patch(manager, labels))  # type: ignore[misc]  # as above
        changed = f"{bindings.path}/{binding}", {"spec": pools}
        takes(lambda changed=changed: bindings.scene.admin.patch(*changed), "YurtAppConfigBinding")  # type: ignore[misc]  # as above
    # On a busy machine a single write may take seconds.
    assert median(seconds) < 1, seconds


def test_a_write_succeeds_with_a_silent_webhook(bindings: BindingScene, webhook: ManagerProcess) -> None:
    name = bound(bindings)
    os.kill(webhook.process.pid, signal.SIGSTOP)
    try:
        created = create(bindings, name)
    finally:
        os.kill(webhook.process.pid, signal.SIGCONT)
    assert image_of(created) == "app:1"


def test_the_managers_own_writes_are_not_reviewed(bindings: BindingScene, webhook: ManagerProcess) -> None:
    """The webhook would treat a field restored by the controller as a writer's own value."""
    name = bound(bindings)
    create(bindings, name)
    cloud = bindings.scene.cloud
    manager = cloud.client(token=cloud.token("kube-system", "edgehub-manager"))
    containers = {"template": {"spec": {"containers": [{"name": "app", "image": "app:7"}]}}}
    for writer, stored in ((bindings.scene.admin, "app:2"), (manager, "app:7")):
        answer = writer.request(
            "PATCH",
            f"{bindings.deployments}/{name}",
            query={"dryRun": "All"},
            body={"spec": containers},
            headers={"Content-Type": STRATEGIC_PATCH},
        )
        assert image_of(answer.json()) == stored


def test_a_manager_with_any_account_preserves_replaced_fields(
    bindings: BindingScene, service: WebhookService, tmp_path: Path
) -> None:
    """Otherwise the webhook would treat the manager's write as a user's, and drop the record of the replaced fields."""
    cloud, name = bindings.scene.cloud, bindings.scene.name("web")
    create(bindings, name)
    account = cloud.kubeconfig("outside", cloud.authority.issue_client("outside", ["system:masters"]))
    with ManagerProcess(tmp_path, account, *service.pod, "--controllers=configbinding,configbindingwebhook"):
        wait_until_called(bindings)
        binding = bindings.bind(name, items=[image("app:2")])
        bindings.sees(name, lambda obj: image_of(obj) == "app:2")
        written = bindings.scene.admin.get(f"{bindings.deployments}/{name}")
        assert '"was":"app:1"' in written["metadata"]["annotations"][RECORD]
        bindings.scene.admin.delete(f"{bindings.path}/{binding}")
        bindings.sees(name, lambda obj: image_of(obj) == "app:1")


def test_replicas_with_two_accounts_preserve_replaced_fields(
    bindings: BindingScene, service: WebhookService, start_manager: StartManager, tmp_path: Path
) -> None:
    """During a change of the account the standby's webhook once treated the leader's writes as a user's."""
    cloud, name = bindings.scene.cloud, bindings.scene.name("web")
    create(bindings, name)
    account = cloud.kubeconfig("outside", cloud.authority.issue_client("outside", ["system:masters"]))
    # The Service routes to the standby only.
    flags = ("--webhook-port", str(free_port()), "--controllers=configbinding,configbindingwebhook")
    with ManagerProcess(tmp_path, account, *flags) as leader:
        leader.wait_until_leading()
        standby = start_manager(*service.other_pod, ONLY)
        assert not standby.leads()
        wait_until_called(bindings)
        binding = bindings.bind(name, items=[image("app:2")])
        bindings.sees(name, lambda obj: image_of(obj) == "app:2")
        bindings.scene.admin.delete(f"{bindings.path}/{binding}")
        bindings.sees(name, lambda obj: image_of(obj) == "app:1")
        assert service.address.connections[service.pods[1]] > 0


def test_both_replicas_serve_the_webhook_and_one_may_end(
    bindings: BindingScene, webhook: ManagerProcess, service: WebhookService, start_manager: StartManager
) -> None:
    webhook.wait_until_leading()
    standby = start_manager(*service.other_pod, ONLY)
    assert not standby.leads()
    url = f"https://{LOOPBACK}:{service.pods[1]}/mutate-workload"
    answer = client(bindings.scene).request("POST", url, body=b"{}")
    assert (answer.status, answer.data) == (
        400,
        b"not a request for a Deployment, StatefulSet or DaemonSet\n",
    )
    name = bound(bindings)
    images: list[str] = []
    stopped = Event()

    def create_until_stopped() -> None:
        while not stopped.is_set():
            images.append(dry_run(bindings, name))

    with ThreadPoolExecutor(1) as threads:
        creating = threads.submit(create_until_stopped)
        try:
            bindings.scene.until(lambda: len(images) > 10)
            webhook.process.stop()
            # The API server's connection closed with its Pod; its next reviews go to the other one.
            gone = len(images) + 1
            bindings.scene.until(lambda: "app:2" in images[gone:])
        finally:
            stopped.set()
        creating.result(timeout=30)
    assert service.address.connections[service.pods[1]] > 0


def test_with_a_client_ca_the_webhook_accepts_only_the_api_server(
    bindings: BindingScene, service: WebhookService, start_manager: StartManager, tmp_path: Path
) -> None:
    """This API server presents to webhooks a certificate of a separate CA."""
    authority = bindings.scene.cloud.folder / "front-proxy.crt"
    start_manager(*service.pod, ONLY, "--webhook-client-ca", str(authority))
    wait_until_called(bindings)
    bound(bindings)
    of_node = bindings.scene.cloud.authority.issue_node("n1").write(tmp_path, "n1")
    for shown in (None, of_node):
        with pytest.raises(urllib3.exceptions.HTTPError):
            client(bindings.scene, shown).request("POST", service.url, body=b"{}")


def test_a_manager_outside_the_cluster_is_called_by_url(
    bindings: BindingScene, webhook: ManagerProcess, service: WebhookService
) -> None:
    admin = bindings.scene.admin
    before = admin.get(CONFIGURATION)["webhooks"]
    by_url = copy.deepcopy(before)
    by_url[0]["clientConfig"] = {"url": service.url, "caBundle": before[0]["clientConfig"]["caBundle"]}
    name = bindings.scene.name("web")
    bindings.bind(name, items=[image("app:2")])
    admin.patch(CONFIGURATION, {"webhooks": by_url})
    shown = admin.get(SECRET)["data"]["tls.crt"]
    try:
        # The leader issues a certificate for this name.
        bindings.scene.until(lambda: dry_run(bindings, name) == "app:2")
    finally:
        admin.patch(CONFIGURATION, {"webhooks": before})
    assert admin.get(SECRET)["data"]["tls.crt"] != shown


def test_a_stopping_webhook_answers_running_reviews(
    bindings: BindingScene, webhook: ManagerProcess, service: WebhookService
) -> None:
    name = bound(bindings)
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
            # Each on its own connection: an idle one may be closed at any time.
            headers = {"Connection": "close"}
            try:
                answer = caller.request("POST", service.url, body=body, headers=headers)
            except urllib3.exceptions.NewConnectionError:
                return
            except urllib3.exceptions.ProtocolError as error:
                # A reset closes a connection that the manager had not accepted yet, so no request was lost.
                if not isinstance(error.args[1], ConnectionResetError):
                    raise
                continue
            answers.append(answer.status if b"JSONPatch" in answer.data else 0)

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask_until_nobody_listens)
        bindings.scene.until(lambda: len(answers) > 20)
        webhook.process.stop()
        asking.result(timeout=30)
    assert set(answers) == {200}


def test_a_lost_certificate_is_replaced_without_closing_connections(
    bindings: BindingScene, webhook: ManagerProcess, service: WebhookService
) -> None:
    before = client(bindings.scene)

    def answers(caller: urllib3.PoolManager) -> bool:
        try:
            return caller.request("POST", service.url, body=b"{}").status == 400
        except urllib3.exceptions.SSLError:
            return False

    assert answers(before)
    bindings.scene.admin.delete(SECRET)
    bindings.scene.until(lambda: bindings.scene.there(SECRETS, "edgehub-manager-webhook"))
    bindings.scene.until(lambda: answers(client(bindings.scene)))
    assert answers(before)
    assert before.connection_from_url(service.url).num_connections == 1, "it is the connection of before"
    bound(bindings)
