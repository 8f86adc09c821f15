"""Upgrades of pods and pulls of their images through the admin port, with YurtHub's codes and texts."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from addons.telemetry import metrics
from addons.ui.pod_updates import DISCONNECTED, FIELD_MANAGER, MAX_UPDATES
from addons.ui.running_hub import RunningHub
from kube.errors import forbidden, not_found
from kube.http.client import ApiResponse, Unreachable
from kube.json_type import Json
from tests.addons.support.admin_client import AdminClient, served
from tests.addons.support.observed import until
from tests.kube.support.answering import AnsweringClient, Asked

POD: Json = {
    "metadata": {
        "namespace": "shop",
        "name": "web-1",
        "uid": "u",
        "ownerReferences": [{"kind": "DaemonSet", "name": "web"}],
    },
    "spec": {"nodeName": ""},
    "status": {
        "conditions": [{"type": "PodNeedUpgrade", "status": "True", "message": "controllerrevision: h2"}]
    },
}
PATH = "/openyurt.io/v1/namespaces/shop/pods/web-1"
API = "/api/v1/namespaces/shop/pods/web-1"


class Cloud(AnsweringClient):
    """A cloud with one pod. Records the requested changes."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self.pod: Json | None = copy.deepcopy(POD)
        self.pod["spec"]["nodeName"] = node
        self.changed: list[Asked] = []
        self.refuses_changes = False
        self.held = 0
        self.holds: asyncio.Event | None = None
        """An event; requests are answered only once it is set."""

    @property
    def found(self) -> Json:
        assert self.pod is not None
        return self.pod

    def say(self, kind: str, status: str, **more: str) -> None:
        self.found["status"]["conditions"].append({"type": kind, "status": status, **more})

    async def answer(self, asked: Asked) -> ApiResponse:
        assert asked.path.removesuffix("/status") == API
        if self.holds is not None:
            self.held += 1
            await self.holds.wait()
        if self.pod is None:
            raise not_found("pods", "web-1")
        if asked.method != "GET":
            self.changed.append(asked)
            if self.refuses_changes:
                raise forbidden("no")
        return ApiResponse("application/json", orjson.dumps(self.pod))


@pytest.fixture
def pod_cloud(hub: RunningHub) -> Cloud:
    return Cloud(hub.settings.node)


@pytest.fixture
async def updating(hub: RunningHub, pod_cloud: Cloud) -> AsyncIterator[AdminClient]:
    async with served(dataclasses.replace(hub, client=pod_cloud)) as made:
        yield made


async def post(pages: AdminClient, action: str) -> tuple[int, str]:
    return await pages.ask(f"{PATH}/{action}", body=b"")


async def test_an_upgrade_deletes_the_pod_with_its_uid(updating: AdminClient, pod_cloud: Cloud) -> None:
    before = metrics.POD_UPDATES.labels("upgrade", "200")._value.get()
    async with updating.session.post(f"{updating.url}{PATH}/upgrade") as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert await answer.text() == "Start updating pod shop/web-1"
    [asked] = pod_cloud.changed
    assert (asked.method, asked.path) == ("DELETE", API)
    assert asked.document["preconditions"] == {"uid": "u"}
    assert metrics.POD_UPDATES.labels("upgrade", "200")._value.get() == before + 1


async def test_a_pull_is_requested_by_a_condition_of_the_pod_with_its_uid(
    updating: AdminClient, pod_cloud: Cloud
) -> None:
    assert await post(updating, "imagepull") == (200, "Image pre-pull requested for pod shop/web-1")
    [asked] = pod_cloud.changed
    assert (asked.method, asked.path, asked.query) == (
        "PATCH",
        f"{API}/status",
        {"fieldManager": FIELD_MANAGER},
    )
    assert asked.document["metadata"] == {"uid": "u"}
    [condition] = asked.document["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["message"]) == (
        *("PodImageReady", "False"),
        "controllerrevision: h2",
    )


