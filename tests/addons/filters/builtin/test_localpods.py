"""localpods: endpoints of this node's pods follow kubelet's reports until the cloud's copy is newer than the report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from addons.filters.builtin.localpods import LocalPods
from addons.filters.builtin.pruning import MAX_ENDPOINTS
from addons.filters.chain import FILTERS, apply_chain
from addons.filters.inputs import PodReport, Selection, TargetPort
from kube.wire.api_objects import ApiObject
from kube.wire.encoding import Encoding
from kube.wire.fields import Fields
from tests.addons.filters.support.checks import Case, named, reasons_of
from tests.addons.filters.support.samples import WEB as SERVICE
from tests.addons.filters.support.samples import (
    Content,
    Sample,
    World,
    addresses_of,
    decode_again,
    endpoint,
    endpoint_slice,
    endpoints,
)

PORT = {"name": "http", "protocol": "TCP", "port": 8080}
WEB = Selection({"app": "web"}, ports=(TargetPort("http", "TCP", 8080),))
NAMED = Selection({"app": "web"}, ports=None)


def report(
    *addresses: str, name: str = "web-0", ready: bool = True, terminating: bool = False, **more: Any
) -> PodReport:
    more = {"labels": {"app": "web", "tier": "front"}, **more}
    return PodReport(
        name, f"uid of {name}", more.pop("labels"), addresses, ready, terminating, "12:03", **more
    )


def world(*reports: PodReport, selection: Selection = WEB, slices: dict[str, str] | None = None) -> World:
    first = {(*SERVICE, "IPv4", pod): name for pod, name in (slices or {}).items()}
    return World(pod_statuses={"default": list(reports)}, selections={SERVICE: selection}, first_slices=first)


def of_pod(
    address: str, name: str = "web-0", ready: bool = True, uid: str | None = None, **more: object
) -> Content:
    """Return an endpoint as the cloud writes it for a pod of this node."""
    target = {"kind": "Pod", "namespace": "default", "name": name, "uid": uid or f"uid of {name}"}
    conditions = {"ready": ready, "serving": ready, "terminating": False}
    return endpoint(address, "n1") | {"conditions": conditions, "targetRef": target} | more


def at(address: str, name: str = "web-0", hostname: str = "") -> Content:
    """Return an address of Endpoints."""
    target = {"kind": "Pod", "namespace": "default", "name": name, "uid": f"uid of {name}"}
    return {"ip": address, "nodeName": "n1", "targetRef": target} | (
        {"hostname": hostname} if hostname else {}
    )


def listed(ready: list[Content], not_ready: list[Content] | None = None) -> Sample:
    found = {"ports": [PORT], "addresses": ready, "notReadyAddresses": not_ready or []}
    return endpoints({name: each for name, each in found.items() if each})


ELSEWHERE = endpoint("10.0.9.9", "n2")
OLD = endpoint_slice([of_pod("10.0.0.1"), ELSEWHERE])
RECREATED = endpoint_slice([of_pod("10.0.0.1", uid="another"), ELSEWHERE])
NEW = report("10.0.0.2")


def shown(obj: ApiObject) -> list[tuple[str, bool | None, bool | None, bool | None]]:
    """Return each endpoint of a slice with its conditions."""

    def flags(endpoint: Fields) -> tuple[bool | None, bool | None, bool | None]:
        conditions = endpoint.child("conditions")
        return conditions.flag("ready"), conditions.flag("serving"), conditions.flag("terminating")

    return [(each.texts("addresses")[0], *flags(each)) for each in obj.fields.children("endpoints")]


UP, DOWN, LEAVING = (True, True, False), (False, False, False), (False, True, True)
CHANGED = [
    ("another address", OLD, world(NEW), [("10.0.0.2", *UP)]),
    ("not ready", OLD, world(report("10.0.0.1", ready=False)), [("10.0.0.1", *DOWN)]),
    ("terminating", OLD, world(report("10.0.0.1", terminating=True)), [("10.0.0.1", *LEAVING)]),
    (
        "not ready, and shown as ready",
        OLD,
        world(report("10.0.0.1", ready=False), selection=Selection({"app": "web"}, shows_unready=True)),
        [("10.0.0.1", True, False, False)],
    ),
    (
        "ready, and the cloud has deleted it",
        endpoint_slice([of_pod("10.0.0.1", conditions={"ready": False, "terminating": True}), ELSEWHERE]),
        world(NEW),
        [("10.0.0.2", *LEAVING)],
    ),
    ("ended", OLD, world(report()), []),
    ("of another family now", OLD, world(report("fd00::1")), []),
    ("two families", OLD, world(report("fd00::1", "10.0.0.2")), [("10.0.0.2", *UP)]),
    (
        "a later version of the pod",
        OLD,
        world(report("10.0.0.2", version=8, is_fresh=False)),
        [("10.0.0.2", *UP)],
    ),
    ("written without it moments ago", OLD, world(report("10.0.0.2", version=5)), [("10.0.0.2", *UP)]),
]
UNCHANGED = [
    Case("no word", OLD, "kept", "no-word"),
    Case("a word in another namespace", OLD, "kept", "no-word", World(pod_statuses={"other": [NEW]})),
    Case(
        "a word of another pod", OLD, "kept", "same-word", world(report("10.0.0.2", name="db-0", labels={}))
    ),
    Case("what the cloud says, too", OLD, "kept", "same-word", world(report("10.0.0.1"))),
    Case("of a pod of another uid", RECREATED, "kept", "same-word", world(NEW)),
    Case("caught up", OLD, "kept", "same-word", world(report("10.0.0.2", version=7, is_fresh=False))),
    Case("no Pod", endpoint_slice([endpoint("10.0.0.1", "n1")]), "kept", "same-word", world(NEW)),
    Case(
        "many endpoints",
        endpoint_slice([ELSEWHERE] * (MAX_ENDPOINTS + 1)),
        "kept",
        "too-many-endpoints",
        world(NEW),
    ),
]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(("name", "sample", "seen", "expected"), CHANGED, ids=[each[0] for each in CHANGED])
def test_an_endpoint_slice_follows_kubelets_report(
    name: str, sample: Sample, seen: World, expected: list[object], version: str, encoding: Encoding
) -> None:
    sample = Sample(f"discovery.k8s.io/{version}", sample.kind, sample.content)
    applied = Case(name, sample, "changed", "kubelets-word", seen).check(LocalPods(), encoding)
    assert shown(applied.obj) == [*expected, ("10.0.9.9", True, None, None)]
    (note,) = applied.notes
    assert note[2].startswith("by kubelet's status, since 12:03: pod web-0 is ")


@pytest.mark.parametrize("case", named(UNCHANGED))
def test_objects_without_a_local_report_stay(case: Case, encoding: Encoding) -> None:
    case.check(LocalPods(), encoding)


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(UNCHANGED) | {"kubelets-word"} == LocalPods.reasons


FIRST = {"web-0": "web-abc"}


@pytest.mark.parametrize(
    ("sample", "seen", "found"),
    [
        (endpoint_slice([ELSEWHERE]), world(NEW, slices=FIRST), ["10.0.9.9", "10.0.0.2"]),
        (endpoint_slice([], ports=[]), world(NEW, slices=FIRST), ["10.0.0.2"]),
        (endpoint_slice([ELSEWHERE]), world(NEW, slices=FIRST, selection=NAMED), ["10.0.9.9", "10.0.0.2"]),
        # Another slice already names the pod; another slice is the first; the slices are unknown.
        (endpoint_slice([ELSEWHERE]), world(NEW), None),
        (endpoint_slice([ELSEWHERE]), world(NEW, slices={"web-0": "web-aaa"}), None),
        (endpoint_slice([], ports=[]), world(NEW, slices=FIRST, selection=NAMED), None),
        (endpoint_slice([], family="IPv6"), world(NEW, slices=FIRST), None),
        (endpoint_slice([]), world(report(), slices=FIRST), None),
        (endpoint_slice([]), world(NEW, slices=FIRST, selection=Selection({"app": "db"})), None),
        (endpoint_slice([]), world(NEW, slices=FIRST, selection=Selection()), None),
        (endpoint_slice([]), world(report("10.0.0.2", version=6, is_fresh=False), slices=FIRST), None),
        (endpoint_slice([], service_name=None), world(NEW, slices=FIRST), None),
    ],
)
def test_a_new_pod_is_added_to_the_slice_of_the_service_that_selects_it(
    sample: Sample, seen: World, found: list[str] | None, encoding: Encoding
) -> None:
    outcome = ("kept", "same-word") if found is None else ("changed", "kubelets-word")
    applied = Case("new", sample, *outcome, seen).check(LocalPods(), encoding)
    if found is None:
        return
    assert addresses_of(applied.obj) == found
    added = applied.obj.fields.children("endpoints")[-1]
    assert (added.text("nodeName"), added.child("targetRef").text("uid")) == ("n1", "uid of web-0")
    ports = applied.obj.fields.children("ports")
    assert [(each.text("name"), each.text("protocol"), each.number("port")) for each in ports] == [
        ("http", "TCP", 8080)
    ]


OF_N2 = endpoint_slice([of_pod("10.0.0.1", nodeName="n2")])
LIE = report("10.6.6.6", node="n3")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_an_endpoint_of_another_node_follows_that_nodes_kubelet(version: str, encoding: Encoding) -> None:
    made = of_pod("10.0.0.1", nodeName="n2")
    if version == "v1beta1":
        made["topology"] = {"kubernetes.io/hostname": made.pop("nodeName")}
    sample = Sample(f"discovery.k8s.io/{version}", OF_N2.kind, OF_N2.content | {"endpoints": [made]})
    seen = world(LIE, report("10.0.0.2", node="n2"))
    applied = Case("another node's", sample, "changed", "kubelets-word", seen).check(LocalPods(), encoding)
    assert shown(applied.obj) == [("10.0.0.2", *UP)]
    assert applied.notes[0][2] == "by node n2's kubelet, since 12:03: pod web-0 is ready at 10.0.0.2"
    assert {each.node for each in seen.refused} == {"n3"}


@pytest.mark.parametrize(
    ("sample", "said", "is_refused"),
    [
        (OF_N2, LIE, True),
        (OF_N2, report(node="n3"), True),
        (OLD, LIE, True),
        (listed([at("10.0.0.1")]), LIE, True),
        # The report is about an earlier or a later pod of this name: the cloud's endpoint of the current pod stays.
        (RECREATED, LIE, False),
        (listed([at("10.0.0.1") | {"targetRef": {"kind": "Pod", "name": "web-0", "uid": "x"}}]), LIE, False),
    ],
)
def test_a_report_about_another_nodes_pod_is_refused(
    sample: Sample, said: PodReport, is_refused: bool, encoding: Encoding
) -> None:
    seen = world(said)
    Case("a lie", sample, "kept", "same-word", seen).check(LocalPods(), encoding)
    assert bool(seen.refused) is is_refused


@pytest.mark.parametrize("sample", [endpoint_slice([ELSEWHERE]), listed([at("10.0.9.9", "db-0")])])
def test_a_new_pod_reported_by_another_node_is_added_with_that_node(
    sample: Sample, encoding: Encoding
) -> None:
    seen = world(report("10.0.0.2", node="n2"), slices={"web-0": "web-abc"})
    applied = Case("new", sample, "changed", "kubelets-word", seen).check(LocalPods(), encoding)
    fields = applied.obj.fields
    owner = fields if applied.obj.kind == "EndpointSlice" else fields.children("subsets")[0]
    added = owner.children("endpoints" if applied.obj.kind == "EndpointSlice" else "addresses")[-1]
    assert (added.text("nodeName"), added.child("targetRef").text("name")) == ("n2", "web-0")


@pytest.mark.parametrize(
    ("sample", "seen", "expected"),
    [
        (listed([at("10.0.0.1"), at("10.0.0.3", "db")]), world(NEW), [(["10.0.0.2", "10.0.0.3"], [])]),
        (
            listed([at("10.0.0.1", hostname="a")]),
            world(report("10.0.0.2", ready=False)),
            [([], ["10.0.0.2"])],
        ),
        (listed([at("10.0.0.3", "db")], [at("10.0.0.1")]), world(NEW), [(["10.0.0.3", "10.0.0.2"], [])]),
        (listed([at("10.0.0.1")]), world(report()), []),
        (listed([at("10.0.0.1")]), world(report("10.0.0.1", terminating=True)), []),
        (
            listed([at("10.0.0.1")]),
            world(report("10.0.0.2", ready=False, terminating=True), selection=Selection(shows_unready=True)),
            [(["10.0.0.2"], [])],
        ),
        (endpoints(), world(NEW), [(["10.0.0.2"], [])]),
        (endpoints(), world(report("10.0.0.2", ready=False)), [([], ["10.0.0.2"])]),
        (listed([at("10.0.0.3", "db")]), world(NEW), [(["10.0.0.3", "10.0.0.2"], [])]),
        (endpoints(), world(NEW, selection=NAMED), None),
        (endpoints(), world(report("fd00::1")), None),
        (endpoints(), world(report("10.0.0.2", terminating=True)), None),
    ],
)
def test_endpoints_follow_kubelets_report(
    sample: Sample, seen: World, expected: list[object] | None, encoding: Encoding
) -> None:
    def lists(obj: ApiObject) -> list[tuple[list[str], list[str]]]:
        def ips(subset: Fields, name: str) -> list[str]:
            return [each.text("ip") for each in subset.children(name)]

        subsets = obj.fields.children("subsets")
        return [(ips(each, "addresses"), ips(each, "notReadyAddresses")) for each in subsets]

    outcome = ("kept", "same-word") if expected is None else ("changed", "kubelets-word")
    applied = Case("endpoints", sample, *outcome, seen).check(LocalPods(), encoding)
    if expected is not None:
        assert lists(applied.obj) == expected
        subsets = applied.obj.fields.children("subsets")
        assert all(each.children("ports")[0].number("port") == 8080 for each in subsets)


def test_an_address_that_changes_retains_its_host_name(encoding: Encoding) -> None:
    sample, seen = listed([at("10.0.0.1", hostname="a")]), world(report("10.0.0.2", ready=False))
    applied = Case("moved", sample, "changed", "kubelets-word", seen).check(LocalPods(), encoding)
    (moved,) = applied.obj.fields.children("subsets")[0].children("notReadyAddresses")
    assert (moved.text("hostname"), moved.text("nodeName")) == ("a", "n1")
    assert moved.child("targetRef").text("name") == "web-0"


def test_a_reported_address_passes_topology_and_health_filters_too(encoding: Encoding) -> None:
    on_this_node = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}
    seen = replace(world(NEW, slices=FIRST), services={SERVICE: on_this_node})
    obj = endpoint_slice([ELSEWHERE]).build(encoding)
    chain = [each for name in ("localpods", "servicetopology") for each in FILTERS if each.name == name]
    apply_chain(chain, obj, seen)
    assert addresses_of(decode_again(obj)) == ["10.0.0.2"]
