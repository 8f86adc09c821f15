"""The admission policy and the parser accept the same edits, on a real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addons.filters.chain import build_filters
from addons.rules.admission_policy import NAMESPACE, manifest, policy
from addons.rules.table import MAX_VALUE_BYTES, parse_rules
from kube.json_type import Json
from tests.cloud.real import RealCloud
from tests.support.polling import eventually

FILTERS = build_filters(health=True)
HERE = "rules-admission"
"""The test's own namespace: other tests may write invalid rules."""
MAPS = f"/api/v1/namespaces/{HERE}/configmaps"

type Edit = Callable[[dict[str, str]], tuple[int, str]]
"""Status and message of a ConfigMap with these data, which is not kept."""


def test_the_manifest_is_generated_from_the_filters() -> None:
    file = Path(__file__).parents[3] / "configmaps" / "rules-admission.yaml"
    assert file.read_text() == manifest(), (
        "run `python -m addons.rules.admission_policy > configmaps/rules-admission.yaml`"
    )
    assert policy(FILTERS)[0]["spec"]["matchConstraints"]["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": NAMESPACE
    }


@pytest.fixture(scope="module")
def edit(real_cloud: RealCloud) -> Iterator[Edit]:
    """Return a function that edits the rules under the shipped policy in another namespace, once it is enforced."""
    made: list[Any] = policy(FILTERS)
    constraints = made[0]["spec"]["matchConstraints"]
    constraints["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] = HERE
    real_cloud.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HERE}}, *made])

    def dry_run(data: dict[str, str]) -> tuple[int, str]:
        body: Json = {"metadata": {"name": "yurt-hub-cfg", "namespace": HERE}, "data": data}
        answer = real_cloud.admin.request("POST", f"{MAPS}?dryRun=All", body=body)
        return answer.status, "" if answer.status == 201 else answer.json()["message"]

    eventually(lambda: dry_run({"filter_nonsense": "x"})[0] != 201, "the policy is in force")
    yield dry_run
    for each in made:
        plural = "validatingadmissionpolic" + ("ies" if each["kind"].endswith("Policy") else "ybindings")
        real_cloud.admin.delete(f"/apis/admissionregistration.k8s.io/v1/{plural}/{each['metadata']['name']}")


