"""The webhook injects as clients write workloads, on the real API server, and never blocks a write."""

from __future__ import annotations

import asyncio
import copy
import io
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import aiohttp
import orjson
import pytest
import yaml

from controllers.bindings import webhook_controller
from controllers.bindings.webhook_certificate import AUTHORITY, renewed
from controllers.bindings.webhook_controller import (
    CONFIGURATION,
    CONFIGURATIONS,
    LARGEST_REVIEW,
    MAX_HELD,
    SECRET,
    SECRETS,
    WebhookController,
    hosts_of,
    secret,
    secret_data,
    webhooks_patch,
)
from controllers.cluster.admission_reviews import MAX_VALUES
from controllers.runtime.controller import Context, Reviewer
from controllers.runtime.informer import Informers
from controllers.runtime.leader_election import LEASE, LEASES, USER
from controllers.runtime.write_client import EventRecorder, WriteClient
from controllers.settings import Settings
from kube.json_type import Json
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.rest import STRATEGIC_PATCH
from tests.controllers.conftest import MANIFESTS
from tests.controllers.support.binding_scene import POOL_NAME, RECORD, BindingScene, image_of
from tests.controllers.support.pretended import PretendedCluster
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.webhook_service import create, dry_run, dry_run_template, wait_until_called
from tests.controllers.support.workloads import DEPLOYMENT, daemon_set, env, image, patch, stateful_set

pytestmark = [pytest.mark.real]


def test_a_workload_is_injected_at_its_creation_and_at_each_write(
    bindings: BindingScene, webhook: ManagerProcess
) -> None:
    name = bindings.scene.name("web")
    bindings.bind(name, items=[image("r/{{nodepool}}:2")])
    bindings.scene.until(lambda: dry_run(bindings, name) == "r/hangzhou:2")
    made = create(bindings, name)
    assert image_of(made) == "r/hangzhou:2"
    bindings.scene.until(lambda: bindings.rollouts(name) == 1)
    # A writer's own image becomes the value to restore; the record cannot be forged.
    forged = {"metadata": {"annotations": {RECORD: '{"image/app":{"was":"evil","set":"app:9"}}'}}}
    containers = {"template": {"spec": {"containers": [{"name": "app", "image": "app:9"}]}}}
    path = f"{bindings.deployments}/{name}"
    changed = bindings.scene.admin.patch(path, {**forged, "spec": containers}, STRATEGIC_PATCH)
    assert image_of(changed) == "r/hangzhou:2"
    assert '"was":"app:9"' in changed["metadata"]["annotations"][RECORD]
    # Without its label the workload is restored.
    given_back = bindings.scene.admin.patch(path, {"metadata": {"labels": {POOL_NAME: None}}})
    assert image_of(given_back) == "app:9"
    assert RECORD not in given_back["metadata"].get("annotations", {})


@pytest.mark.parametrize("template", [stateful_set(), daemon_set()], ids=lambda each: str(each["kind"]))
def test_each_kind_of_workload_is_injected_at_its_creation(
    bindings: BindingScene, webhook: ManagerProcess, template: Json
) -> None:
    name = bindings.scene.name("db")
    bindings.bind(name, kind=template["kind"], items=[image("app:2")])
    body = bindings.workload(template, name, "hangzhou", "")

    def image_at_first() -> str:
        query = {"dryRun": "All"}
        answer = bindings.scene.admin.request("POST", bindings.collection(template), query=query, body=body)
        return image_of(answer.json())

    bindings.scene.until(lambda: image_at_first() == "app:2")


