"""Which pods have kubelet ask the hub for them."""

from __future__ import annotations

from typing import Any

import pytest

from addons.install.checks.pod_checks import NAMED_PODS, asks, check_pods
from addons.install.cloud import cloud
from kube.http.tls import tls_context
from kube.json_type import Json
from tests.addons.support.small_api import anonymous, small_api

PORT = 10261
HERE = {"host": "127.0.0.1", "port": PORT}


def spec(http: Json, kind: str = "livenessProbe", containers: str = "containers", **more: Any) -> Json:
    return {containers: [{"name": "c", kind: {"httpGet": http}}], **more}


HOOK = {"containers": [{"name": "c", "lifecycle": {"postStart": {"httpGet": HERE}}}]}
NAMED = {
    "containers": [
        {
            "name": "c",
            "ports": [{"name": "web", "containerPort": PORT}],
            "readinessProbe": {"httpGet": {"host": "localhost", "port": "web"}},
        }
    ]
}


@pytest.mark.parametrize(
    ("pod", "asking"),
    [
        (spec(HERE), True),
        (spec(HERE, "startupProbe"), True),
        (spec(HERE, containers="initContainers"), True),
        (HOOK, True),
        (NAMED, True),
        (spec({"port": PORT}, hostNetwork=True), True),
        (spec({"port": PORT}), False),
        (spec({**HERE, "port": 10267}), False),
        (spec({**HERE, "port": "web"}), False),
        ({"containers": [{"name": "c", "livenessProbe": {"tcpSocket": HERE}, "lifecycle": {}}]}, False),
    ],
)
def test_a_pod_that_leads_kubelet_to_the_hub(pod: Json, asking: bool) -> None:
    assert asks(pod, PORT) is asking


@pytest.mark.parametrize("count", [0, 1, NAMED_PODS + 1])
async def test_the_finding_names_them(count: int) -> None:
    pods = [
        {"metadata": {"namespace": "default", "name": f"p{number}"}, "spec": spec(HERE)}
        for number in range(count)
    ]
    async with small_api({"/api/v1/pods": {"items": pods}}) as url:
        credentials = anonymous(url)
        async with cloud(credentials, tls_context(credentials)) as client:
            line = str(await check_pods(client, "n1", PORT))
    assert line.startswith("warning  pods" if count else "ok       pods")
    assert line.count("default/p") == min(count, NAMED_PODS)
    assert ("..." in line) is (count > NAMED_PODS)
