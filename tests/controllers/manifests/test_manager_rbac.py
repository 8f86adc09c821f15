"""Limits of the manager's account, and permissions of an earlier version that the manifests remove."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from controllers.cluster.jobs import job_name
from controllers.cluster.kinds import Pod
from controllers.updates.daemon_sets import DaemonSet
from controllers.updates.image_puller import PREFIX, image_job
from kube.json_type import Json
from tests.cloud.rest import MERGE_PATCH, RestClient
from tests.cloud.rights import role, rule
from tests.controllers.conftest import MANIFESTS, StartManager
from tests.controllers.support.scene import ACCOUNT, CLUSTER_ROLES, CONFIG_MAPS, NODES, Scene

pytestmark = [pytest.mark.real]

MERGE = {"Content-Type": MERGE_PATCH}


@pytest.fixture
def account_client(scene: Scene) -> RestClient:
    return scene.cloud.client(token=scene.cloud.token("kube-system", "edgehub-manager"))


def patch(client: RestClient, path: str, body: Json) -> int:
    return client.request("PATCH", path, body=body, headers=MERGE).status


def test_the_manager_cannot_grant_hubs_permissions(scene: Scene, account_client: RestClient) -> None:
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    for path in (f"{CLUSTER_ROLES}/edgehub:pool-scope", f"{CLUSTER_ROLES}/edgehub:hub"):
        assert patch(account_client, path, {"rules": everything}) == 403
    name = scene.name("role")
    assert account_client.request("POST", CLUSTER_ROLES, body={"metadata": {"name": name}}).status == 403
    # It may write the Role for ConfigMaps, but not with permissions that it does not have itself.
    secrets = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"
    scene.admin.request("POST", roles, body={"metadata": {"name": "edgehub:leader-hubs"}})
    assert patch(account_client, f"{roles}/edgehub:leader-hubs", {"rules": secrets}) == 403


def test_the_manager_may_write_only_the_config_maps_of_pools(
    scene: Scene, account_client: RestClient
) -> None:
    foreign = "extension-apiserver-authentication"
    scene.until(lambda: patch(account_client, f"{CONFIG_MAPS}/{foreign}", {"data": {"a": "b"}}) == 403)
    name = scene.name("coredns")
    assert account_client.request("POST", CONFIG_MAPS, body={"metadata": {"name": name}}).status == 403
    own = scene.name("leader-hub-x")
    assert account_client.request("POST", CONFIG_MAPS, body={"metadata": {"name": own}}).status == 201
    assert patch(account_client, f"{CONFIG_MAPS}/{own}", {"data": {"a": "b"}}) == 200


def test_the_manager_may_read_no_secret_and_start_no_pod(account_client: RestClient) -> None:
    assert account_client.request("GET", "/api/v1/secrets").status == 403
    assert account_client.request("GET", "/api/v1/namespaces/kube-system/secrets").status == 403
    pods = "/api/v1/namespaces/kube-system/pods"
    assert account_client.request("POST", pods, body={"metadata": {"name": "p"}}).status == 403
    assert account_client.request("DELETE", f"{NODES}/any").status == 403


def test_the_manager_may_change_only_fields_of_autonomy_on_pods_and_nodes(
    scene: Scene, account_client: RestClient
) -> None:
    node, pods = scene.node(), f"/api/v1/namespaces/{scene.namespace}/pods"
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "mine"}]}
    made = scene.admin.post(pods, {"metadata": {"name": "p"}, "spec": spec})
    pod, status = f"{pods}/p", f"{pods}/p/status"
    evil = [{**each, "image": "evil"} for each in made["spec"]["containers"]]
    scene.until(lambda: patch(account_client, pod, {"spec": {"containers": evil}}) == 403)
    for metadata in ({"labels": {"app": "x"}}, {"annotations": {"a": "b"}}, {"finalizers": ["a/b"]}):
        assert patch(account_client, pod, {"metadata": metadata}) == 403
    assert patch(account_client, pod, {"spec": {"activeDeadlineSeconds": 1}}) == 403
    assert (
        patch(account_client, status, {"status": {"podIPs": [{"ip": "10.6.6.6"}], "podIP": "10.6.6.6"}})
        == 403
    )

    longer = [{**each, "tolerationSeconds": 9} for each in made["spec"]["tolerations"]]
    record = {"apps.openyurt.io/original-unreachable-toleration-duration": "300"}
    wanted = {"metadata": {"annotations": record}, "spec": {"tolerations": longer}}
    assert patch(account_client, pod, wanted) == 200
    assert (
        patch(account_client, status, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        == 200
    )

    conditions = scene.admin.get(f"{NODES}/{node}")["status"]["conditions"]
    forged = {"addresses": [{"type": "InternalIP", "address": "10.6.6.6"}]}
    lie = {"conditions": [{"type": "Ready", "status": "False"}]}
    node_status = f"{NODES}/{node}/status"
    scene.until(lambda: patch(account_client, node_status, {"status": forged}) == 403)
    assert patch(account_client, node_status, {"status": lie}) == 403
    new_status = {"conditions": [*conditions, {"type": "Autonomy", "status": "True"}]}
    assert patch(account_client, node_status, {"status": new_status}) == 200


def test_the_manager_may_create_only_jobs_that_pull_images(scene: Scene, account_client: RestClient) -> None:
    daemon_set = DaemonSet(scene.namespace, "web", "set-1", images=(("main", "web:2"),))
    jobs = f"/apis/batch/v1/namespaces/{scene.namespace}/jobs"

    def made(change: Callable[[Json], object] = bool) -> int:
        """Return the status of creating a Job with these changes of it and of its pod."""
        job = image_job(
            job_name(PREFIX, scene.name("web"), "h2"), Pod(scene.namespace, "web-1", "n1"), "u", daemon_set
        )
        change(job)
        return account_client.request("POST", jobs, body=job).status

    def pod(job: Json) -> Json:
        found: Json = job["spec"]["template"]["spec"]
        return found

    def with_pod(**fields: object) -> int:
        return made(lambda job: pod(job).update(fields))

    def with_container(**fields: object) -> int:
        return made(lambda job: pod(job)["containers"][0].update(fields))

    scene.until(lambda: with_pod(hostPID=True) == 403)
    assert with_pod(hostNetwork=True) == 403
    assert with_pod(automountServiceAccountToken=True) == 403
    assert with_pod(securityContext={}) == 403
    assert with_pod(initContainers=[{"name": "first", "image": "any"}]) == 403
    assert with_pod(volumes=[{"name": "root", "hostPath": {"path": "/"}}]) == 403
    assert with_container(command=["sh"]) == 403
    assert with_container(args=["-c", "id"]) == 403
    assert with_container(env=[{"name": "LD_PRELOAD", "value": "/x"}]) == 403
    assert with_container(lifecycle={"postStart": {"exec": {"command": ["sh"]}}}) == 403
    unprivileged = {"allowPrivilegeEscalation": False}
    assert with_container(securityContext={**unprivileged, "runAsUser": 0}) == 403
    assert with_container(securityContext={**unprivileged, "capabilities": {"add": ["SYS_ADMIN"]}}) == 403
    assert made(lambda job: job["metadata"].update(name="other")) == 403
    assert made(lambda job: job["metadata"].update(ownerReferences=[])) == 403
    assert made() == 201


@pytest.mark.parametrize(
    ("manifest", "verb", "resource"),
    [
        ("triggers.yaml", "patch", "endpointslices.discovery.k8s.io"),
        ("triggers.yaml", "patch", "endpoints"),
        ("autonomy.yaml", "patch", "pods"),
        ("autonomy.yaml", "patch", "nodes/status"),
        ("pod-updates.yaml", "delete", "pods"),
        ("pod-updates.yaml", "create", "jobs.batch"),
        ("servicegrids-rbac.yaml", "create", "services"),
        ("configbindings-rbac.yaml", "patch", "deployments.apps"),
        ("configbindings-rbac.yaml", "patch", "statefulsets.apps"),
        ("configbindings-rbac.yaml", "patch", "daemonsets.apps"),
        ("crd-creation.yaml", "create", "customresourcedefinitions.apiextensions.k8s.io"),
    ],
)
def test_leaving_a_manifest_out_removes_its_permissions(
    scene: Scene, manifest: str, verb: str, resource: str
) -> None:
    assert can(scene, verb, resource)
    scene.cloud.kubectl("delete", "-f", str(MANIFESTS / manifest))
    scene.until(lambda: not can(scene, verb, resource))
    scene.cloud.apply(MANIFESTS / manifest)
    scene.until(lambda: can(scene, verb, resource))


@pytest.fixture
def no_bindings(scene: Scene) -> Iterator[None]:
    """Remove the manifests of bindings for a test."""
    manifests = [MANIFESTS / name for name in ("configbindings-rbac.yaml", "webhook.yaml")]
    for each in manifests:
        scene.cloud.kubectl("delete", "-f", str(each))
    scene.until(lambda: not can(scene, "patch", "deployments.apps"))
    yield
    for each in manifests:
        scene.cloud.apply(each)


@pytest.mark.usefixtures("no_bindings")
def test_a_manager_without_bindings_requests_none_of_their_resources(
    scene: Scene, start_manager: StartManager
) -> None:
    mark = scene.cloud.audit_mark()
    start_manager(
        "--no-leader-elect",
        "--controllers=*,-configbinding,-configbindingwebhook,-daemonpodupdater,-imagepull",
    )
    asked = [each for each in scene.cloud.audit(mark) if each.user == ACCOUNT]
    of_bindings = (
        "yurtappconfigbindings",
        "deployments",
        "statefulsets",
        "daemonsets",
        "horizontalpodautoscalers",
        "secrets",
    )
    assert len(asked) > 10
    assert [
        each.uri for each in asked if each.code == 403 or any(name in each.uri for name in of_bindings)
    ] == []


def can(scene: Scene, verb: str, resource: str) -> bool:
    """Return True if the manager's account may do this in every namespace."""
    name, _, group = resource.partition(".")
    return scene.may(ACCOUNT, verb, group, name)


