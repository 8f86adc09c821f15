"""The manager in clusters set up by OpenYurt: with other versions of NodePool, with NodeBuckets, or without either."""

from __future__ import annotations

import base64
import itertools
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import yaml

from kube.json_type import Json
from tests.cloud.pki import Authority
from tests.cloud.ports import LOOPBACK
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.cloud.versions import served
from tests.controllers.conftest import MANIFESTS, StartManager
from tests.controllers.support.scene import POOL_TOPOLOGY, POOLS, TOPOLOGY, Scene, has_nodes
from tests.hub.support.process import Hub
from tests.support.server_thread import Answering, HttpServer

NEW_FIELDS = {"enableLeaderElection": False, "leaderElectionStrategy": "random", "leaderReplicas": 1}
"""Fields of v1beta2 with the values that objects of older versions get."""
REVIEW = "apiextensions.k8s.io/v1"


class ConversionWebhook(HttpServer):
    """A conversion webhook on its own port; a context manager."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self.converted: Counter[str] = Counter()
        """Converted objects by their target version."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*authority.issue_server("conversion", [LOOPBACK]).write(folder, "conversion"))
        webhook = self

        class Handler(Answering):
            def respond(self) -> None:
                self.answer(orjson.dumps(webhook.review(orjson.loads(self.body())["request"])))

        super().__init__(Handler, context)
        self.client_config = {
            "url": f"{self.url}/convert",
            "caBundle": base64.b64encode(authority.certificate).decode(),
        }

    def review(self, request: Json) -> Json:
        """Return the ConversionReview with the response to a request."""
        wanted = request["desiredAPIVersion"]
        self.converted[wanted.rpartition("/")[2]] += len(request["objects"])
        converted = [convert(each, wanted) for each in request["objects"]]
        response = {"uid": request["uid"], "convertedObjects": converted, "result": {"status": "Success"}}
        return {"apiVersion": REVIEW, "kind": "ConversionReview", "response": response}


def convert(obj: Json, api_version: str) -> Json:
    """Convert a NodePool to another version: the newest one gets its own fields, the others lose them."""
    spec = dict(obj.get("spec") or {})
    if api_version.endswith("/v1beta2"):
        spec = {**NEW_FIELDS, **spec}
    else:
        spec = {name: value for name, value in spec.items() if name not in NEW_FIELDS}
    return {**obj, "apiVersion": api_version, "spec": spec}


pytestmark = [pytest.mark.real]

GROUP = "apps.openyurt.io"
CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodepools.{GROUP}"
KIND = f"nodepools.{GROUP}"


