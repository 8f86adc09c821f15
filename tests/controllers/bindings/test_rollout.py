"""A binding for many workloads: how fast the manager writes them, and the state after a crash during the writes."""

from __future__ import annotations

import pytest

from controllers.bindings.config_binding_controller import WRITES_A_SECOND
from kube.json_type import Json
from tests.controllers.conftest import StartManager
from tests.controllers.support.binding_scene import BindingScene, image_of
from tests.controllers.support.workloads import image

pytestmark = [pytest.mark.real]

ONLY = "--controllers=configbinding"
ALONE = ("--no-leader-elect", ONLY)


def create_deployments(bindings: BindingScene, count: int) -> None:
    for number in range(count):
        bindings.deployment(f"pool-{number}", owner="shop")


def bind(bindings: BindingScene) -> None:
    bindings.bind(
        "shop", kind="YurtAppSet", version="apps.openyurt.io/v1beta1", items=[image("{{nodepool}}:2")]
    )


def injected(bindings: BindingScene) -> list[Json]:
    """Return the Deployments with the binding. The generation counts the creation and each changed spec."""
    found = bindings.scene.admin.get(bindings.deployments)["items"]
    return [each for each in found if image_of(each) != "app:1"]


def test_twenty_pools_are_injected_without_a_pause_by_one_write_each(
    bindings: BindingScene, start_manager: StartManager
) -> None:
    """`scripts/bench --bindings` measures the time. The write limit delays none of so few."""
    pools = 20
    create_deployments(bindings, pools)
    start_manager(*ALONE)
    bind(bindings)
    bindings.scene.until(lambda: len(injected(bindings)) == pools)
    assert {each["metadata"]["generation"] for each in injected(bindings)} == {2}
    assert pools <= WRITES_A_SECOND


def test_the_next_leader_finishes_a_rollout_and_writes_nothing_twice(
    bindings: BindingScene, start_manager: StartManager
) -> None:
    # The writes of three seconds.
    many = 60
    create_deployments(bindings, many)
    first = start_manager(ONLY)
    first.wait_until_leading()
    second = start_manager(ONLY)
    bind(bindings)
    bindings.scene.until(lambda: len(injected(bindings)) >= many // 3)
    first.process.kill()
    left = many - len(injected(bindings))
    assert left > 0
    second.wait_until_leading()
    bindings.scene.until(lambda: len(injected(bindings)) == many)
    assert {each["metadata"]["generation"] for each in injected(bindings)} == {2}


def test_changes_made_without_a_manager_are_applied_at_its_start(
    bindings: BindingScene, start_manager: StartManager
) -> None:
    unchanged, left, new = bindings.deployment(), bindings.deployment(), bindings.deployment()
    before = bindings.spec(left)
    for name in (unchanged, left):
        bindings.bind(name, items=[image("app:2")], name=name)
    first = start_manager(*ALONE)
    for name in (unchanged, left):
        bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    first.process.stop()
    bindings.unbind(left)
    bindings.change(unchanged, items=[image("app:3")])
    bindings.bind(new, items=[image("app:4")])
    start_manager(*ALONE)
    bindings.sees(unchanged, lambda obj: image_of(obj) == "app:3")
    bindings.sees(left, lambda obj: obj["spec"] == before)
    bindings.sees(new, lambda obj: image_of(obj) == "app:4")