BAD = [
    ({"servicetopolgy": "a"}, "key servicetopolgy: there is no such key; did you mean servicetopology?"),
    ({"filter_servictopology": "a"}, "did you mean filter_servicetopology?"),
    ({"ServiceTopology": "a"}, "did you mean servicetopology?"),
    ({"service-topology": "a"}, "did you mean servicetopology?"),
    ({"filter_cache_agents": "a"}, "did you mean cache_agents?"),
    ({"cacheagents": "a"}, "did you mean cache_agents?"),
    ({"masterservices": "a"}, "did you mean masterservice?"),
    ({"servicetopology": "- kube-proxy"}, '"- kube-proxy" is not right'),
    ({"cache_agents": "- kube-proxy"}, '"- kube-proxy" is not right'),
    ({"filter_nonsense": "kubelet/pods"}, "key filter_nonsense: there is no such filter; the filters are"),
    ({"servicetopology": "ok, a:b, c"}, 'key servicetopology: "a:b" is not right: write component'),
    (
        {"filter_servicetopology": "x/pods"},
        "resources: endpoints, endpointslices, endpointslices.discovery.k8s.io",
    ),
    ({"filter_endpoints": "x/endpoints#list;shout"}, 'x/endpoints#list;shout" is not right'),
    ({"endpoints": "x/endpoints#"}, "verbs: get, list, watch"),
    ({"endpoints": "x#list"}, "is not right"),
    ({"endpoints": "x/"}, "is not right"),
    ({"endpoints": "list"}, "is not right"),
    ({"endpoints": "-"}, "is not right"),
    ({"endpoints": ".."}, "is not right"),
    ({"endpoints": "Edgehub"}, "is not right"),
    ({"endpoints": "edgehub/endpoints"}, "is not right"),
    ({"endpoints": "x" * 65}, "is not right"),
    ({"endpoints": "\u212aubelet"}, "is not right"),
    ({"endpoints": "a\nb"}, '"a b" is not right'),
    ({"cache_agents": "a/b"}, 'key cache_agents: "a/b" is not right: write components'),
    ({"cache_agents": "edgehub"}, "is not right"),
    (
        {"offline_leases": "kube-system/a, web"},
        'key offline_leases: "web" is not right: write namespace/name',
    ),
    ({"offline_leases": "Shop/web"}, "is not right"),
    ({"offline_leases": "a/b/c"}, "is not right"),
    ({"pool_resources": "/v1/nodes, nodes"}, '"nodes" is not right: write group/version/resource'),
    ({"pool_resources": "/v1/secrets"}, "secrets are never shared"),
    ({"cache_agents": "x" * 500}, f'"{"x" * 128}" is not right'),
    ({"endpoints": "x," * (MAX_VALUE_BYTES // 2 + 1)}, f"longer than {MAX_VALUE_BYTES} bytes"),
]


@pytest.mark.real
@pytest.mark.parametrize(
    "data",
    [
        {},
        {"servicetopology": "", "filter_endpoints": " , ,"},
        {
            "servicetopology": "envoy, -coredns,*",
            "filter_servicetopology": "*/endpointslices#list;watch;get, -kubectl",
        },
        {"filter_servicetopology": "a/endpointslices.discovery.k8s.io # ;list; ;watch;,b/ * ,c/endpoints"},
        {"masterservice": "-kubelet/services#get,\n  x-y_z.1/services"},
        {"cache_agents": "*, -kubectl, a\n"},
        {
            "cache_agents": "unknown, Kubernetes Java  Client, -a b",
            "endpoints": "kubernetes java client/endpoints#list",
        },
        {"offline_leases": "kube-system/a, shop/web.leader,,\n x/y-1"},
        {"pool_resources": "/v1/nodes, networking.k8s.io/v1/networkpolicies,,\n example.com/v1alpha1/things"},
        {"localhealth": "kube-proxy"},
        {"somebody-elses": "any thing # at / all", "another": "a,b/c#d"},
        {"endpoints": "GET, list/endpoints"},
        {"filter_acme-canary": "kube-proxy, a b"},
    ],
    ids=str,
)
def test_a_valid_configmap_passes_the_policy(edit: Edit, data: dict[str, str]) -> None:
    assert edit(data) == (201, "")
    foreign = {"somebody-elses", "another", "localhealth", "filter_acme-canary"}
    assert parse_rules({key: text for key, text in data.items() if key not in foreign}).problems.named == ()


@pytest.mark.real
@pytest.mark.parametrize(("data", "refusal"), BAD, ids=[str(data)[:40] for data, _ in BAD])
def test_an_invalid_configmap_is_refused_with_the_entry_and_the_remedy(
    edit: Edit, data: dict[str, str], refusal: str
) -> None:
    status, message = edit(data)
    assert status == 422
    assert refusal in message
    assert parse_rules(data).problems.named != ()


ATOMS = [
    *("kubelet", "*", "-", "/", "#", ";", ",", " ", "\t", "\n", "\u00a0", "\u2003", "\x0b", ".", "edgehub"),
    *("endpoints", "endpointslices", "endpointslices.discovery.k8s.io", "services", "get", "list", "watch"),
    *("GET", "a.b-c", "x" * 64, "é", "\u212a"),
]


@pytest.mark.real
@given(
    st.sampled_from(["servicetopology", "filter_endpoints", "cache_agents"]),
    st.lists(st.sampled_from(ATOMS), max_size=9).map("".join),
)
@settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_policy_and_the_parser_agree(edit: Edit, key: str, text: str) -> None:
    status, message = edit({key: text})
    assert (status == 201) == (not parse_rules({key: text}).problems.named), message


@pytest.mark.real
def test_an_update_without_data_changes_passes_the_policy(edit: Edit, real_cloud: RealCloud) -> None:
    """The policy is renamed to match the ConfigMap only after it was invalid; an update must not be refused for
    that."""
    real_cloud.admin.request("DELETE", f"{MAPS}/yurt-hub-cfg")
    made = real_cloud.admin.post(MAPS, {"metadata": {"name": "yurt-hub-cfg"}, "data": {"endpoints": "x"}})
    made["metadata"]["labels"] = {"a": "b"}
    made = real_cloud.admin.put(f"{MAPS}/yurt-hub-cfg", made)
    made["data"] = {"endpoints": "x:y"}
    assert real_cloud.admin.request("PUT", f"{MAPS}/yurt-hub-cfg", body=made).status == 422
    assert edit({"other": "x"})[0] == 409, "it is there"
    real_cloud.admin.delete(f"{MAPS}/yurt-hub-cfg")
