"""The chart: its output, its refusals, and the plain manifests rendered from it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from addons.install.services.system_services import static_pod
from controllers.registry import CONTROLLERS
from controllers.settings import parse_settings
from kube.option import VERSION
from scripts.building.render import MANIFESTS, render
from tests.deploy.support.charts import CHART, Rendered, template, written

ROOT = Path(__file__).parents[2]
WORKLOADS = (("Deployment", "edgehub-manager"), ("DaemonSet", "edgehub"))
ALL_OFF: dict[str, Any] = {
    "manager": {
        "duties": dict.fromkeys(
            [
                "triggers",
                "serviceGrids",
                "bindings",
                "webhook",
                "autonomy",
                "hubCertificates",
                "podUpdates",
                "nodes",
                "kinds",
            ],
            False,
        ),
        "podDisruptionBudget": {"enabled": False},
        "tolerations": [],
    },
    "hubs": {"rights": False, "readAllNodes": False},
    "policies": dict.fromkeys(
        ["managerConfigMaps", "nodePoolLabel", "nodePoolDeletion", "probeHosts", "rules"], False
    ),
}
ALL_ON: dict[str, Any] = {
    "imagePullSecrets": [{"name": "pull"}],
    "manager": {
        "extraArgs": ["--verbose"],
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {}},
        "webhookClients": "requestheader-client-ca-file",
        "duties": {"nodes": True},
    },
    "rules": {"create": True, "data": {"masterservice": "edge-agent"}},
    "hub": {"enabled": True, "extraArgs": ["--pod-address=auto"], "makesAddress": True},
}


@pytest.mark.parametrize("values", [{}, ALL_OFF, ALL_ON], ids=["default", "all off", "all on"])
def test_helm_lint_reports_nothing(helm: Path, tmp_path: Path, values: dict[str, Any]) -> None:
    done = subprocess.run(
        [helm, "lint", "--strict", "--quiet", CHART, "--values", written(values, tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"manger": {}}, "manger"),
        ({"manager": {"replicas": "two"}}, "replicas"),
        ({"manager": {"duties": {"trigger": False}}}, "trigger"),
        ({"manager": {"image": {"digest": "latest"}}}, "digest"),
        ({"rules": {"data": {"masterservice": ["a"]}}}, "masterservice"),
        ({"hub": {"extraArgs": ["pod-address"]}}, "extraArgs"),
        ({"hub": {"kubeconfig": "kubelet.conf"}}, "kubeconfig"),
        ({"manager": {"serviceMonitor": {"interval": "often"}}}, "interval"),
    ],
)
def test_the_schema_refuses_invalid_values(
    helm: Path, tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        template(helm, values, tmp_path)
    assert "don't meet the specifications of the schema" in refused.value.stderr
    assert message in refused.value.stderr


def test_the_schema_describes_every_value() -> None:
    def without(schema: dict[str, Any], values: dict[str, Any]) -> list[str]:
        """Return the values that the schema does not describe."""
        known = schema.get("properties", {})
        found = [name for name in values if name not in known]
        return found + [
            f"{name}.{each}"
            for name, value in values.items()
            if isinstance(value, dict) and known.get(name, {}).get("properties")
            for each in without(known[name], value)
        ]

    schema = json.loads((CHART / "values.schema.json").read_text())
    assert without(schema, yaml.safe_load((CHART / "values.yaml").read_text())) == []


def test_the_charts_versions_equal_the_products() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_the_plain_manifests_equal_the_rendered_chart(helm: Path) -> None:
    rendered = render(helm)
    kinds = {path.name for path in (CHART / "crds").iterdir()}
    assert {path.name for path in MANIFESTS.glob("*.yaml")} == {*rendered, *kinds}
    differing = [name for name, text in rendered.items() if (MANIFESTS / name).read_text() != text]
    assert not differing, f"scripts/render --write: {differing}"


def test_a_disabled_feature_has_no_permissions_and_no_controllers(helm: Path, tmp_path: Path) -> None:
    rendered = template(helm, ALL_OFF, tmp_path)
    roles = {name for kind, name in rendered if kind in {"ClusterRole", "Role"}}
    assert roles == {"edgehub:manager", "edgehub:pool-scope", "edgehub:fleet"}
    assert not [name for kind, name in rendered if "Policy" in kind or "Webhook" in kind]
    settings = parse_settings(arguments(rendered), list(CONTROLLERS))
    assert settings.webhook.port == 0
    assert settings.controllers == {
        "nodepool",
        "nodeattributes",
        "nodelabels",
        "hubleader",
        "hubleaderconfig",
        "hubleaderrbac",
    }
    all_on = parse_settings(arguments(template(helm, ALL_ON, tmp_path)), list(CONTROLLERS))
    assert all_on.controllers == set(CONTROLLERS)
    assert all_on.verbose


@pytest.mark.parametrize(("version", "has_policies"), [("v1.35.9", False), ("v1.36.0", True)])
def test_endpoints_of_autonomous_nodes_are_preserved_by_a_policy_or_a_webhook(
    helm: Path, tmp_path: Path, version: str, has_policies: bool
) -> None:
    rendered = template(helm, ALL_ON, tmp_path, "kube-system", "--kube-version", version)
    webhooks = rendered["MutatingWebhookConfiguration", "edgehub-configbinding"]["webhooks"]
    assert ("autonomy-endpoints.edgehub.io" in {each["name"] for each in webhooks}) is not has_policies
    assert (("MutatingAdmissionPolicy", "edgehub-autonomy-endpoints") in rendered) is has_policies


def test_another_namespace_is_used_in_every_object(helm: Path, tmp_path: Path) -> None:
    rendered = template(helm, ALL_ON, tmp_path, "edge-system")
    # kube-system has the Role for the API server's client CA and the account of kube-controller-manager; and the
    # webhook excludes both namespaces.
    there = {name for name, each in rendered.items() if "kube-system" in json.dumps(each)}
    assert there == {
        ("RoleBinding", "edgehub:client-ca"),
        ("MutatingWebhookConfiguration", "edgehub-configbinding"),
        ("MutatingAdmissionPolicy", "edgehub-autonomy-endpoints"),
    }
    assert parse_settings(arguments(rendered), list(CONTROLLERS)).namespace == "edge-system"


def test_the_manager_is_scheduled_on_the_control_plane(helm: Path, tmp_path: Path) -> None:
    pod = template(helm, {}, tmp_path)["Deployment", "edgehub-manager"]["spec"]["template"]["spec"]
    tolerated = {(each["key"], each["effect"]) for each in pod["tolerations"]}
    assert tolerated == {("node-role.kubernetes.io/control-plane", "NoSchedule")}
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_client_ca_of_the_webhook_is_the_clusters(helm: Path, tmp_path: Path) -> None:
    rendered = template(helm, ALL_ON, tmp_path)
    pod = rendered["Deployment", "edgehub-manager"]["spec"]["template"]["spec"]
    mounted = {each["name"]: Path(each["mountPath"]) for each in pod["containers"][0]["volumeMounts"]}
    volume = next(each for each in pod["volumes"] if each["name"] == "webhook-clients")
    (item,) = volume["configMap"]["items"]
    file = parse_settings(arguments(rendered), list(CONTROLLERS)).webhook_client_ca
    assert file == mounted["webhook-clients"] / item["path"]
    assert item["key"] == "requestheader-client-ca-file"


def test_an_image_can_be_pinned(helm: Path, tmp_path: Path) -> None:
    digest = f"sha256:{'0' * 64}"
    values = {"manager": {"image": {"repository": "registry.example/manager", "digest": digest}}}
    manager = template(helm, values, tmp_path)["Deployment", "edgehub-manager"]
    container = manager["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"registry.example/manager@{digest}"


def test_one_value_sets_the_registry_of_all_images(helm: Path, tmp_path: Path) -> None:
    rendered = template(helm, {**ALL_ON, "imageRegistry": "registry.example/team/"}, tmp_path)
    pods = (rendered[each]["spec"]["template"]["spec"] for each in WORKLOADS)
    images = [each["containers"][0]["image"] for each in pods]
    assert images == ["registry.example/team/edgehub-manager:0.2.0", "registry.example/team/edgehub:0.2.0"]


def test_the_plain_manifests_name_one_image_once() -> None:
    named = [
        line.strip()
        for path in MANIFESTS.glob("*.yaml")
        for line in path.read_text().splitlines()
        if re.match(r"\s*(- )?image: \S", line)
    ]
    assert named == [f'image: "edgehub-manager:{VERSION}"']


def test_nodes_get_the_hub_image_in_the_values(helm: Path, tmp_path: Path) -> None:
    """The manager gets the image that the policy permits for its Jobs."""

    def manager_arguments(rendered: Rendered) -> list[str]:
        pod = rendered["Deployment", "edgehub-manager"]["spec"]["template"]["spec"]
        found: list[str] = pod["containers"][0]["args"]
        return found

    values = {"imageRegistry": "registry.example/team", "manager": {"duties": {"nodes": True}}}
    rendered = template(helm, values, tmp_path)
    image = "registry.example/team/edgehub:0.2.0"
    assert f"--hub-image={image}" in manager_arguments(rendered)
    policy = rendered["ValidatingAdmissionPolicy", "edgehub-manager-node-jobs"]["spec"]
    assert f"image == '{image}'" in policy["validations"][0]["expression"]
    repository = {each["name"]: each["expression"] for each in policy["variables"]}["repository"]
    assert repository == "'registry.example/team/edgehub:'", "other tags, for the pools' versions"
    assert not any("--hub-image" in each for each in manager_arguments(template(helm, {}, tmp_path)))


def test_each_object_has_helms_recommended_labels(helm: Path, tmp_path: Path) -> None:
    rendered = template(helm, {**ALL_ON, "manager": {"serviceMonitor": {"enabled": True}}}, tmp_path)
    wanted = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "edgehub-0.2.0"}
    assert [
        key
        for key, each in rendered.items()
        if not wanted.items() <= each["metadata"]["labels"].items()
        or not each["metadata"]["labels"].get("app.kubernetes.io/name", "").startswith("edgehub")
    ] == []
    for workload in WORKLOADS:
        labels = rendered[workload]["spec"]["template"]["metadata"]["labels"]
        assert (
            labels["app.kubernetes.io/instance"]
            == rendered[workload]["metadata"]["labels"]["app.kubernetes.io/instance"]
        )
    assert rendered["ServiceMonitor", "edgehub-manager"]["spec"]["endpoints"][0]["port"] == "admin"
    service = rendered["Service", "edgehub-manager-metrics"]
    manager = rendered["Deployment", "edgehub-manager"]["spec"]["template"]
    assert service["spec"]["selector"].items() <= manager["metadata"]["labels"].items()


def test_pods_have_the_labels_and_annotations_in_the_values(helm: Path, tmp_path: Path) -> None:
    given = {"podLabels": {"team": "edge"}, "podAnnotations": {"note": "a: b"}}
    values = {"manager": given, "hub": {"enabled": True, **given}}
    rendered = template(helm, values, tmp_path)
    for workload in WORKLOADS:
        spec = rendered[workload]["spec"]
        metadata = spec["template"]["metadata"]
        assert metadata["annotations"] == {"note": "a: b"}
        assert metadata["labels"].items() >= {**spec["selector"]["matchLabels"], "team": "edge"}.items()


def test_the_charts_hub_equals_that_of_the_static_pod(helm: Path, tmp_path: Path) -> None:
    daemons = template(helm, ALL_ON, tmp_path)["DaemonSet", "edgehub"]["spec"]["template"]["spec"]
    kubeconfig = "/etc/kubernetes/kubelet.conf"
    admin = ("127.0.0.1", 10267)
    static = json.loads(static_pod("edgehub:0.2.0", [], kubeconfig, admin, makes_address=True))["spec"]
    of_chart, of_file = daemons["containers"][0], static["containers"][0]
    for field in ("command", "securityContext", "livenessProbe", "resources", "image"):
        assert of_chart[field] == of_file[field], field
    mounts = [
        {each["mountPath"]: each.get("readOnly", False) for each in it["volumeMounts"]}
        for it in (of_chart, of_file)
    ]
    assert mounts[0] == mounts[1]
    assert [daemons[field] for field in ("hostNetwork", "priorityClassName")] == [
        static[field] for field in ("hostNetwork", "priorityClassName")
    ]
    environment = {each["name"]: each.get("value") for each in of_chart["env"]}
    assert environment.items() >= {each["name"]: each["value"] for each in of_file["env"]}.items()


def arguments(rendered: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    """Return the manager's command line, without its program."""
    pod = rendered["Deployment", "edgehub-manager"]["spec"]["template"]["spec"]
    return list(pod["containers"][0]["args"])