def crd(plural: str, kind: str, versions: list[str], schema: Json) -> Json:
    """Return a kind without our schema, as another project serves it; the first version is stored."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", **schema}},
                }
                for version in versions
            ],
        },
    }


FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
OLD_SCHEMA = {"properties": {"spec": FREE, "status": FREE}}
OLD = crd("nodepools", "NodePool", ["v1beta1", "v1alpha1"], OLD_SCHEMA)
"""NodePool as in OpenYurt up to 1.6: without v1beta2."""


@pytest.fixture
def own_kind(managed_cloud: RealCloud) -> Iterator[None]:
    """Remove the kind NodePool for a test, and restore ours after it."""
    remove(managed_cloud)
    yield
    remove(managed_cloud)
    managed_cloud.apply(MANIFESTS / "nodepools.yaml")


def remove(cloud: RealCloud) -> None:
    cloud.kubectl("delete", "crd", KIND, "--ignore-not-found", "--timeout=60s")


@pytest.mark.usefixtures("own_kind")
def test_pools_of_older_versions_are_read_unmodified(
    scene: Scene, managed_cloud: RealCloud, start_manager: StartManager
) -> None:
    managed_cloud.apply([OLD])
    # All manifests except NodePool itself: the manager changes no existing kind.
    before = scene.admin.get(CRD)
    rest = [each for each in served(MANIFESTS) if each.name != "nodepools.yaml"]
    managed_cloud.kubectl("apply", *(argument for each in rest for argument in ("-f", str(each))))
    start_manager().wait_until_leading()
    old = POOLS.replace("v1beta2", "v1beta1")
    pool = scene.name("pool")
    kind = {"apiVersion": f"{GROUP}/v1beta1", "kind": "NodePool"}
    spec = {"type": "Edge", "labels": {"from": "pool"}}
    scene.admin.post(old, {**kind, "metadata": {"name": pool}, "spec": spec})
    node = scene.node(pool)
    scene.sees(old, pool, has_nodes([node]))
    scene.sees("/api/v1/nodes", node, lambda obj: obj["metadata"]["labels"]["from"] == "pool")
    after = scene.admin.get(CRD)
    assert (before["metadata"]["uid"], before["spec"]) == (after["metadata"]["uid"], after["spec"])

    # OpenYurt is upgraded and serves v1beta2 as well: our manifest applies over it, and the manager continues.
    managed_cloud.apply(MANIFESTS / "nodepools.yaml")
    other = scene.node(pool)
    scene.until(lambda: scene.admin.request("GET", f"{POOLS}/{pool}").status == 200)
    scene.sees(POOLS, pool, has_nodes([node, other]))


@pytest.mark.usefixtures("own_kind")
def test_hub_and_manager_follow_pools_through_an_upgrade_of_openyurt(
    scene: Scene, managed_cloud: RealCloud, start_manager: StartManager, tmp_path: Path
) -> None:
    """OpenYurt 1.6 does not serve v1beta2; 1.7 converts between three versions, and migrates stored objects to the
    newest."""

    def upgraded(webhook: ConversionWebhook, stored: str) -> Json:
        """Return NodePool as in OpenYurt 1.7: three versions with different schemas, and a webhook between them."""
        made = crd("nodepools", "NodePool", ["v1beta2", "v1beta1", "v1alpha1"], OLD_SCHEMA)
        for version in made["spec"]["versions"]:
            version["storage"] = version["name"] == stored
        client = {"conversionReviewVersions": ["v1"], "clientConfig": webhook.client_config}
        made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": client}
        return made

    managed_cloud.apply([OLD])
    first = start_manager("--no-leader-elect")
    pool, old = scene.name("pool"), POOLS.replace("v1beta2", "v1beta1")
    kind = {"apiVersion": f"{GROUP}/v1beta1", "kind": "NodePool"}
    scene.admin.post(old, {**kind, "metadata": {"name": pool}, "spec": {"type": "Edge"}})
    own, other = scene.node(pool), scene.node()
    slices = scene.slice(scene.service(POOL_TOPOLOGY), own, other)
    identity = managed_cloud.node_kubeconfig(own)
    with (
        ConversionWebhook(tmp_path) as webhook,
        Hub(tmp_path, managed_cloud.url, node=own, kubeconfig=identity) as hub,
        RestClient(hub.url, user_agent="kube-proxy/v1.36.3 (linux/amd64)") as kube_proxy,
    ):

        def seen() -> list[str]:
            return scene.seen_nodes(kube_proxy, slices)

        def followed() -> set[str]:
            """The versions of NodePool that the hub watches."""
            return {
                each["path"].split("/")[3]
                for each in hub.sources()
                if each["path"].endswith("/nodepools") and each["state"] == "watching"
            }

        scene.until(lambda: seen() == [own])
        scene.until(lambda: followed() == {"v1beta1"})
        managed_cloud.apply([upgraded(webhook, "v1beta1")])
        scene.relabel(other, pool)
        scene.until(lambda: seen() == [own, other])
        scene.until(lambda: "v1beta2" in followed())

        # A manager that starts now reads v1beta2, whatever version is stored.
        first.process.stop()
        start_manager("--no-leader-elect")
        assert webhook.converted["v1beta2"] > 0
        managed_cloud.apply([upgraded(webhook, "v1beta2")])
        scene.relabel(other, None)
        scene.until(lambda: seen() == [own])
        for path in (old, POOLS):
            scene.sees(path, pool, has_nodes([own]))
        assert "leaderReplicas" in scene.admin.get(f"{POOLS}/{pool}")["spec"]


@pytest.fixture
def no_creation(managed_cloud: RealCloud) -> Iterator[None]:
    """Revoke the manager's permission to create kinds for one test."""
    manifest = MANIFESTS / "crd-creation.yaml"
    managed_cloud.kubectl("delete", "-f", str(manifest))
    yield
    managed_cloud.apply(manifest)


@pytest.mark.usefixtures("own_kind", "no_creation")
def test_triggers_and_grids_run_without_node_pools(
    scene: Scene, managed_cloud: RealCloud, start_manager: StartManager
) -> None:
    bucket = crd("nodebuckets", "NodeBucket", ["v1alpha1"], {"x-kubernetes-preserve-unknown-fields": True})
    managed_cloud.apply([bucket])
    start_manager().wait_until_leading()
    grid = scene.grid()
    scene.sees(scene.services, f"{grid}-svc", lambda obj: obj["spec"]["selector"])
    # A changed annotation and a changed bucket of a pool trigger updates.
    changed, pooled = scene.service(), scene.service(POOL_TOPOLOGY)
    first = scene.slice(changed, "a")
    causes = itertools.count()

    def retopologised() -> bool:
        annotations = {TOPOLOGY: f"topology-{next(causes)}"}
        scene.admin.patch(f"{scene.services}/{changed}", {"metadata": {"annotations": annotations}})
        return bool(scene.trigger(scene.slices, first))

    # Repeat the change: if the manager reads it before the slice, it affects no slice.
    scene.until(retopologised)
    touched, left = scene.slice(pooled, "b"), scene.slice(pooled, "c")
    name, pool = scene.name("bucket"), scene.name("pool")
    meta = {"name": name, "labels": {"openyurt.io/pool-name": pool}}
    kind = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "NodeBucket"}
    buckets = f"/apis/{GROUP}/v1alpha1/nodebuckets"
    scene.admin.post(buckets, {**kind, "metadata": meta, "nodes": [{"name": "x"}]})

    def refilled() -> bool:
        nodes = [{"name": "b"}, {"name": f"y-{next(causes)}"}]
        scene.admin.patch(f"{buckets}/{name}", {"nodes": nodes})
        return bool(scene.trigger(scene.slices, touched))

    scene.until(refilled)
    assert not scene.trigger(scene.slices, left)


def test_the_manifest_serves_each_version_of_openyurt() -> None:
    definition = yaml.safe_load((MANIFESTS / "nodepools.yaml").read_text())
    versions = {each["name"]: each for each in definition["spec"]["versions"]}
    assert list(versions) == ["v1beta2", "v1beta1", "v1alpha1"]
    assert all(each["served"] for each in versions.values())
    assert versions["v1beta1"]["schema"] == versions["v1alpha1"]["schema"] == versions["v1beta2"]["schema"]
