"""The webhook behind its Service, as in a cluster, and the API server's results with it."""

from __future__ import annotations

import ssl
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

import urllib3

from kube.json_type import Json
from tests.cloud.ports import LOOPBACK
from tests.controllers.support.binding_scene import BindingScene, image_of
from tests.controllers.support.cluster_ip import ClusterIP
from tests.controllers.support.scene import Scene
from tests.controllers.support.workloads import DEPLOYMENT, image

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/edgehub-configbinding"
SERVICE = "/api/v1/namespaces/kube-system/services/edgehub-manager"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
SECRET = f"{SECRETS}/edgehub-manager-webhook"
HOST = "edgehub-manager.kube-system.svc"
"""The host name in the webhook's certificate: the API server calls it through its Service."""
ONLY = "--controllers=configbindingwebhook"
"""Flags with which only the webhook injects."""


@dataclass(frozen=True)
class WebhookService:
    """The Service through which the API server calls the webhook, and the ports of its two possible Pods."""

    address: ClusterIP
    pods: tuple[int, int]

    @property
    def url(self) -> str:
        """Return the URL of the first Pod for workloads."""
        return f"https://{LOOPBACK}:{self.pods[0]}/mutate-workload"

    @property
    def pod(self) -> tuple[str, str]:
        """Return the flags of a manager that is the first Pod."""
        return "--webhook-port", str(self.pods[0])

    @property
    def other_pod(self) -> tuple[str, str]:
        return "--webhook-port", str(self.pods[1])


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


def bound(bindings: BindingScene) -> str:
    """Return the name of Deployments that get the image app:2 from a binding known to the webhook."""
    name = bindings.scene.name("web")
    bindings.bind(name, items=[image("app:2")])
    bindings.scene.until(lambda: dry_run(bindings, name) == "app:2")
    return name


def create(bindings: BindingScene, subject: str, pool: str = "hangzhou") -> Json:
    """Return a Deployment as the API server returns it at its creation."""
    return bindings.scene.admin.post(bindings.deployments, bindings.workload(DEPLOYMENT, subject, pool, ""))


def dry_run_template(bindings: BindingScene, name: str) -> Json:
    """Return the pod spec of a Deployment as the API server would store it."""
    body = bindings.workload(DEPLOYMENT, name, "hangzhou", "")
    answer = bindings.scene.admin.request("POST", bindings.deployments, query={"dryRun": "All"}, body=body)
    template: Json = answer.json()["spec"]["template"]["spec"]
    return template


def dry_run(bindings: BindingScene, name: str) -> str:
    """Return the image of a Deployment as the API server would store it."""
    return str(dry_run_template(bindings, name)["containers"][0]["image"])


def client(scene: Scene, certificate: tuple[Path, Path] | None = None) -> urllib3.PoolManager:
    """Return a client that trusts the webhook's CA, and presents a certificate given with its key."""
    bundle = b64decode(scene.admin.get(SECRET)["data"]["ca.crt"]).decode()
    context = ssl.create_default_context(cadata=bundle)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return urllib3.PoolManager(retries=False, ssl_context=context, assert_hostname=HOST, server_hostname=HOST)