def test_a_binding_that_may_fail_does_not_block_a_workload(
    bindings: BindingScene, webhook: ManagerProcess
) -> None:
    def set_status(name: str, reason: str, injected: int) -> None:
        """Write a binding's status in place of the controller, which does not run here."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {"type": "Injected", "status": "True", "reason": reason, "lastTransitionTime": now}
        condition["observedGeneration"] = bindings.get(name)["metadata"]["generation"]
        status = {"injectedWorkloads": injected, "conditions": [condition]}
        bindings.scene.admin.patch(f"{bindings.path}/{name}/status", {"status": status})

    name = bindings.scene.name("web")
    binding = bindings.bind(name, items=[image("app:2")], patches=[patch("add", "/hostname", "patched")])
    # The controller injects a patch that no workload has yet.
    bindings.scene.until(lambda: dry_run(bindings, name) == "app:2")
    assert "hostname" not in dry_run_template(bindings, name)
    set_status(binding, "AllInjected", injected=1)
    bindings.scene.until(lambda: dry_run_template(bindings, name).get("hostname") == "patched")
    set_status(binding, "Refused", injected=0)
    bindings.scene.until(lambda: dry_run(bindings, name) == "app:1")


def test_kubectl_warns_of_an_item_without_a_slot(bindings: BindingScene, webhook: ManagerProcess) -> None:
    name = bindings.scene.name("web")
    bindings.bind(name, items=[env("none", A="x"), image("app:2")])
    bindings.scene.until(lambda: dry_run(bindings, name) == "app:2")
    manifest = yaml.safe_dump({**bindings.workload(DEPLOYMENT, name, "hangzhou", "")})
    done = bindings.scene.cloud.kubectl("apply", "-n", bindings.scene.namespace, "-f", "-", stdin=manifest)
    assert "env/none/A: ContainerNotFound" in done.stderr


def test_scale_requests_and_unlabelled_workloads_are_not_reviewed(
    bindings: BindingScene, webhook: ManagerProcess
) -> None:
    name, plain = bindings.scene.name("web"), bindings.scene.name("web")
    for subject in (name, plain):
        bindings.bind(subject, items=[{"replicas": 5}, image("app:2")])
    bindings.scene.until(lambda: dry_run(bindings, plain) == "app:2")
    assert create(bindings, name)["spec"]["replicas"] == 5
    scale = f"{bindings.deployments}/{name}/scale"
    assert bindings.scene.admin.patch(scale, {"spec": {"replicas": 7}})["spec"]["replicas"] == 7
    assert image_of(create(bindings, plain, pool="")) == "app:1"


def test_workloads_in_kube_system_are_not_reviewed(bindings: BindingScene, webhook: ManagerProcess) -> None:
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


def test_the_manifest_bounds_the_cost_of_a_failing_webhook() -> None:
    documents = yaml.safe_load_all((Path(MANIFESTS) / "webhook.yaml").read_text())
    webhooks = next(each for each in documents if "webhooks" in each)["webhooks"]
    assert [(each["failurePolicy"], each["timeoutSeconds"]) for each in webhooks] == [
        ("Ignore", 3),
        ("Ignore", 1),
    ]
    assert {each["reinvocationPolicy"] for each in webhooks} == {"Never"}


BY_SERVICE = {"service": {"name": "m", "namespace": "ns"}}


@pytest.mark.parametrize(
    ("client", "hosts"),
    [
        (BY_SERVICE, {"m.ns.svc"}),
        ({"url": "https://127.0.0.1:9443/x"}, {"127.0.0.1"}),
        ({"url": "https://[fd00::1]:9443/x"}, {"fd00::1"}),
        ({}, set()),
    ],
)
def test_the_webhooks_host_name_is_that_of_its_service(client: Json, hosts: set[str]) -> None:
    assert hosts_of({"webhooks": [{"clientConfig": client}]}) == hosts


def test_the_ca_bundle_is_written_once() -> None:
    configuration: Json = {
        "metadata": {"resourceVersion": "7"},
        "webhooks": [{"name": "w", "clientConfig": BY_SERVICE}],
    }
    patch = webhooks_patch(configuration, b"ca", ())
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["webhooks"] == [{"name": "w", "clientConfig": {**BY_SERVICE, "caBundle": "Y2E="}}]
    assert webhooks_patch({**configuration, **patch}, b"ca", ()) == {}


def test_a_webhook_replaced_by_a_policy_is_removed() -> None:
    trusting = [{"name": name, "clientConfig": {**BY_SERVICE, "caBundle": "Y2E="}} for name in ("w", "v")]
    configuration: Json = {"metadata": {"resourceVersion": "7"}, "webhooks": trusting}
    assert webhooks_patch(configuration, b"ca", {"v"})["webhooks"] == trusting[:1]
    assert webhooks_patch({**configuration, "webhooks": trusting[:1]}, b"ca", {"v"}) == {}


@pytest.mark.parametrize("obj", [None, {}, {"data": {"tls.crt": "%%"}}, {"data": {"tls.crt": 1}}])
def test_malformed_data_in_the_secret_is_ignored(obj: Json | None) -> None:
    assert secret_data(obj).get("tls.crt", b"") == b""


def other_answer(body: bytes | bytearray) -> bytes:
    """Return the response of another controller."""
    if not body:
        raise ValueError("no request")
    return bytes(body)


class Served:
    """The webhook of a simulated cluster, with its own certificate."""

    def __init__(self) -> None:
        self.port = free_port()
        self.origin = f"https://{LOOPBACK}:{self.port}"
        self.cluster = self._cluster = PretendedCluster()
        webhooks = [{"clientConfig": {"url": f"{self.origin}/mutate-workload"}}]
        self._configuration: Json = {"metadata": {"name": CONFIGURATION}, "webhooks": webhooks}
        self._cluster.put(CONFIGURATIONS, self._configuration)
        api, self._informers = WriteClient(self._cluster, lambda: 1.0), Informers(self._cluster)
        self._settings = Settings(listen=LOOPBACK, webhook_port=self.port)
        events = EventRecorder(api, "test")
        reviews: dict[str, Reviewer] = {"/other": other_answer}
        self.controller = WebhookController(
            Context(api, self._informers, events, self._settings, lambda: "", reviews)
        )
        self._own = [each for each in self._informers if each.type in {CONFIGURATIONS, SECRETS}]
        self._tasks: list[asyncio.Future[None]] = []
        self.context = ssl.create_default_context()

    async def __aenter__(self) -> Self:
        self._tasks += [asyncio.ensure_future(each.run()) for each in self._own]
        self._tasks.append(asyncio.ensure_future(self.controller.serve()))
        for each in self._own:
            await each.wait_for_sync()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.controller.queue.close()

    async def certify(self) -> None:
        """Create the certificate, and wait until the port is open."""
        made = await asyncio.to_thread(renewed, {}, hosts_of(self._configuration), datetime.now(UTC))
        self._cluster.put(SECRETS, secret(self._settings.namespace, SECRET, made), self._settings.namespace)
        await self.says("", "the webhook does not know the manager's own name: ")
        self.context = ssl.create_default_context(cadata=made[AUTHORITY].decode())

    async def says(self, *lines: str) -> None:
        """Return when the controller is unready for a reason with these words, or is ready for ""."""
        for _ in range(3000):  # half a minute: no event reports an open port
            said = self.controller.readiness_error()
            if any(each in said if each else not said for each in lines):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(said)

    async def read_bindings(self) -> None:
        self._tasks += [
            asyncio.ensure_future(each.run()) for each in self._informers if each not in self._own
        ]
        await self.controller.wait_for_sync()

    async def post(self, body: bytes, path: str = "/mutate-workload", sender: str = LOOPBACK) -> int:
        """Return the status of the response to a review."""
        connector = aiohttp.TCPConnector(local_addr=(sender, 0))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(self.origin + path, data=io.BytesIO(body), ssl=self.context) as answer,
        ):
            return answer.status

    async def unfinished(self, length: int) -> int:
        """Return the status of the response to a review of this many bytes without its last byte."""
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port, ssl=self.context)
        head = b"POST /mutate-workload HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length
        try:
            writer.write(head + bytes(length - 1))
            return int((await reader.readline()).split()[1])
        finally:
            writer.transport.abort()


REVIEW = orjson.dumps({"request": {"uid": "u", "kind": {"kind": "Deployment"}, "object": DEPLOYMENT}})


async def test_the_webhook_is_ready_with_a_certificate_and_bindings() -> None:
    """Without a certificate no client can call it; without the bindings it would inject none."""
    async with Served() as served:
        assert served.controller.readiness_error() == "the webhook has no certificate yet"
        await served.certify()
        assert await served.post(REVIEW) == 503
        assert await served.post(REVIEW, "/other") == 200
        assert await served.post(b"", "/other") == 400
        assert await served.post(REVIEW, "/unknown") == 404
        await served.read_bindings()
        assert await served.post(REVIEW) == 200
        assert await served.post(bytes(LARGEST_REVIEW + 1)) == 413
        assert await served.post(b"[" + b"0," * MAX_VALUES + b"0]") == 413
        assert await served.post(b"{") == 400


@pytest.mark.parametrize("user", ["system:serviceaccount:kube-system:edgehub-manager", "kubernetes-admin"])
async def test_writes_of_the_manager_itself_are_not_injected(
    user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any account of the manager and of the leader; the manifest's condition covers only the account of
    its pods."""
    monkeypatch.setattr(webhook_controller, "NAME_RETRY", 0.01)

    async def never(*_: object) -> None:
        raise AssertionError("rendered")

    request: Json = {"uid": "u", "kind": {"kind": "Deployment"}, "object": DEPLOYMENT}
    own = {**request, "userInfo": {"username": user}, "options": {"fieldManager": "edgehub-manager"}}
    others: list[Json] = [
        {**request, "userInfo": {"username": "somebody"}, "options": {"fieldManager": "edgehub-manager"}},
        {**own, "options": {"fieldManager": "kubectl-edit"}},
    ]
    served = Served()
    served.cluster.user = ""
    async with served:
        await served.certify()
        await served.read_bindings()
        await served.says("own name: selfsubjectreviews is forbidden")
        assert await served.post(orjson.dumps({"request": own})) == 503, "it may be the manager's write"
        served.cluster.user = user
        await served.says("")
        monkeypatch.setattr(served.controller._renderer, "admit", never)
        assert await served.post(orjson.dumps({"request": own})) == 200
        assert [await served.post(orjson.dumps({"request": each})) for each in others] == [500, 500]
        meta = {"namespace": "kube-system", "name": LEASE, "annotations": {USER: "somebody"}}
        served.cluster.put(LEASES, {"metadata": meta}, "kube-system")
        assert [await served.post(orjson.dumps({"request": each})) for each in others] == [200, 500]


