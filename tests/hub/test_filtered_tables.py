"""kubectl with filtered Tables: the columns and cells are the cloud's, for the objects that the filter allows. The hub
renders the cells of Services itself; for a custom resource they come from the cloud."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kube.json_type import Json
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.cloud.rights import group, rights, rule
from tests.hub.support.objects import service, services, set_rules
from tests.hub.support.outage import Outage
from tests.hub.support.process import SLACK, Hub
from tests.hub.support.site import hub_before
from tests.support.objects import obj

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
    spec = {"tier": tier, "size": 3, "owner": "people"}
    return obj("Widget", name, labels=labels, apiVersion="acme.example/v1", spec=spec)


def widgets(namespace: str) -> str:
    return f"/apis/acme.example/v1/namespaces/{namespace}/widgets"


@pytest.fixture(scope="module")
def hub(real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory, node_name: str) -> Iterator[Hub]:
    """Run a hub with an operator's filter that hides some widgets."""
    for each in (KIND, READERS):
        real_cloud.apply(each)
    folder = tmp_path_factory.mktemp("hub")
    (folder / "hidden.py").write_text(FILTER)
    with hub_before(real_cloud, folder, node_name, "--filter-module", str(folder / "hidden.py")) as made:
        yield made


@pytest.fixture(scope="module")
def kubeconfig(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kubeconfig(tmp_path_factory.mktemp("kubectl") / "config", hub.url)


@pytest.fixture
def shown(real_cloud: RealCloud, hub: Hub, namespace: str) -> Iterator[str]:
    """Create a namespace with a Service and two widgets that users see, and one of each that they do not."""
    hidden = service("hidden")
    hidden["spec"]["type"] = "LoadBalancer"
    for each in (service("web"), hidden):
        real_cloud.admin.post(services(namespace), each)
    for each in (widget("a", "gold"), widget("b", "tin"), widget("c", "none", hidden="true")):
        real_cloud.admin.post(widgets(namespace), each)
    set_rules(real_cloud, discardcloudservice="kubectl,tables")
    hub.process.wait_for_line("rules .* are in force", SLACK)
    yield namespace
    set_rules(real_cloud)


def rows(text: str) -> list[str]:
    """Return kubectl's rows, with ages rounded so that they do not change."""
    return [re.sub(r"\b\d+[smh]\S*", "AGE", re.sub(r" +", " ", line)).strip() for line in text.splitlines()]


@pytest.mark.parametrize(
    "how",
    [
        *(("services",), ("services", "-o", "wide"), ("service", "web"), ("services", "-A")),
        *(("widgets",), ("widgets", "-o", "wide"), ("widget", "a"), ("widgets", "-A")),
        ("widgets", "--chunk-size=1"),
    ],
)
async def test_kubectl_prints_the_table_of_the_cloud_without_hidden_objects(
    real_cloud: RealCloud, kubeconfig: Path, shown: str, how: tuple[str, ...]
) -> None:
    def printed(config: Path | None) -> list[str]:
        cache = f"--cache-dir={kubeconfig.parent / 'cache'}"
        return rows(real_cloud.kubectl("get", *how, "-n", shown, cache, kubeconfig=config).stdout)

    cloud, hub = await asyncio.to_thread(printed, None), await asyncio.to_thread(printed, kubeconfig)
    assert hub == [line for line in cloud if not {"LoadBalancer", "none"} & set(line.split())]
    assert len(hub) >= 2
    assert ("TIER SIZE" in hub[0]) is how[0].startswith("widget")


def test_a_cached_kubectl_prints_the_clouds_table_of_one_object_and_offline_the_stored_object(
    real_cloud: RealCloud, kubeconfig: Path, shown: str, node: str, to_cloud: Link, tmp_path: Path
) -> None:
    """The columns are the cloud's; what is stored for an outage, and filtered there, is the object."""
    (tmp_path / "hidden.py").write_text(FILTER)
    set_rules(real_cloud, cache_agents="kubectl")
    flags = "--filter-module", str(tmp_path / "hidden.py")
    with hub_before(real_cloud, tmp_path, node, *flags, link=to_cloud) as hub:
        at_hub = write_kubeconfig(tmp_path / "config", hub.url)

        def printed(name: str, config: Path | None = at_hub) -> str:
            cache = f"--cache-dir={kubeconfig.parent / 'cache'}"
            done = real_cloud.kubectl(
                "get", "widget", name, "-n", shown, cache, kubeconfig=config, check=False
            )
            return done.stdout or done.stderr

        hub.process.wait_for_line("rules .* are in force", SLACK)
        assert rows(printed("a")) == rows(printed("a", None)) == ["NAME TIER SIZE AGE", "a gold 3 AGE"]
        assert "NotFound" in printed("c")
        Outage(hub, to_cloud).leave()
        assert rows(printed("a")) == ["NAME AGE", "a AGE"]
        assert "NotFound" in printed("c")


@pytest.mark.since(33, "a kube-apiserver that calls Endpoints deprecated")
@pytest.mark.parametrize("rule", ["cache_agents", "endpoints"])
def test_kubectl_prints_the_warnings_that_it_prints_at_the_cloud(
    real_cloud: RealCloud, hub: Hub, kubeconfig: Path, shown: str, rule: str
) -> None:
    set_rules(real_cloud, **{rule: "kubectl"})
    hub.process.wait_for_line("rules .* are in force", SLACK)
    asked = "get", "endpoints", "-n", shown
    cloud, behind = (real_cloud.kubectl(*asked, kubeconfig=config).stderr for config in (None, kubeconfig))
    assert "v1 Endpoints is deprecated" in cloud
    assert behind == cloud


@pytest.mark.since(34, "a watch that begins with the present state, to compare with")
@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
def test_a_table_watch_equals_the_clouds_event_for_event(
    real_cloud: RealCloud, hub: Hub, shown: str, include: str
) -> None:
    """Only the first event has columns; a bookmark has the row of an empty object."""

    def compared(table: Json) -> Json:
        """Return a Table without versions and descriptions, and with a constant age."""
        table["metadata"].pop("resourceVersion")
        for column in table["columnDefinitions"] or ():
            column["description"] = ""
        for row in table["rows"]:
            row["cells"] = rows("\n".join(map(str, row["cells"])))
            obj = row["object"] or {"metadata": {}}
            for name in ("resourceVersion", "managedFields", "labels"):
                obj["metadata"].pop(name, None)
            if not obj.get("spec"):  # in a bookmark: Go encodes empty structs
                obj.pop("spec", None), obj.pop("status", None)
        return table

    path = services(shown)

    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    numbers = itertools.count()
    from_the_state = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}

    def seen(client: RestClient) -> list[tuple[str, Json]]:
        events = client.watch(
            path,
            timeout=SLACK,
            accept=table,
            labelSelector="!hides",
            fieldSelector="metadata.name!=hidden",
            includeObject=include,
            allowWatchBookmarks="true",
            **from_the_state,
        )
        found: list[tuple[str, Json]] = []
        with closing(events):
            for event in events:
                found.append((event.type, compared(event.object)))
                if event.type == "BOOKMARK":
                    real_cloud.admin.patch(f"{path}/web", {"metadata": {"labels": {"n": str(next(numbers))}}})
                if event.type == "MODIFIED":
                    return found
        raise AssertionError(found)

    with RestClient(hub.url, user_agent="tables/v1") as client:
        of_hub = seen(client)
    of_cloud = seen(real_cloud.admin)
    assert [each[0] for each in of_hub] == ["ADDED", "BOOKMARK", "MODIFIED"]
    for (_, made), (_, sent) in zip(of_hub, of_cloud, strict=True):
        assert made == sent
