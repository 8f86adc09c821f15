"""kubectl behind a filter, of a custom resource: the cloud's columns and cells, of what the filter shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from kube.json_type import Json
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.cloud.rights import group, rights, rule
from tests.hub.support.process import SLACK, Hub
from tests.hub.test_filtered_tables import FROM_THE_STATE, TABLE, compared, rows

KIND = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.acme.example}
spec:
  group: acme.example
  scope: Namespaced
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    additionalPrinterColumns:
    - {name: Tier, type: string, jsonPath: .spec.tier}
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Owner, type: string, jsonPath: .spec.owner, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
"""
READERS = rights("widgets", [rule("acme.example", "widgets", "get list watch")], group("system:nodes"))
FILTER = '''
"""Hides widgets with a label from everybody."""

from dataclasses import dataclass

from addons.filters.filter import READS
from addons.filters.verdict import dropped, ignore_note, kept


@dataclass(frozen=True)
class Hidden:
    name = "acme-hidden"
    resources = frozenset({("acme.example", "widgets")})
    components = frozenset({"*"})
    verbs = READS
    reasons = frozenset({"hidden", "shown"})
    after = ()
    protobuf = True

    def apply(self, obj, inputs, note=ignore_note):
        return dropped("hidden") if obj.labels.get("hidden") else kept("shown")


FILTERS = (Hidden(),)
'''


def widget(name: str, tier: str, **labels: str) -> Json:
    metadata = {"name": name, "labels": labels}
    spec = {"tier": tier, "size": 3, "owner": "people"}
    return {"apiVersion": "acme.example/v1", "kind": "Widget", "metadata": metadata, "spec": spec}


def widgets(namespace: str) -> str:
    return f"/apis/acme.example/v1/namespaces/{namespace}/widgets"


@pytest.fixture(scope="module")
def widget_hub(
    real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory, node_name: str
) -> Iterator[Hub]:
    for each in (HUB_RBAC, KIND, READERS):
        real_cloud.apply(each)
    real_cloud.kubectl("wait", "--for=condition=Established", "crd/widgets.acme.example")
    folder = tmp_path_factory.mktemp("hub")
    (folder / "hidden.py").write_text(FILTER)
    flags = ("--filter-module", str(folder / "hidden.py"))
    kubeconfig = real_cloud.node_kubeconfig(node_name)
    with Hub(folder, real_cloud.url, node=node_name, kubeconfig=kubeconfig, flags=flags) as made:
        yield made


@pytest.fixture
def shown(real_cloud: RealCloud, widget_hub: Hub, namespace: str) -> str:
    """A namespace with two widgets that people see, and one that they do not."""
    for each in (widget("a", "gold"), widget("b", "tin"), widget("c", "none", hidden="true")):
        real_cloud.admin.post(widgets(namespace), each)
    return namespace


@pytest.mark.parametrize(
    "how",
    [
        ("widgets",),
        ("widgets", "-o", "wide"),
        ("widgets", "--chunk-size=1"),
        ("widgets", "-A"),
        ("widget", "a"),
    ],
)
async def test_kubectl_prints_the_columns_of_the_kind(
    real_cloud: RealCloud, widget_hub: Hub, shown: str, tmp_path: Path, how: tuple[str, ...]
) -> None:
    words = ("get", *how, "-n", shown, f"--cache-dir={tmp_path}")

    def printed(config: Path | None) -> list[str]:
        return rows(real_cloud.kubectl(*words, kubeconfig=config).stdout)

    cloud = await asyncio.to_thread(printed, None)
    hub = await asyncio.to_thread(printed, write_kubeconfig(tmp_path / "config", widget_hub.url))
    assert hub == [line for line in cloud if " none " not in line]
    assert "TIER SIZE" in hub[0]


@pytest.mark.since(34, "a watch that begins with the present state, to compare with")
@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
def test_a_watch_has_the_clouds_cells_event_for_event(
    real_cloud: RealCloud, widget_hub: Hub, shown: str, include: str
) -> None:
    """What comes to be hidden is deleted for who watches, with the cells that it had."""
    path, asked = widgets(shown), {"includeObject": include, "allowWatchBookmarks": "true", **FROM_THE_STATE}
    with RestClient(widget_hub.url, user_agent="tables/v1") as client:
        events = client.watch(path, timeout=SLACK, accept=TABLE, **asked)
        with closing(events):
            of_hub = [(event.type, compared(event.object)) for event in islice(events, 3)]
            real_cloud.admin.patch(f"{path}/a", {"spec": {"tier": "silver"}})
            edited = compared(next(events).object)
            real_cloud.admin.patch(f"{path}/b", {"metadata": {"labels": {"hidden": "true"}}})
            hidden = next(events)
            real_cloud.admin.delete(f"{path}/a")
            deleted = next(events)
    assert [each[0] for each in of_hub] == ["ADDED", "ADDED", "BOOKMARK"]
    columns = of_hub[0][1]["columnDefinitions"]
    assert [each["name"] for each in columns] == ["Name", "Tier", "Size", "Owner", "Age"]
    cells = [each["rows"][0]["cells"][:4] for _, each in of_hub[:2]]
    assert cells == [["a", "gold", "3", "people"], ["b", "tin", "3", "people"]]
    assert edited["rows"][0]["cells"][:2] == ["a", "silver"]
    assert (hidden.type, compared(hidden.object)["rows"][0]["cells"][:2]) == ("DELETED", ["b", "tin"])
    assert (deleted.type, compared(deleted.object)["rows"][0]["cells"][:2]) == ("DELETED", ["a", "silver"])