async def test_many_reviews_of_one_sender_do_not_delay_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server waits for 3 s, then accepts the workload unmodified."""
    answered: list[bytes] = []

    async with Served() as served:
        await served.certify()

        async def answer(body: bytearray) -> bytes:
            await asyncio.sleep(0.02)
            answered.append(bytes(body))
            return b"{}"

        monkeypatch.setattr(served.controller, "_inject", answer)
        await served.read_bindings()
        many = [asyncio.ensure_future(served.post(b"many")) for _ in range(30)]
        await asyncio.sleep(0.2)
        slow = [asyncio.ensure_future(served.unfinished(LARGEST_REVIEW)) for _ in range(3)]
        await asyncio.sleep(0.1)
        before = len(answered)
        assert await served.post(b"one", sender="127.0.0.2") == 200
        assert answered.index(b"one") <= before + 5
        assert set(await asyncio.gather(*many)) == {200}
        assert 503 in await asyncio.gather(*slow)


def test_a_client_ca_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("none")
    cluster = PretendedCluster()
    settings = Settings(webhook_client_ca=tmp_path / "ca.crt")
    api = WriteClient(cluster, lambda: 1.0)
    with pytest.raises(ValueError, match=r"--webhook-client-ca .*ca\.crt has no certificate"):
        WebhookController(Context(api, Informers(cluster), EventRecorder(api, "test"), settings, lambda: ""))


async def test_an_aborted_review_does_not_cancel_an_equal_one() -> None:
    begun, rest = REVIEW[:20], REVIEW[20:]
    async with Served() as served:
        await served.certify()
        await served.read_bindings()
        reader, writer = await asyncio.open_connection(LOOPBACK, served.port, ssl=served.context)
        writer.write(
            b"POST /mutate-workload HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(REVIEW) + begun
        )
        assert [await served.post(begun) for _ in range(3)] == [400] * 3
        writer.write(rest)
        assert (await reader.readline()).split()[1] == b"200"
        writer.transport.abort()


async def test_unfinished_reviews_are_bounded_in_bytes_and_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhook_controller, "REVIEW_TIME", 0.5)
    async with Served() as served:
        await served.certify()
        await served.read_bindings()
        number = MAX_HELD // LARGEST_REVIEW + 2
        answers = await asyncio.gather(*(served.unfinished(LARGEST_REVIEW) for _ in range(number)))
        assert set(answers) <= {408, 503}
        assert 503 in answers
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):  # then the client disconnects
                await served.unfinished(1000)
        assert await served.post(REVIEW) == 200
    assert "Error handling request" not in caplog.text
