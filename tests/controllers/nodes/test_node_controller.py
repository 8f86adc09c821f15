"""Nodes get and lose hubs by a label, on the real API server and Job controller; the effects of Jobs are simulated."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controllers.nodes.conversion import Direction, Phase, Stage
from controllers.nodes.node_job import node_job
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestError
from tests.controllers.nodes.support.converted_nodes import JOBS, ConvertedNodes
from tests.controllers.nodes.support.nodes_cloud import IMAGE, nodes_cloud, nodes_manager
from tests.controllers.nodes.support.simulated_node import NO_HUB, ROLLED_BACK
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import NODES, POOLS, Scene, condition

pytestmark = [pytest.mark.real]

type Start = Callable[[], ManagerProcess]


@pytest.fixture(scope="module")
def cloud(
    tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path], helm: Path
) -> Iterator[RealCloud]:
    with nodes_cloud(tmp_path_factory.mktemp("nodes"), cloud_programs, helm) as made:
        yield made


@pytest.fixture
def start(cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    with ExitStack() as stack:

        def started() -> ManagerProcess:
            made = stack.enter_context(nodes_manager(cloud, tmp_path_factory.mktemp("manager")))
            stack.callback(check_that_nothing_was_refused, made)
            return made

        yield started


def check_that_nothing_was_refused(manager: ManagerProcess) -> None:
    for code in ("403", "422") if manager.process.running else ():
        assert manager.metric("edgehub_manager_writes_total", code=code) == 0


def test_fifty_nodes_are_converted_upgraded_and_reverted_in_waves(cloud: RealCloud, start: Start) -> None:
    """A node whose doctor finds an error stops the pool, an absent node waits, a bad version rolls back and stops the
    pool too, and a manager is killed in each phase."""
    with ConvertedNodes(cloud, 50, max_unavailable="20%") as scene:
        *_, broken, away = scene.members
        scene.fails.add(broken)
        scene.go_away(away)
        manager = start()
        began = time.monotonic()
        scene.label(scene.members)
        scene.until(lambda: len(scene.ran) > 10)
        manager.process.kill()
        manager = start()
        scene.until(lambda: scene.pool_condition()[0] == "Stopped")
        assert scene.phases()[broken] == "install/failed"
        found = condition(cloud.admin.get(f"{NODES}/{broken}"), "HubInstalled")
        assert (found["status"], found["reason"], found["message"]) == ("False", "InstallFailed", NO_HUB)
        scene.until(lambda: "InstallFailed" in scene.events(broken))
        scene.until(lambda: f"failed: {broken}" in scene.pool_condition()[1])

        scene.fails.clear()
        scene.try_again(broken)
        scene.until(lambda: scene.pool_condition()[0] == "Waiting")
        assert f"49 of 50 nodes have a hub; waiting for the node: {away}" == scene.pool_condition()[1]
        assert scene.pool_condition()[1] in fleet(cloud)
        scene.come_back(away)
        scene.until(lambda: scene.pool_condition() == ("Complete", "50 of 50 nodes have a hub"))
        print(f"50 nodes joined in {(time.monotonic() - began) / 60:.1f} min")
        assert scene.jobs() == sorted([*scene.members, broken]), (
            "each node had one Job, and the broken one two"
        )

        roll_forward(scene, manager, start)
        began = time.monotonic()
        scene.label(scene.members, None)
        scene.until(scene.are("uninstall/done"))
        print(f"50 nodes left in {(time.monotonic() - began) / 60:.1f} min")
        assert [action for action, _ in scene.ran].count("uninstall") == 50


def roll_forward(scene: ConvertedNodes, manager: ManagerProcess, start: Start) -> None:
    """Upgrade to a version that fails, then to a good one, while a node is absent and a manager is killed."""
    leader, *_, away = scene.members
    scene.lead(leader)
    scene.bad.add("0.3.0")
    began = time.monotonic()
    scene.ask_for("0.3.0")
    scene.until(lambda: scene.pool_condition()[0] == "Stopped")
    scene.until(lambda: not {"upgrade/start", "upgrade/run", "upgrade/check"} & {*scene.phases().values()})
    tried = scene.upgraded()
    assert len(tried) <= 10, "one wave"
    node = tried[0]
    scene.until(lambda: scene.phases()[node] == "upgrade/failed")
    found = condition(scene.admin.get(f"{NODES}/{node}"), "HubInstalled")
    assert (found["status"], found["reason"], found["message"]) == ("True", "UpgradeFailed", ROLLED_BACK)
    scene.until(lambda: "UpgradeFailed" in scene.events(node))
    assert "50 of 50 nodes have a hub, 0 of them 0.3.0; failed: " in fleet(scene.cloud)
    assert "rolled back from edgehub:0.3.0: the hub has ended" in fleet(scene.cloud)
    print(
        f"a bad version stopped after {(time.monotonic() - began) / 60:.1f} min, tried on {len(tried)} nodes"
    )

    began = time.monotonic()
    scene.go_away(away)
    scene.ask_for("0.3.1")
    scene.until(lambda: len(scene.upgraded()) > len(tried) + 10)
    manager.process.kill()
    manager = start()
    scene.until(lambda: scene.pool_condition()[0] == "Waiting")
    assert scene.pool_condition()[1] == (
        f"50 of 50 nodes have a hub, 49 of them 0.3.1; waiting for the node: {away}"
    )
    scene.come_back(away)
    scene.until(lambda: scene.pool_condition() == ("Complete", "50 of 50 nodes have a hub, 50 of them 0.3.1"))
    print(f"50 nodes rolled forward in {(time.monotonic() - began) / 60:.1f} min")
    done = scene.upgraded()[len(tried) :]
    assert sorted(done) == sorted(scene.members), "each node once, those too that had rolled back"
    assert done[-2:] == [leader, away], "the leader last of those that were there"
    assert manager.metric("edgehub_manager_edge_nodes", state="joined") == 50
    check_that_nothing_is_written(scene, manager)


def check_that_nothing_is_written(scene: ConvertedNodes, manager: ManagerProcess) -> None:
    """Check that nodes in their desired state cause no writes, which would be sent over hubs' links."""

    def reconciled() -> float:
        return manager.metric("edgehub_manager_work_total", controller="nodes", result="done")

    written, before = manager.metric("edgehub_manager_writes_total"), reconciled()
    annotations = {"edgehub.io/max-unavailable": "25%"}
    scene.admin.patch(f"{POOLS}/{scene.name_of_pool}", {"metadata": {"annotations": annotations}})
    scene.until(lambda: reconciled() > before)
    assert manager.metric("edgehub_manager_writes_total") == written


