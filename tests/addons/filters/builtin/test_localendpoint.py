"""localendpoint: the address from SuperEdge's annotations or from the hub's option, which has precedence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.builtin.localendpoint import ADDRESS, PORT, LocalEndpoint, parse_local_endpoint
from addons.filters.inputs import HubAddress
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Case, apply, named, reasons_of
from tests.addons.filters.support.samples import (
    Sample,
    World,
    addresses_of,
    endpoint,
    endpoint_slice,
    endpoints,
    subset,
)

LOCAL = {ADDRESS: "169.254.20.11", PORT: "51003"}
LOCAL_V6 = {ADDRESS: "fd00::20:11", PORT: "51003"}
CLOUD = subset({"192.0.2.1": None}, {"192.0.2.2": "master-2"})
HTTPS = {"name": "https", "protocol": "TCP", "port": 51003}


def object_(annotations: dict[str, str] | None, *subsets: dict[str, Any]) -> Sample:
    return endpoints(*subsets or (CLOUD, CLOUD), name="kubernetes", annotations=annotations)


def slice_(annotations: dict[str, str] | None, **more: Any) -> Sample:
    given = {"name": "kubernetes", "service_name": "kubernetes", "annotations": annotations} | more
    return endpoint_slice([endpoint("192.0.2.1", None), endpoint("192.0.2.2", "master-2")], **given)


DONE = {"ports": [HTTPS], "addresses": [{"ip": "169.254.20.11"}]}
DONE_SLICE = endpoint_slice(
    [endpoint("169.254.20.11", None, ready=None)],
    "kubernetes",
    "kubernetes",
    annotations=LOCAL,
    ports=[HTTPS],
)

CASES = [
    Case("endpoints", object_(LOCAL), "changed", "local-address"),
    Case("a slice", slice_(LOCAL), "changed", "local-address"),
    Case("a v1beta1 slice", slice_(LOCAL, version="v1beta1"), "changed", "local-address"),
    Case(
        "the other family's slice",
        slice_(LOCAL_V6, name="kubernetes-v6", family="IPv6"),
        "changed",
        "local-address",
    ),
    Case(
        "endpoints without addresses",
        endpoints(name="kubernetes", annotations=LOCAL),
        "changed",
        "local-address",
    ),
    Case("local already", object_(LOCAL, DONE), "kept", "local-address"),
    Case("a slice that is local already", DONE_SLICE, "kept", "local-address"),
    Case("an address of another family", object_(LOCAL_V6), "kept", "other-family"),
    Case("a slice of another family", slice_(LOCAL, family="IPv6"), "kept", "other-family"),
    Case("no annotation", object_(None), "kept", "no-local-endpoint"),
    Case("only one annotation", slice_({ADDRESS: "169.254.20.11"}), "kept", "no-local-endpoint"),
    Case("an address that is none", object_(LOCAL | {ADDRESS: "localhost"}), "kept", "bad-local-endpoint"),
    Case("a port that is none", slice_(LOCAL | {PORT: "https"}), "kept", "bad-local-endpoint"),
    Case("another Service's", endpoints(CLOUD, annotations=LOCAL), "kept", "other-service"),
    Case(
        "another Service's slice", slice_(LOCAL, name="web-abc", service_name="web"), "kept", "other-service"
    ),
]


@pytest.mark.parametrize("case", named(CASES))
def test_only_endpoints_of_the_kubernetes_service_are_changed(encoding: Encoding, case: Case) -> None:
    assert case.check(LocalEndpoint(), encoding).asked == []


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(CASES) == LocalEndpoint.reasons


def test_endpoints_are_reduced_to_one_subset_with_the_local_address(encoding: Encoding) -> None:
    changed = apply(LocalEndpoint(), object_(LOCAL), World(), encoding).obj
    assert addresses_of(changed) == ["169.254.20.11"]
    (only,) = changed.fields.children("subsets")
    assert [(p.text("name"), p.text("protocol"), p.number("port")) for p in only.children("ports")] == [
        ("https", "TCP", 51003)
    ]


@pytest.mark.parametrize(
    ("sample", "address"),
    [
        (object_(None), "169.254.2.1"),
        (object_(LOCAL), "169.254.2.1"),
        (endpoints(subset({}, {"2001:db8::1": None}), name="kubernetes"), "fd00::2:1"),
        (endpoints(name="kubernetes"), "169.254.2.1"),
        (slice_(None), "169.254.2.1"),
        (slice_(None, family="IPv6"), "fd00::2:1"),
    ],
)
def test_the_option_of_the_hub_overrides_the_annotations(
    encoding: Encoding, sample: Sample, address: str
) -> None:
    option = HubAddress(("169.254.2.1", "fd00::2:1"), 10268)
    applied = apply(LocalEndpoint(option), sample, World(), encoding)
    assert applied.said() == ("changed", "local-address")
    assert addresses_of(applied.obj) == [address]


def test_the_note_names_the_source_of_the_address(encoding: Encoding) -> None:
    notes = apply(LocalEndpoint(), slice_(LOCAL), World(), encoding).notes
    assert notes == [("EndpointSlice default/kubernetes", "changed", "points at 169.254.20.11 port 51003")]


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        *(
            (LOCAL | {PORT: port}, "must be a port number")
            for port in ("", "0", "-1", "65536", "1e3", "٤٤٣", "9" * 9)
        ),
        *((LOCAL | {ADDRESS: ip}, "IPv4 or IPv6") for ip in ("", "localhost", "10.0.0.256", "10.0.0.1:443")),
        (LOCAL | {ADDRESS: "fe80::1%eth0"}, "without a zone"),
    ],
)
def test_malformed_annotations_are_refused(annotations: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_local_endpoint(annotations)


@given(st.fixed_dictionaries({ADDRESS: st.text(), PORT: st.text()}))
def test_any_annotation_is_parsed_or_raises_a_value_error(annotations: dict[str, str]) -> None:
    try:
        found = parse_local_endpoint(annotations)
    except ValueError:
        return
    assert found is not None
    assert 0 < found.port < 65536
