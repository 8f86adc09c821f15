"""Services, their slices and the rules, as tests write them to a real control plane."""

from __future__ import annotations

from collections.abc import Mapping

from kube.json_type import Json
from kube.wire.api_objects import ApiObject
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestError
from tests.hub.support.process import Hub
from tests.hub.support.streams import listed

CONFIG = "/api/v1/namespaces/kube-system/configmaps"


def slices(namespace: str, name: str = "") -> str:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    return f"{path}/{name}" if name else path


def services(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services"


def service(name: str, annotations: Mapping[str, str] = {}) -> Json:
    return {
        "metadata": {"name": name, "annotations": dict(annotations)},
        "spec": {"ports": [{"name": "http", "port": 80}], "selector": {"app": name}},
    }


def headless(name: str, filler: int = 0) -> Json:
    """Return a Service without a cluster IP, which may exist in large numbers, with an annotation of that many
    bytes."""
    spec = {"clusterIP": "None", "ports": [{"port": 80}]}
    return {"metadata": {"name": name, "annotations": {"filler": "x" * filler}}, "spec": spec}


async def service_names(hub: Hub) -> set[str]:
    """Return the names of the Services that kube-proxy gets."""
    return set(await listed(hub.url, "/api/v1/services", component="kube-proxy", resourceVersion="0"))


def endpoint_slice(name: str, of: str, *nodes: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": of}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [f"10.1.0.{number}"], "nodeName": node} for number, node in enumerate(nodes, 1)
        ],
    }


def nodes_of(obj: ApiObject) -> list[str]:
    return [endpoint.text("nodeName") for endpoint in obj.fields.children("endpoints")]


def set_rules(cloud: RealCloud, **data: str) -> None:
    """Write the rules ConfigMap; one without data adds nothing to the built-in rules."""
    rules = {"metadata": {"name": "yurt-hub-cfg"}, "data": data}
    try:
        cloud.admin.put(f"{CONFIG}/yurt-hub-cfg", rules)
    except RestError as error:
        assert error.answer.status == 404  # noqa: PT017 - any other answer is a fault of the test's cloud
        cloud.admin.post(CONFIG, rules)