def fleet(cloud: RealCloud) -> str:
    command = [sys.executable, "-m", "addons.command", "fleet", "--kubeconfig", str(cloud.admin_kubeconfig())]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_job_deleted_by_an_administrator_converts_no_node_twice(cloud: RealCloud, start: Start) -> None:
    with ConvertedNodes(cloud, 1) as scene:
        [node] = scene.members
        scene.holds.add(node)
        manager = start()
        scene.label([node])
        scene.until(scene.are("install/run"))
        [job] = [each for each in cloud.admin.get(JOBS)["items"] if node in each["metadata"]["name"]]
        cloud.admin.delete(f"{JOBS}/{job['metadata']['name']}")
        scene.until(scene.are("install/check"))
        assert scene.jobs() == []
        assert manager.metric("edgehub_manager_edge_nodes", state="under way") == 1
        assert scene.ran == []


def test_a_wave_continues_if_its_label_or_node_is_removed(cloud: RealCloud, start: Start) -> None:
    """The pool cannot be deleted during a wave, labels change repeatedly, and the Node being converted is deleted."""
    with ConvertedNodes(cloud, 3) as scene:
        first, second, third = sorted(scene.members)
        scene.holds.add(first)
        start()
        scene.label(scene.members)
        scene.until(lambda: scene.phases()[first] == "install/run")
        with pytest.raises(RestError, match="still has 3 nodes"):
            scene.admin.delete(f"{POOLS}/{scene.name_of_pool}")
        for value in (None, "true", None, "true"):
            scene.label([first, second], value)
        assert scene.jobs() == [first], "the wave goes on, and no node has a second Job"
        scene.members.remove(first)
        scene.admin.delete(f"{NODES}/{first}")
        scene.until(lambda: scene.pool_condition() == ("Complete", "2 of 2 nodes have a hub"))
        assert scene.jobs() == [second, third], "each once"


def test_a_node_that_has_a_hub_gets_no_job(cloud: RealCloud, start: Start) -> None:
    """A user installed the hub; without the label the node retains it."""
    with ConvertedNodes(cloud, 2) as scene:
        labelled, other = scene.members
        for node in scene.members:
            scene.install_by_hand(node)
        start()
        scene.label([labelled])
        scene.until(lambda: scene.pool_condition() == ("Complete", "1 of 1 nodes have a hub"))
        assert scene.phases() == {labelled: "install/done", other: ""}
        assert scene.ran == []


def test_a_node_that_does_not_become_ready_again_stops_its_pool(cloud: RealCloud, start: Start) -> None:
    with ConvertedNodes(cloud, 2, ready_timeout="1s") as scene:
        first, second = scene.members
        scene.silent.add(first)
        start()
        scene.label(scene.members)
        scene.until(lambda: scene.pool_condition()[0] == "Stopped")
        assert scene.phases() == {first: "install/failed", second: ""}
        found = condition(cloud.admin.get(f"{NODES}/{first}"), "HubInstalled")
        assert "its hub does not report that it is healthy" in found["message"]


