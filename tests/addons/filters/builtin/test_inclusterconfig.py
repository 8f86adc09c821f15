"""inclusterconfig: comments out the kubeconfig line in kube-proxy's ConfigMap."""

from __future__ import annotations

import pytest

from addons.filters.builtin.inclusterconfig import InClusterConfig
from addons.filters.inputs import HubAddress
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Case, apply, named, reasons_of
from tests.addons.filters.support.samples import Sample, World, metadata

CONFIG = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
clientConnection:
  burst: 0
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
clusterCIDR: 10.244.0.0/16
"""


def config_map(text: str | None, name: str = "kube-proxy", namespace: str = "kube-system") -> Sample:
    data = {"kubeconfig.conf": "server: https://cloud:6443"} | ({} if text is None else {"config.conf": text})
    return Sample("v1", "ConfigMap", {"metadata": metadata(name, namespace), "data": data})


CASES = [
    Case("kube-proxy's own", config_map(CONFIG), "changed", "in-cluster"),
    Case("without the line", config_map("mode: ipvs\n"), "kept", "no-kubeconfig"),
    Case("without the key", config_map(None), "kept", "no-kubeconfig"),
    Case("another name", config_map(CONFIG, name="coredns"), "kept", "other-config-map"),
    Case("another namespace", config_map(CONFIG, namespace="default"), "kept", "other-config-map"),
    Case("no address", config_map(CONFIG), "kept", "no-hub-address", World(hub=HubAddress((), 10268))),
]


@pytest.mark.parametrize("case", named(CASES))
def test_only_kube_proxys_config_map_is_changed(encoding: Encoding, case: Case) -> None:
    assert case.check(InClusterConfig(), encoding).asked == []


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(CASES) == InClusterConfig.reasons


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kubeconfig: /x/y.conf", "#kubeconfig: /x/y.conf"),
        ("  kubeconfig: /x/y.conf  ", "  #kubeconfig: /x/y.conf  "),
        ('kubeconfig: ""', '#kubeconfig: ""'),
        ("kubeconfig:", "#kubeconfig:"),
    ],
)
def test_the_kubeconfig_line_is_commented_out(encoding: Encoding, line: str, expected: str) -> None:
    text = f"burst: 0\n{line}\nqps: 1"
    changed = apply(InClusterConfig(), config_map(text), World(), encoding).obj
    data = changed.fields.mapping("data")
    assert data == {
        "kubeconfig.conf": "server: https://cloud:6443",
        "config.conf": f"burst: 0\n{expected}\nqps: 1",
    }


def test_the_note_describes_the_change(encoding: Encoding) -> None:
    notes = apply(InClusterConfig(), config_map(CONFIG), World(), encoding).notes
    why = "its config.conf names a kubeconfig, which is commented out"
    assert notes == [("configmap kube-system/kube-proxy", "changed", why)]