def test_applying_the_manifests_removes_permissions_of_an_earlier_manager(scene: Scene) -> None:
    """The earlier manager wrote the role by server-side apply, with every resource that a NodePool named."""
    path = f"{CLUSTER_ROLES}/edgehub:pool-scope"
    scene.admin.delete(path)
    applied = role("edgehub:pool-scope", [rule("batch", "jobs", "list watch")])
    answer = scene.admin.request(
        "PATCH",
        path,
        query={"fieldManager": "edgehub-manager", "force": "true"},
        body=applied,
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    assert answer.status == 201
    node = scene.cloud.client(scene.cloud.authority.issue_node("edge"))
    scene.until(lambda: node.request("GET", "/apis/batch/v1/jobs").status == 200)
    said = scene.cloud.apply(MANIFESTS / "manager-rbac.yaml")
    assert "clusterrole.rbac.authorization.k8s.io/edgehub:pool-scope configured" in said
    scene.until(lambda: node.request("GET", "/apis/batch/v1/jobs").status == 403)
    shared = ["/api/v1/services", "/api/v1/endpoints", "/apis/discovery.k8s.io/v1/endpointslices"]
    assert [node.request("GET", path).status for path in shared] == [200, 200, 200]
    with pytest.raises(subprocess.CalledProcessError):
        scene.cloud.kubectl(
            "auth",
            "can-i",
            "escalate",
            "clusterroles",
            "--as",
            "system:serviceaccount:kube-system:edgehub-manager",
        )
