"""discardcloudservice: OpenYurt's old and new annotations, load balancers and the Services that it names."""

from __future__ import annotations

import pytest

from addons.filters.builtin.discardcloudservice import DISCARD, SKIP_DISCARD, DiscardCloudService
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Case, apply, named, reasons_of
from tests.addons.filters.support.samples import Sample, World, service


def balancer(**annotations: str) -> Sample:
    spelled = {SKIP_DISCARD if key == "skip" else DISCARD: value for key, value in annotations.items()}
    return service(annotations=spelled, type="LoadBalancer")


def tunnel(annotations: dict[str, str] | None = None, namespace: str = "kube-system") -> Sample:
    return service("x-tunnel-server-internal-svc", namespace, annotations, type="ClusterIP")


CASES = [
    Case("a load balancer", balancer(), "dropped", "load-balancer"),
    Case("kept by the older annotation", balancer(skip="true"), "kept", "skip-annotation"),
    Case("kept by the newer annotation", balancer(discard="false"), "kept", "skip-annotation"),
    Case("only true skips", balancer(skip="True"), "dropped", "load-balancer"),
    Case("only false keeps", balancer(discard="no"), "dropped", "load-balancer"),
    Case("discard goes before skip", balancer(skip="true", discard="true"), "dropped", "discard-annotation"),
    Case(
        "any Service can be discarded",
        service(annotations={DISCARD: "true"}),
        "dropped",
        "discard-annotation",
    ),
    Case("the tunnel's Service", tunnel(), "dropped", "cloud-only"),
    Case("the tunnel's, kept", tunnel({SKIP_DISCARD: "true"}), "kept", "skip-annotation"),
    Case("the tunnel's, kept the newer way", tunnel({DISCARD: "false"}), "kept", "skip-annotation"),
    Case("its name elsewhere", tunnel(namespace="default"), "kept", "edge-service"),
    Case("a ClusterIP", service(type="ClusterIP"), "kept", "edge-service"),
    Case("a NodePort", service(type="NodePort"), "kept", "edge-service"),
    Case("no type", service(), "kept", "edge-service"),
]


@pytest.mark.parametrize("case", named(CASES))
def test_services_that_only_the_cloud_can_serve_are_dropped(encoding: Encoding, case: Case) -> None:
    assert case.check(DiscardCloudService(), encoding).asked == []


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(CASES) == DiscardCloudService.reasons


@pytest.mark.parametrize(
    ("sample", "outcome", "why"),
    [
        (balancer(), "dropped", f"its type is LoadBalancer, without {SKIP_DISCARD}=true or {DISCARD}=false"),
        (balancer(skip="true"), "kept", f"it has {SKIP_DISCARD}=true"),
        (balancer(discard="true"), "dropped", f"it has {DISCARD}=true"),
        (service(type="ClusterIP"), "kept", "its type is ClusterIP"),
        (service(), "kept", "its type is not given"),
    ],
)
def test_the_note_names_the_type_or_annotation_that_decides(
    encoding: Encoding, sample: Sample, outcome: str, why: str
) -> None:
    assert apply(DiscardCloudService(), sample, World(), encoding).notes == [
        ("service default/web", outcome, why)
    ]
