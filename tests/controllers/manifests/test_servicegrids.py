"""ServiceGrids on an API server, as in SuperEdge's documentation and with other content."""

from __future__ import annotations

import pytest

from tests.cloud.rest import RestError
from tests.controllers.support.scene import Scene

pytestmark = [pytest.mark.real]

DOCUMENT = """
apiVersion: superedge.io/v1
kind: ServiceGrid
metadata:
  name: servicegrid-demo
  namespace: {namespace}
spec:
  gridUniqKey: zone1
  template:
    selector:
      appGrid: echo
    ports:
    - protocol: TCP
      port: 80
      targetPort: 8080
    trafficDistribution: PreferClose
"""


def test_the_documented_grid_is_stored_with_every_field(scene: Scene) -> None:
    said = scene.cloud.apply(DOCUMENT.format(namespace=scene.namespace))
    assert said == "servicegrid.superedge.io/servicegrid-demo created\n"
    template = scene.admin.get(f"{scene.grids}/servicegrid-demo")["spec"]["template"]
    assert template == {
        "selector": {"appGrid": "echo"},
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080}],
        "trafficDistribution": "PreferClose",
    }


def test_the_status_of_a_grid_is_a_subresource(scene: Scene) -> None:
    name = scene.grid()
    scene.admin.patch(f"{scene.grids}/{name}", {"status": {"observedGeneration": 7}})
    assert "status" not in scene.admin.get(f"{scene.grids}/{name}")
    scene.admin.patch(f"{scene.grids}/{name}/status", {"status": {"observedGeneration": 7}})
    assert scene.admin.get(f"{scene.grids}/{name}")["metadata"]["generation"] == 1


def test_kubectl_prints_the_columns_of_a_grid(scene: Scene) -> None:
    name = scene.grid()
    shown = scene.cloud.kubectl("get", "sg", "-n", scene.namespace, name, "-o", "wide").stdout.splitlines()
    assert shown[0].split() == ["NAME", "KEY", "READY", "REASON", "AGE"]
    assert shown[1].split()[:2] == [name, "zone1"]


def test_a_name_too_long_for_its_service_is_refused(scene: Scene) -> None:
    with pytest.raises(RestError, match="at most 59 characters"):
        scene.grid(name="g" * 60)
    assert scene.grid(name="g" * 59)


def test_an_empty_grid_key_is_accepted_by_the_api_server(scene: Scene) -> None:
    assert scene.there(scene.grids, scene.grid(key=""))


def test_two_ports_with_one_number_are_refused(scene: Scene) -> None:
    with pytest.raises(RestError, match="Duplicate value"):
        scene.grid(ports=[{"port": 80}, {"port": 80}])
