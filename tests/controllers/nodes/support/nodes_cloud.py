"""A control plane with the Job controller, and a manager of the controller `nodes` with the chart's permissions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cloud.real import RealCloud
from tests.controllers.conftest import MANIFESTS
from tests.controllers.support.process import ManagerProcess
from tests.deploy.support.charts import template

IMAGE = "edgehub:0.2.0"
CONTROLLERS = ("job-controller", "garbage-collector-controller")


@contextmanager
def nodes_cloud(
    folder: Path,
    programs: Mapping[str, Path],
    helm: Path,
    *,
    controllers: Sequence[str] = (),
    manager_flags: Sequence[str] = (),
) -> Iterator[RealCloud]:
    """Start the cloud. `controllers` and `manager_flags` are added to those of kube-controller-manager."""
    with RealCloud(
        folder,
        programs,
        controllers=[*CONTROLLERS, *controllers],
        apiserver_flags=["--allow-privileged=true"],
        manager_flags=manager_flags,
    ) as made:
        made.apply(MANIFESTS)
        duties = {"nodes": True}
        values = {"labels": False, "manager": {"duties": duties}, "hub": {"image": {"tag": "0.2.0"}}}
        rendered = template(helm, values, folder)
        made.apply(
            [each for (_, name), each in rendered.items() if "manager-node" in name or name.endswith("-jobs")]
        )
        accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
        made.admin.request("POST", accounts, body={"metadata": {"name": "default"}})
        yield made


def nodes_manager(cloud: RealCloud, folder: Path) -> ManagerProcess:
    account = cloud.kubeconfig("account", token=cloud.token("kube-system", "edgehub-manager"))
    flags = ("--controllers=nodes,nodepool", f"--hub-image={IMAGE}", "--no-leader-elect")
    return ManagerProcess(folder, account, *flags)
