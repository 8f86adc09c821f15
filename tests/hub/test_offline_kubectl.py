"""kubectl on a node without its cloud: kubelet's and kube-proxy's protobuf copies, as JSON and as Tables. kubectl was
never used online here, is not a cached component, and has no credentials."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from addons.ui.commands import shell
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, rights, rule
from tests.cloud.versions import chosen
from tests.hub.support.outage import PROTOBUF, Outage
from tests.hub.support.process import SLACK
from tests.hub.support.streams import watching
from tests.hub.test_offline_logs import TokenUser


def pod(name: str, node: str) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/app:1", "ports": [{"containerPort": 80}]}
    spec = {"nodeName": node, "containers": [container], "automountServiceAccountToken": False}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


@pytest.fixture
def kubeconfig(outage: Outage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the output of `edgehub kubeconfig`."""
    assert shell.run(["kubeconfig", "--admin", outage.hub.admin_url]) == 0
    path = tmp_path / "hub.kubeconfig"
    path.write_text(capsys.readouterr().out)
    assert yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"] == outage.hub.url
    return path


@pytest.mark.since(30, "aggregated discovery")
async def test_clients_that_read_plain_discovery_get_it_too(outage: Outage) -> None:
    """Clients in Java and Python, and older ones, read each group and version; the hub had only what kubectl reads."""
    groups = (await outage.ask("/apis", component="curl")).json()["groups"]
    versions = [f"/apis/{version['groupVersion']}" for group in groups for version in group["versions"]]
    paths = ["/api", "/api/v1", "/apis", *(f"/apis/{group['name']}" for group in groups), *versions]
    online = {path: (await outage.ask(path, component="curl")).json() for path in paths}
    online["/api"]["serverAddressByClientCIDRs"] = []
    for resource in (each for document in online.values() for each in document.get("resources", ())):
        resource.pop("storageVersionHash", None)
    packed = (await outage.ask("/apis/apps", PROTOBUF, "curl")).body
    async with outage.away():
        for path in paths:
            answer = await outage.ask(path, component="kubectl")
            assert (answer.status, answer.json()) == (200, online[path]), path
        assert (await outage.ask("/apis/apps", PROTOBUF, "kubectl")).body == packed


