"""The kubeconfig of `edgehub fleet`, its errors without a cluster, and the manifests in the program."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from addons.install.cluster_commands import MANIFESTS, fleet_text, kubeconfigs, manifest_names
from addons.install.commands import run
from addons.views.source_log import RBAC, RBAC_OF_NODES
from tests.addons.support.small_api import small_api
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.ports import free_port


@pytest.mark.parametrize(
    ("given", "environment", "paths"),
    [
        ("/a", {"KUBECONFIG": "/b"}, ["/a"]),
        (None, {"KUBECONFIG": "/b:/c"}, ["/b", "/c"]),
        (None, {"HOME": "/person"}, ["/person/.kube/config"]),
    ],
)
def test_the_kubeconfig_is_chosen_as_kubectl_chooses_it(
    given: str | None, environment: dict[str, str], paths: list[str]
) -> None:
    assert [str(each) for each in kubeconfigs(Path(given) if given else None, environment)] == paths


def test_an_unreachable_cloud_is_named_in_the_error(tmp_path: Path) -> None:
    server = f"http://127.0.0.1:{free_port()}"
    file = tmp_path / "config"
    file.write_text(
        f"""\
clusters: [{{name: a, cluster: {{server: "{server}"}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
users: [{{name: a, user: {{}}}}]
current-context: a
"""
    )
    with pytest.raises(ValueError, match=server):
        fleet_text(file, "", as_json=False)


async def test_a_cluster_without_hubs_is_reported_with_the_reason(tmp_path: Path) -> None:
    lease = {"metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {}}
    leases = {"kind": "LeaseList", "metadata": {"resourceVersion": "1"}, "items": [lease]}
    async with small_api({"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases": leases}) as url:
        file = write_kubeconfig(tmp_path / "config", url)
        text = await asyncio.to_thread(fleet_text, file, "", as_json=False)
        assert text.startswith("no hub: no Lease in kube-node-lease has the annotation edgehub.io/hub-status")
        assert await asyncio.to_thread(fleet_text, file, "", as_json=True) == "[]\n"


def test_all_manifests_are_listed_with_their_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["manifests"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == manifest_names()
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("path", [RBAC, RBAC_OF_NODES])
def test_a_manifest_is_printed_by_the_name_that_the_doctor_gives(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = path.rpartition("/")[2]
    for given in (name, name.removesuffix(".yaml")):
        assert run(["manifests", given]) == 0
        assert capsys.readouterr().out == (MANIFESTS / name).read_text()


def test_an_unknown_manifest_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["manifests", "../../pyproject"]) == 1
    assert "there is no manifest '../../pyproject': there are autonomy, " in capsys.readouterr().err
