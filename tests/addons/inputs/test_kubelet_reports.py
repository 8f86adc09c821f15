"""Kubelet's pod reports: they start offline, follow the cloud's pod once accepted, and end with newer slices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from addons.filters.inputs import PodReport, Selection, TargetPort
from addons.inputs.derived import selection_in
from addons.inputs.input_sources import InputKind
from addons.inputs.kubelet_reports import KubeletReports
from addons.inputs.pod_reports import FRESH
from kube.json_type import Json
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.inputs.test_filter_inputs import NODE, WEB, Cluster
from tests.addons.support.samples import endpoint_slice, fill, raw, service
from tests.kube.support.recorded import body
from tests.support.objects import obj

PATH = "/api/v1/namespaces/default/pods/web-0"
REPORT, OF_POD = (InputKind.POD_REPORT, "default"), (InputKind.POD_REPORT, "default", "web-0")


class Site(Cluster):
    """A cluster with one pod on this node, and the clock of the reports."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.opens: list[Store] = []
        self.has_pods = True
        self.reports = self.inputs.reports[NODE] = KubeletReports(
            *(self.inputs.changed, self.inputs.ask), self._pods, lambda: self.has_pods, lambda: self.now
        )
        self.fill("pods", pod("10.0.0.1", version=5))

    def _pods(self) -> Store:
        self.opens.append(self.source("pods").store)
        return self.opens[-1]

    @property
    def report(self) -> PodReport | None:
        return self.reports.of("default").get("web-0")

    def heard(self, document: Json) -> None:
        self.notified.clear()
        self.reports.heard(PATH, document)

    def later(self, *stores: Store) -> None:
        self.now += FRESH
        self.reports.settle(stores)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    yield made
    made.inputs.close()


def pod(*addresses: str, version: int = 0, ready: str = "True", uid: str = "u", **more: Any) -> Json:
    """Return a pod with this status; `more` goes into its metadata."""
    status: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    if addresses:
        status |= {"podIP": addresses[0], "podIPs": [{"ip": each} for each in addresses]}
    made = obj("Pod", "web-0", "default", version, uid=uid, labels={"app": "web"}, status=status)
    made["metadata"] |= more
    return made


def marked(address: str, version: int) -> Json:
    """Return a pod as the node lifecycle controller leaves it when its node is silent."""
    document = pod(address, version=version)
    document["status"]["conditions"] = [
        {"type": "Ready", "status": "False"},
        {"type": "ContainersReady", "status": "True"},
    ]
    return document


def slice_of(address: str, version: int) -> Json:
    made = endpoint_slice("web-abc", [NODE], version)
    target = {"kind": "Pod", "namespace": "default", "name": "web-0", "uid": "u"}
    (endpoint,) = made["endpoints"]
    endpoint |= {"addresses": [address], "targetRef": target}
    return made


def slices(*values: Json, version: int = 100) -> Store:
    store = Store()
    fill(store, values, version, kind="EndpointSlice", api_version="discovery.k8s.io/v1")
    return store


@pytest.mark.parametrize(
    ("document", "addresses", "is_ready", "is_terminating"),
    [
        (pod("10.0.0.2"), ("10.0.0.2",), True, False),
        (pod("10.0.0.2", "fd00::2", ready="False"), ("10.0.0.2", "fd00::2"), False, False),
        (pod(), (), True, False),
        ({**pod("10.0.0.2"), "status": {"phase": "Failed", "podIP": "10.0.0.2"}}, (), False, False),
        (
            {**pod("10.0.0.2"), "status": {"phase": "Running", "podIP": "10.0.0.2"}},
            ("10.0.0.2",),
            False,
            False,
        ),
        (pod("10.0.0.2", deletionTimestamp="2026-01-02T03:04:05Z"), ("10.0.0.2",), True, True),
        ({"metadata": {"name": "web-0", "uid": "u"}, "status": 7}, (), False, False),
    ],
)
async def test_a_pod_status_gives_addresses_readiness_and_termination(
    site: Site, document: Json, addresses: tuple[str, ...], is_ready: bool, is_terminating: bool
) -> None:
    site.heard(document)
    assert site.report is not None
    assert (site.report.addresses, site.report.is_ready, site.report.is_terminating) == (
        *(addresses, is_ready, is_terminating),
    )
    assert site.report.concerns(10**9), "the cloud has not heard it"


async def test_a_report_notifies_only_its_readers(site: Site) -> None:
    site.reports.heard("/api/v1/nodes/n1", {"metadata": {"name": "n1"}})
    assert not site.notified
    assert not site.inputs.ask().pod_reports("default").of("web-0")
    site.heard(pod("10.0.0.2"))
    assert site.notified == [{REPORT, OF_POD}]
    site.heard(pod("10.0.0.3"))
    assert site.notified == [{OF_POD}]
    site.heard(pod("10.0.0.3"))
    assert site.notified == []
    asked = site.inputs.ask()
    assert asked.pod_reports("default").of("db-0") == []
    assert asked.reads == {REPORT}
    assert [each.name for each in asked.pod_reports("default").selected_by({"app": "web"})] == ["web-0"]
    assert asked.reads == {REPORT, OF_POD}


