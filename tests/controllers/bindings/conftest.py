"""A manager that serves the webhook, called through its Service."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from tests.cloud.ports import free_port
from tests.cloud.real import RealCloud
from tests.controllers.conftest import StartManager
from tests.controllers.support.binding_scene import BindingScene
from tests.controllers.support.cluster_ip import ClusterIP
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.webhook_service import (
    CONFIGURATION,
    ONLY,
    SERVICE,
    WebhookService,
    wait_until_called,
)


@pytest.fixture(scope="module")
def service(managed_cloud: RealCloud) -> Iterator[WebhookService]:
    """Apply the registration and the Service of the manifests, with an unprivileged port."""
    pods, port = (free_port(), free_port()), free_port()
    webhooks = managed_cloud.admin.get(CONFIGURATION)["webhooks"]
    assert webhooks[0]["failurePolicy"] == "Ignore"
    shipped = copy.deepcopy(webhooks)
    webhooks[0]["clientConfig"]["service"]["port"] = port
    managed_cloud.admin.patch(CONFIGURATION, {"webhooks": webhooks})
    ports = managed_cloud.admin.get(SERVICE)["spec"]["ports"]
    made = managed_cloud.admin.patch(SERVICE, {"spec": {"ports": [{"name": "webhook", "port": port}]}})
    with ClusterIP(made["spec"]["clusterIP"], port, list(pods)) as address:
        yield WebhookService(address, pods)
    managed_cloud.admin.patch(CONFIGURATION, {"webhooks": shipped})
    managed_cloud.admin.patch(SERVICE, {"spec": {"ports": ports}})


@pytest.fixture
def webhook(start_manager: StartManager, service: WebhookService, bindings: BindingScene) -> ManagerProcess:
    """Run a manager that only injects as workloads are written; return once the API server calls it."""
    started = start_manager(*service.pod, ONLY)
    wait_until_called(bindings)
    return started