def terminating(pod_cloud: Cloud) -> None:
    pod_cloud.found["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"


def on_another_node(pod_cloud: Cloud) -> None:
    pod_cloud.found["spec"]["nodeName"] = "other"


def up_to_date(pod_cloud: Cloud) -> None:
    pod_cloud.found["status"]["conditions"][0]["status"] = "False"


def without_update_condition(pod_cloud: Cloud) -> None:
    del pod_cloud.found["status"]["conditions"][:]


NOT_NOW = [
    (terminating, "Pod shop/web-1 is deleting, can not be updated"),
    (on_another_node, "Pod: shop/web-1 is running on other, can not be updated"),
    (up_to_date, "Pod: shop/web-1 update status is False, can not be updated"),
    (without_update_condition, "Pod: shop/web-1 update status is False, can not be updated"),
]


@pytest.mark.parametrize(("change", "why"), NOT_NOW, ids=[change.__name__ for change, _ in NOT_NOW])
async def test_an_update_of_a_pod_without_a_pending_one_is_refused(
    updating: AdminClient, pod_cloud: Cloud, change: Any, why: str
) -> None:
    change(pod_cloud)
    assert await post(updating, "upgrade") == (
        403,
        f"Pre check update pod failed, Failed to check pod shop/web-1 status, error: {why}",
    )
    assert await post(updating, "imagepull") == (403, f"Failed to check pod status shop/web-1, error: {why}")
    assert pod_cloud.changed == []


@pytest.mark.parametrize(
    ("status", "reason", "message", "code"),
    [
        ("False", "", "controllerrevision: h2", 403),
        ("False", "PullImageFail", "pull image job j failed", 403),
        ("True", "PullImageSuccess", "controllerrevision: h1", 403),
        ("True", "PullImageSuccess", "controllerrevision: h2", 200),
    ],
    ids=["being pulled", "failed", "of a former template", "there"],
)
async def test_an_upgrade_is_refused_until_requested_images_are_pulled(
    updating: AdminClient, pod_cloud: Cloud, status: str, reason: str, message: str, code: int
) -> None:
    pod_cloud.say("PodImageReady", status, reason=reason, message=message)
    found, text = await post(updating, "upgrade")
    assert found == code
    assert bool(pod_cloud.changed) == (code == 200)
    if code == 403:
        assert text == (
            "Pre check update pod failed, Failed to check pod shop/web-1 image ready, error: "
            f"Pod: shop/web-1 image is not ready, reason: {reason}, message: {message}"
        )


@pytest.mark.parametrize(
    ("owners", "code", "text"),
    [
        ([{"kind": "Node"}], 403, "Configmap for static pod does not exist"),
        ([{"kind": "ReplicaSet"}], 400, "Not support ota upgrade pod type ReplicaSet"),
        ([], 400, "Pod has no owner references"),
    ],
)
async def test_a_pod_of_another_owner_is_refused(
    updating: AdminClient, pod_cloud: Cloud, owners: list[Json], code: int, text: str
) -> None:
    pod_cloud.found["metadata"]["ownerReferences"] = owners
    assert await post(updating, "upgrade") == (code, text)
    assert pod_cloud.changed == []


async def test_a_refusal_by_the_cloud_is_passed_on(updating: AdminClient, pod_cloud: Cloud) -> None:
    pod_cloud.refuses_changes = True
    assert await post(updating, "upgrade") == (500, "Apply update failed")
    assert await post(updating, "imagepull") == (500, "Patch pod status for imagepull failed")
    pod_cloud.pod = None
    assert await post(updating, "upgrade") == (500, 'Get pod failed, pods "web-1" not found')


async def test_an_update_in_an_outage_is_500_with_the_reason(hub: RunningHub) -> None:
    class Gone(AnsweringClient):
        async def answer(self, asked: Asked) -> ApiResponse:
            raise Unreachable("gone")

    async with served(dataclasses.replace(hub, client=Gone())) as pages:
        assert await post(pages, "upgrade") == (500, "Get pod failed, gone")


async def test_an_update_without_a_cloud_is_refused(hub: RunningHub, pod_cloud: Cloud) -> None:
    hub.cloud.servers[0].failed("gone")
    assert not hub.cloud.is_up
    async with served(dataclasses.replace(hub, client=pod_cloud)) as pages:
        for action in ("upgrade", "imagepull"):
            assert await post(pages, action) == (503, DISCONNECTED)
    assert pod_cloud.changed == []


async def test_an_update_on_a_hub_without_a_link_is_refused(pages: AdminClient) -> None:
    assert await post(pages, "upgrade") == (503, DISCONNECTED)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("action", ["upgrade", "imagepull"])
async def test_other_methods_update_no_pod(
    updating: AdminClient, pod_cloud: Cloud, method: str, action: str
) -> None:
    async with updating.session.request(method, f"{updating.url}{PATH}/{action}") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert pod_cloud.changed == []


@pytest.mark.parametrize("name", ["..", ".", "a%2Fb", "A"])
async def test_only_valid_pod_names_are_sent_to_the_cloud(
    updating: AdminClient, pod_cloud: Cloud, name: str
) -> None:
    code, _ = await updating.ask(f"/openyurt.io/v1/namespaces/shop/pods/{name}/upgrade", body=b"")
    assert code == 404
    assert pod_cloud.changed == []


async def test_an_update_requested_by_a_web_page_is_refused(updating: AdminClient, pod_cloud: Cloud) -> None:
    code, _ = await updating.ask(f"{PATH}/upgrade", body=b"", Origin="http://evil.example")
    assert (code, pod_cloud.changed) == (403, [])


async def test_a_user_that_the_plain_port_refuses_updates_no_pod(
    hub: RunningHub, pod_cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def another(*_: object) -> int:
        return 12345

    monkeypatch.setattr("addons.ui.handlers.peer_user", another)
    settings = dataclasses.replace(hub.settings, plain_users=frozenset({999}))
    async with served(dataclasses.replace(hub, client=pod_cloud, settings=settings)) as pages:
        assert (await post(pages, "upgrade"))[0] == 403
    assert pod_cloud.changed == []


async def test_concurrent_updates_are_bounded_and_a_disconnect_cancels_none(
    updating: AdminClient, pod_cloud: Cloud
) -> None:
    before = metrics.ADMIN_REFUSED.labels("update")._value.get()
    go_on = pod_cloud.holds = asyncio.Event()
    asking = [asyncio.create_task(post(updating, "upgrade")) for _ in range(MAX_UPDATES)]
    await until(lambda: pod_cloud.held == MAX_UPDATES)
    assert (await post(updating, "upgrade"))[0] == 429
    assert metrics.ADMIN_REFUSED.labels("update")._value.get() == before + 1
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert pod_cloud.changed == []
    go_on.set()
    await until(lambda: len(pod_cloud.changed) == MAX_UPDATES)