async def test_before_the_cloud_accepts_a_status_only_a_deletion_by_the_cloud_applies(site: Site) -> None:
    site.heard(pod("10.0.0.2"))
    site.apply("pods", "MODIFIED", pod("10.0.0.1", version=11, ready="False"))
    unheard = site.reports.of("default")["web-0"]
    assert (unheard.addresses, unheard.is_ready, unheard.version) == (("10.0.0.2",), True, 0)
    assert not unheard.is_terminating
    site.apply("pods", "MODIFIED", pod("10.0.0.1", version=12, deletionTimestamp="2026-01-02T03:04:05Z"))
    assert site.reports.of("default")["web-0"].is_terminating


@pytest.mark.parametrize("order", ["answer first", "event first"])
async def test_after_the_cloud_accepts_a_status_the_report_follows_the_pod_of_the_cloud(
    site: Site, order: str
) -> None:
    site.heard(pod("10.0.0.2"))
    if order == "event first":
        site.apply("pods", "MODIFIED", pod("10.0.0.2", version=20))
    site.reports.ended(PATH, 20)
    assert site.report is not None
    assert site.report.version == 20
    # This event is older than the report: the cloud wrote it while the node was cut off.
    if order == "answer first":
        site.apply("pods", "MODIFIED", pod("10.0.0.1", version=15, ready="False"))
        assert site.report.addresses == ("10.0.0.2",)
    site.apply("pods", "MODIFIED", pod("10.0.0.2", version=21, annotations={"a": "b"}))
    assert site.reports.of("default")["web-0"].version == 20, "a slice needs to know nothing of that"
    site.apply("pods", "MODIFIED", pod("10.0.0.2", version=22, ready="False"))
    last = site.reports.of("default")["web-0"]
    assert (last.version, last.is_ready) == (22, False)


@pytest.mark.parametrize("new", [None, "another"])
async def test_a_deleted_pod_is_no_endpoint_even_while_its_slices_lag(site: Site, new: str | None) -> None:
    site.heard(pod("10.0.0.2"))
    if new is None:
        site.apply("pods", "DELETED", pod("10.0.0.1", version=30))
    else:
        site.apply("pods", "MODIFIED", pod("10.0.0.9", version=30, uid=new))
    site.reports.ended(PATH, 0)
    assert site.report is not None
    assert (site.report.addresses, site.report.version, site.report.uid) == ((), 30, "u")
    site.later(slices(slice_of("10.0.0.1", 29)))
    assert site.report is not None
    site.later(slices(slice_of("10.0.0.9", 31)))
    assert site.report is None


async def test_a_status_that_the_cloud_refuses_is_discarded(site: Site) -> None:
    site.heard(pod("10.0.0.2"))
    site.notified.clear()
    site.reports.ended(PATH, 0)
    assert site.report is None
    assert site.notified == [{REPORT, OF_POD}]
    site.reports.ended(PATH, 40)
    assert site.report is None


async def test_a_report_ends_with_newer_slices_that_lack_the_pod_and_never_by_time(site: Site) -> None:
    site.heard(pod("10.0.0.2"))
    site.later(slices(slice_of("10.0.0.1", 4)))
    assert site.report is not None, "the cloud has not heard it"
    site.reports.ended(PATH, 20)
    assert site.report.concerns(21), "its slices may be written for another pod"
    site.now += FRESH / 2
    site.reports.settle([slices(slice_of("10.0.0.2", 21))])
    assert site.report.is_fresh
    for _ in range(5):
        site.later(slices(slice_of("10.0.0.1", 19)))
    assert site.report is not None, "a slice from before it"
    assert not site.report.concerns(21)
    assert site.report.concerns(19)
    site.notified.clear()
    site.later(slices(slice_of("10.0.0.2", 19)), slices(slice_of("10.0.0.1", 21)))
    assert site.report is None, "one shows it, and the cloud made the other with it"
    assert site.notified == [{REPORT, OF_POD}]


async def test_a_repeated_status_is_unconfirmed_until_the_cloud_accepts_it(site: Site) -> None:
    site.heard(pod("10.0.0.2"))
    site.reports.ended(PATH, 20)
    site.heard(pod("10.0.0.3"))
    site.later()
    assert site.report is not None
    assert (site.report.version, site.report.addresses) == (0, ("10.0.0.3",))


async def test_pods_are_read_from_the_cloud_only_after_kubelets_first_status(site: Site) -> None:
    site.reports.ended(PATH, 3)
    assert site.opens == []
    site.heard(pod("10.0.0.2"))
    site.heard(pod("10.0.0.3"))
    assert len(site.opens) == 1


