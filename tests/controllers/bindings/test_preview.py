"""The preview prints the changes that a binding would make, from files and from a cluster, and writes nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from controllers.bindings.preview import main
from kube.json_type import Json
from tests.controllers.support.binding_scene import BindingScene, image_of
from tests.controllers.support.process import program
from tests.controllers.support.scene import POOLS
from tests.controllers.support.workloads import DEPLOYMENT, env, image, patch

ROOT = Path(__file__).parents[3]
WORKLOAD: Json = {**DEPLOYMENT, "metadata": {"name": "web", "labels": DEPLOYMENT["metadata"]["labels"]}}


def binding(items: Sequence[Json], name: str = "b", **subject: object) -> Json:
    subject_spec = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "pools": ["*"], **subject}
    return {
        "apiVersion": "apps.openyurt.io/v1alpha1",
        "kind": "YurtAppConfigBinding",
        "metadata": {"name": name},
        "spec": {"subject": subject_spec, "items": list(items)},
    }


def write(folder: Path, *documents: object) -> list[str]:
    """Write these documents to a file each; return the arguments that name the files."""
    arguments: list[str] = []
    for number, document in enumerate(documents):
        path = folder / f"{number}.yaml"
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        arguments += ["-f", str(path)]
    return arguments


def test_a_preview_prints_the_diff_of_a_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = [image("r/{{nodepool}}:2"), env("none", A="x")]
    assert main(write(tmp_path, binding(items), WORKLOAD)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["--- Deployment default/web", "+++ Deployment default/web with its bindings"]
    assert [line.split() for line in lines if line[0] in "+-"][2:] == [
        ["-", "image:", "app:1"],
        ["+", "image:", "r/hangzhou:2"],
    ]
    assert lines[-1] == "# Deployment default/web: b: env/none/A: ContainerNotFound"


def test_the_preview_supports_patches_and_pools_selected_by_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    selector = {"matchLabels": {"region": "east"}}
    document = binding([image("app:2")], pools=[], nodepoolSelector=selector)
    document["spec"]["patches"] = [
        patch("add", "/volumes/-", {"name": "{{nodepool}}"})["patch"],
        patch("remove", "/volumes/7")["patch"],
    ]
    pool: Json = {"kind": "NodePool", "metadata": {"name": "hangzhou", "labels": {"region": "west"}}}
    assert main(write(tmp_path, document, WORKLOAD, pool)) == 0
    assert capsys.readouterr().out == "no workload would change\n"
    pool["metadata"]["labels"] = selector["matchLabels"]
    assert main(write(tmp_path, document, WORKLOAD, pool)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "+      - name: hangzhou" in lines
    assert "+        image: app:2" in lines
    assert (
        lines[-1] == "# Deployment default/web: b: patch remove /spec/template/spec/volumes/7: PathNotFound"
    )


def test_the_preview_reads_lists_and_reports_conflicting_bindings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals = [binding([image("x")], "a"), binding([image("y")], "b")]
    assert main(write(tmp_path, {"kind": "List", "items": [*rivals, WORKLOAD]})) == 0
    assert "# Deployment default/web: a: image/app is set by b" in capsys.readouterr().out


@pytest.mark.parametrize("document", ["- a\n", "{", "just words"])
def test_a_malformed_manifest_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str
) -> None:
    assert main(write(tmp_path, document)) == 2
    assert "manager render: " in capsys.readouterr().err


def test_a_missing_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-f", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


@pytest.mark.real
def test_a_preview_only_reads_the_cluster(bindings: BindingScene, tmp_path: Path) -> None:
    pool = bindings.scene.pool()
    bindings.scene.admin.patch(f"{POOLS}/{pool}", {"metadata": {"labels": {"preview": "yes"}}})
    name = bindings.deployment(pool)
    selector = {"matchLabels": {"preview": "yes"}}
    document = binding([image("app:2")], name=name, pools=[], nodepoolSelector=selector)
    document["spec"]["subject"]["name"] = name
    # The API server answers lists of a new kind with 429 for a short time.
    bindings.scene.until(lambda: bindings.scene.admin.request("GET", bindings.path).status == 200)
    done = subprocess.run(
        [
            *(program(), "render"),
            *write(tmp_path, document),
            *("--namespace", bindings.scene.namespace),
            *("--kubeconfig", str(bindings.scene.cloud.admin_kubeconfig())),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == ""
    assert "+        image: app:2" in done.stdout.splitlines()
    after = bindings.scene.admin.get(f"{bindings.deployments}/{name}")
    assert (image_of(after), after["metadata"]["generation"]) == ("app:1", 1)
    assert bindings.scene.admin.get(bindings.path)["items"] == []