async def test_kubectl_reads_the_protobuf_copies_of_components(
    outage: Outage, real_cloud: RealCloud, kubeconfig: Path, namespace: str
) -> None:
    async def sees_changes(core: str) -> None:
        """Check that a Table's watch, as `kubectl get -w` opens it, follows kubelet's writes."""
        table = "application/json;as=Table;v=v1;g=meta.k8s.io"
        listed = (await outage.ask(f"{core}/pods", table, "kubectl")).json()
        version = listed["metadata"]["resourceVersion"]
        async with watching(
            outage.hub.url,
            f"{core}/pods",
            component="kubectl",
            headers={"Accept": table},
            resourceVersion=version,
        ) as events:
            said = {"status": {"phase": "Running", "reason": "Strained"}}
            content_type = "application/strategic-merge-patch+json"
            path = f"{core}/pods/app/status"
            written = await outage.ask(path, PROTOBUF, method="PATCH", body=said, content_type=content_type)
            assert written.status == 200
            (event,) = await events.until(bool)
            cells = json.loads(event.object.encode())["rows"][0]["cells"]
            assert (event.type, cells[0], cells[2]) == ("MODIFIED", "app", "Strained")

    def running(address: str) -> dict[str, Any]:
        state = {"state": {"running": {}}, "ready": True, "restartCount": 2, "image": "i", "imageID": "i"}
        return {
            "phase": "Running",
            "podIPs": [{"ip": address}],
            "containerStatuses": [{"name": "main", **state}],
        }

    admin, node, core = real_cloud.admin, outage.hub.node, f"/api/v1/namespaces/{namespace}"

    def prepare() -> tuple[Any, str]:
        admin.post(f"{core}/serviceaccounts", {"metadata": {"name": "default"}})
        admin.post(f"{core}/pods", pod("app", node))
        body = json.dumps({"status": running("10.9.8.7")}).encode()
        patch = {"Content-Type": "application/merge-patch+json"}
        assert admin.request("PATCH", f"{core}/pods/app/status", body=body, headers=patch).status == 200
        service = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "app"}}}
        admin.post(f"{core}/services", service)
        wide = real_cloud.kubectl("get", "services", "web", "-o", "wide", "-n", namespace).stdout
        return admin.get(f"{core}/pods/app"), wide.splitlines()[0]

    def kubectl(*args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        cache = f"--cache-dir={kubeconfig.parent / 'cache'}"
        return real_cloud.kubectl("-n", namespace, cache, *args, kubeconfig=kubeconfig, check=check)

    async def shown(*args: str) -> str:
        done = await asyncio.to_thread(kubectl, *args)
        assert "the cloud is away since" in done.stderr
        return done.stdout

    cloud_pod, columns = await asyncio.to_thread(prepare)
    for selected in (f"pods?fieldSelector=spec.nodeName%3D{node}&", "services?"):
        answer = await outage.ask(f"/api/v1/{selected}resourceVersion=0", PROTOBUF)
        assert (answer.status, namespace.encode() in answer.body) == (200, True)
    async with outage.away():
        (head, row) = (await shown("get", "pods")).splitlines()
        assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert row.split()[:4] == ["app", "1/1", "Running", "2"]
        assert "10.9.8.7" in await shown("get", "pods", "-o", "wide")
        assert (
            json.loads(await shown("get", "pod", "app", "-o", "json", "--show-managed-fields")) == cloud_pod
        )
        listed = yaml.safe_load(await shown("get", "pods", "-l", "app=app", "-o", "yaml"))
        assert [each["spec"]["containers"][0]["image"] for each in listed["items"]] == ["example.com/app:1"]
        assert "example.com/app:1" in await shown("describe", "pod", "app")
        assert (await shown("get", "services", "web", "-o", "wide")).splitlines()[0] == columns
        assert "app" in await shown("get", "pods", "-A", "--field-selector", "status.phase=Running")
        assert "app" not in await shown("get", "pods", "--field-selector", "status.phase=Pending")
        assert "pods" in (await asyncio.to_thread(kubectl, "api-resources")).stdout
        assert chosen() in (await asyncio.to_thread(kubectl, "version")).stdout
        for asked in (["logs", "app"], ["exec", "app", "--", "true"]):
            refused = await asyncio.to_thread(kubectl, *asked, check=False)
            assert "use crictl on the pod's node" in refused.stderr
        await sees_changes(core)
        watched = await asyncio.to_thread(kubectl, "get", "pods", "-w", "--request-timeout=5s", check=False)
        assert {line.split()[0] for line in watched.stdout.splitlines()} == {"NAME", "app"}
        assert "Error" not in watched.stderr, watched.stderr
        unknown = await asyncio.to_thread(lambda: kubectl("get", "deployments", check=False))
        assert "the hub has no copy of deployments" in unknown.stderr
        gone = await asyncio.to_thread(lambda: kubectl("delete", "pod", "app", check=False))
        assert "nothing is deleted" in gone.stderr


async def test_a_user_with_a_token_reads_offline_with_the_tokens_permissions(
    outage: Outage, real_cloud: RealCloud, namespace: str, tmp_path: Path
) -> None:
    admin, node, core = real_cloud.admin, outage.hub.node, f"/api/v1/namespaces/{namespace}"
    readers = [rule("", "pods", "get list watch")]

    def prepare() -> list[TokenUser]:
        admin.post(f"{core}/serviceaccounts", {"metadata": {"name": "default"}})
        admin.post(f"{core}/pods", pod("app", node))
        real_cloud.apply(rights("person", readers, account(namespace, "person"), namespace=namespace))
        names = ("person", "stranger", "unseen")
        return [TokenUser(real_cloud, outage.hub, namespace, name, tmp_path) for name in names]

    person, stranger, unseen = await asyncio.to_thread(prepare)
    of_kubelet = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&resourceVersion=0"
    async with asyncio.timeout(SLACK):
        # Another test may have created the hub's copy, which gets the new pod by its watch.
        while namespace.encode() not in (await outage.ask(of_kubelet, PROTOBUF)).body:  # noqa: ASYNC110 - no notification
            await asyncio.sleep(0.05)
    assert "app" in await asyncio.to_thread(person.gets, "get", "pods")
    assert "app" in await asyncio.to_thread(person.gets, "get", "pods", "app")
    await asyncio.to_thread(person.asks, "get", "pods", "-w", "--request-timeout=2s")
    assert "Forbidden" in (await asyncio.to_thread(stranger.asks, "get", "pods")).stderr
    async with outage.away():
        for asked in (["get", "pods"], ["get", "pods", "-l", "app=app", "-o", "yaml"], ["get", "pod", "app"]):
            done = await asyncio.to_thread(person.asks, *asked)
            assert (done.returncode, "app" in done.stdout) == (0, True), done.stderr
            assert "the cloud is away since" in done.stderr
        watched = await asyncio.to_thread(person.asks, "get", "pods", "-w", "--request-timeout=5s")
        assert {line.split()[0] for line in watched.stdout.splitlines()} == {"NAME", "app"}
        for asked in (["get", "secrets"], ["get", "pods", "-A"]):
            assert "cannot be verified" in (await asyncio.to_thread(person.asks, *asked)).stderr
        assert "cannot list" in (await asyncio.to_thread(stranger.asks, "get", "pods")).stderr
        assert "cannot be verified" in (await asyncio.to_thread(unseen.asks, "get", "pods")).stderr