async def test_a_pod_without_a_report_stays_ready_while_its_node_is_unheard(site: Site) -> None:
    site.reports.left()
    assert site.report is not None
    assert (site.report.addresses, site.report.is_ready, site.report.version) == (("10.0.0.1",), True, 0)
    site.reports.returned()
    assert site.reports.of("default")["web-0"].concerns(21), "slices may come before the pod"
    site.apply("pods", "MODIFIED", marked("10.0.0.1", 20))
    last = site.reports.of("default")["web-0"]
    assert last.is_ready
    assert last.concerns(21)
    site.later(slices(slice_of("10.0.0.1", 21)))
    assert site.report is None


async def test_kubelets_reason_for_an_unready_pod_is_used(site: Site) -> None:
    document = marked("10.0.0.2", 0)
    document["status"]["conditions"][0]["reason"] = "ReadinessGatesNotReady"
    site.heard(document)
    assert site.report is not None
    assert not site.report.is_ready


async def test_a_status_in_an_outage_replaces_the_status_in_the_copy(site: Site) -> None:
    site.reports.left()
    site.heard(pod("10.0.0.2"))
    site.reports.returned()
    assert site.report is not None
    assert (site.report.addresses, site.report.version) == (("10.0.0.2",), 0), "the cloud has not heard it"


async def test_a_copy_that_is_read_late_from_disk_is_used(site: Site) -> None:
    site.source("pods").store.empty()
    site.reports.left()
    assert site.report is None
    site.fill("pods", pod("10.0.0.1", version=5), version=50)
    assert site.report is not None


async def test_pods_are_not_read_on_a_node_whose_kubelet_reads_none(site: Site) -> None:
    site.has_pods = False
    site.reports.left()
    assert (site.opens, site.report) == ([], None)
    site.reports.returned()


async def test_a_second_outage_starts_from_the_copies_again(site: Site) -> None:
    site.reports.left()
    site.reports.returned()
    assert site.reports.of("default")["web-0"].version == 5
    site.reports.left()
    assert site.reports.of("default")["web-0"].version == 0


async def test_a_cluster_restore_discards_reports_confirmed_by_earlier_versions(site: Site) -> None:
    site.heard(pod("10.0.0.2"))
    site.reports.restarted()
    assert site.report is not None, "the cloud has not heard it"
    site.reports.ended(PATH, 20)
    site.fill("pods", pod("10.0.0.2", version=2), version=3)
    assert site.report is None


async def test_a_services_selector_and_publishing_rules_choose_its_pods(site: Site) -> None:
    ports = [
        {"name": "http", "port": 80, "targetPort": 8080},
        {"port": 53, "targetPort": 5353, "protocol": "UDP"},
    ]
    spec: Json = {
        "selector": {"app": "web"},
        "ports": ports,
        "publishNotReadyAddresses": True,
        "ipFamilies": ["IPv6", "IPv4"],
    }
    named = service("db", 2, ports=[{"port": 80, "targetPort": "http"}], clusterIP="10.96.0.1")
    asked = site.inputs.ask()
    assert asked.selection(*WEB) is None
    assert not asked.pending, "without the cloud it may never be known"
    site.fill("services", service("web", 1, **spec), named)
    assert asked.reads & set().union(*site.notified)
    targets = (TargetPort("http", "TCP", 8080), TargetPort("", "UDP", 5353))
    assert site.inputs.ask().selection(*WEB) == Selection({"app": "web"}, True, "IPv6", targets)
    assert site.inputs.ask().selection("default", "db") == Selection({}, False, "IPv4", None)
    assert site.inputs.ask().selection("default", "none") is None
    more: Json = {**spec, "selector": {"app": "api"}}
    assert site.apply("services", "MODIFIED", service("web", 11, **more)) == {(InputKind.SERVICE, WEB)}


def test_a_target_port_is_read_equally_in_json_and_protobuf() -> None:
    found = []
    for encoding in Encoding:
        codec, store = codec_for(encoding), Store()
        api_version, kind, value = codec.decode_single(body("services.single", encoding))
        store.replace(codec, api_version, kind, 1, [value])
        found += [selection_in(item) for item in store]
    assert found[0] == found[1]
    assert found[0].selector


async def test_the_first_slice_is_the_first_by_name_without_foreign_endpoints(site: Site) -> None:
    asked = site.inputs.ask()
    assert asked.first_slice(*WEB, "IPv4", "web-0") is None
    assert not asked.pending, "without the cloud it may never be known"
    site.fill("endpointslices", endpoint_slice("web-2", ["n2"], 2), endpoint_slice("web-1", ["n3"], 1))
    assert asked.reads & set().union(*site.notified)
    assert site.inputs.ask().first_slice(*WEB, "IPv4", "web-0") == "web-1"
    assert site.inputs.ask().first_slice(*WEB, "IPv6", "web-0") is None
    site.source("endpointslices").store.apply("ADDED", raw(slice_of("10.0.0.1", 11)))
    assert site.inputs.ask().first_slice(*WEB, "IPv4", "web-0") is None