def test_a_leader_elected_during_a_wave_is_converted_last(cloud: RealCloud, start: Start) -> None:
    """The former leader is converted with the others, and at any time some node that can lead is not being
    converted."""
    with ConvertedNodes(cloud, 6, max_unavailable="2") as scene:
        former, second, third, elected, *_ = sorted(scene.members)
        start()
        scene.label(scene.members)
        scene.until(lambda: scene.pool_condition()[0] == "Complete")
        scene.lead(former)
        scene.holds.update({second, third})
        scene.ask_for("0.3.1")
        scene.until(lambda: [*scene.phases().values()].count("upgrade/run") == 2)
        scene.lead(elected)
        scene.holds.clear()
        scene.until(lambda: scene.pool_condition()[1].endswith(", 6 of them 0.3.1"))
        done = scene.upgraded()
        assert sorted(done[:2]) == [second, third], "the wave had begun"
        assert former in done[2:4], "no leader any more"
        assert done[5:] == [elected]


def test_an_image_that_cannot_be_pulled_stops_its_pool_until_a_new_version(
    cloud: RealCloud, start: Start
) -> None:
    """The Job ends at its deadline, or at once with a new version, and the reason is reported."""

    def why(node: str) -> str:
        found = condition(cloud.admin.get(f"{NODES}/{node}"), "HubInstalled")
        return f"{found['reason']}: {found.get('message', '')}"

    with ConvertedNodes(cloud, 2, ready_timeout="5m") as scene:
        scene.missing.update({"0.4.0", "0.4.1"})
        first, second = sorted(scene.members)
        start()
        scene.label(scene.members)
        scene.until(lambda: scene.pool_condition()[0] == "Complete")
        scene.ask_for("0.4.0")
        blocked = "its Job does not start: ErrImagePull: edgehub:0.4.0: not found"
        scene.until(lambda: scene.phases() == {first: "upgrade/blocked", second: "install/done"})
        assert why(first) == f"Upgrading: {blocked}"
        scene.until(lambda: f"under way: {first} ({first}: {blocked})" in fleet(cloud))

        scene.ask_for("0.4.1")
        scene.until(lambda: "0.4.1" in why(first))
        scene.annotate({"edgehub.io/ready-timeout": "1s"})
        scene.until(lambda: scene.pool_condition()[0] == "Stopped")
        assert why(first) == f"UpgradeFailed: {blocked.replace('0.4.0', '0.4.1')}"
        assert scene.phases()[second] == "install/done"
        assert f"failed: {first} ({first}: its Job does not start" in fleet(cloud)

        scene.ask_for("0.4.2")
        scene.until(lambda: scene.pool_condition()[0] == "Complete")
        assert scene.upgraded() == [first, second]


def test_a_stopped_pool_does_not_block_another_pool(cloud: RealCloud, start: Start) -> None:
    with ConvertedNodes(cloud, 1) as broken, ConvertedNodes(cloud, 1) as well:
        broken.fails.update(broken.members)
        start()
        for scene in (broken, well):
            scene.label(scene.members)
        broken.until(lambda: broken.pool_condition()[0] == "Stopped")
        well.until(lambda: well.pool_condition()[0] == "Complete")


def test_the_manager_may_create_only_jobs_of_its_template(cloud: RealCloud) -> None:
    manager = cloud.client(token=cloud.token("kube-system", "edgehub-manager"))
    began = datetime(2026, 1, 2, tzinfo=UTC)

    def made(namespace: str = "kube-system", image: str = IMAGE, **changed: object) -> int:
        """Return the status of creating a Job with these changes of its pod."""
        number = next(numbers)
        phase = Phase(Direction.INSTALL, Stage.START, began + timedelta(seconds=number), began)
        job = node_job(namespace, "n1", phase, image)
        job["spec"]["template"]["spec"].update(changed)
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        return manager.request("POST", path, body=job).status

    numbers = itertools.count()
    Scene(cloud, []).until(lambda: made() == 201)
    assert made(image="edgehub:0.3.0-rc.1") == 201, "another version"
    for image in (
        "other:1",
        "edgehub:5000/other",
        "edgehub:0.3.0@sha256:00",
        "edgehub",
        "edgehub2:1",
        "edgehub:",
    ):
        assert made(image=image) == 403, image
    assert made(namespace="default") == 403
    assert made(automountServiceAccountToken=True) == 403
    assert made(nodeName="") == 403
