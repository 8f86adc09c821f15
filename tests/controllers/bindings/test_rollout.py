"""A binding for many workloads: how soon they follow, and what a crash in the middle leaves."""

from __future__ import annotations

import time

import pytest

from kube.json_type import Json
from tests.controllers.conftest import StartManager
from tests.controllers.support.binding_scene import BindingScene, image_of
from tests.controllers.support.workloads import image

pytestmark = [pytest.mark.real]

POOLS = 20
MANY = 60
"""Three seconds of writes."""
SOON = 5.0
"""Seconds for a binding of 20 pools."""
ONLY = "--controllers=configbinding"
ALONE = ("--no-leader-elect", ONLY)


def make(bindings: BindingScene, count: int) -> None:
    for number in range(count):
        bindings.deployment(f"pool-{number}", owner="shop")


def bind(bindings: BindingScene) -> None:
    bindings.bind(
        "shop", kind="YurtAppSet", version="apps.openyurt.io/v1beta1", items=[image("{{nodepool}}:2")]
    )


def injected(bindings: BindingScene) -> list[Json]:
    found = bindings.scene.admin.get(bindings.deployments)["items"]
    return [each for each in found if image_of(each) != "app:1"]


def test_twenty_pools_follow_within_seconds(bindings: BindingScene, start_manager: StartManager) -> None:
    make(bindings, POOLS)
    start_manager(*ALONE)
    began = time.monotonic()
    bind(bindings)
    bindings.scene.until(lambda: len(injected(bindings)) == POOLS)
    assert time.monotonic() - began < SOON


def test_when_the_leader_is_killed_in_the_middle_the_next_one_finishes_and_writes_nothing_twice(
    bindings: BindingScene, start_manager: StartManager
) -> None:
    make(bindings, MANY)
    first = start_manager(ONLY)
    first.wait_until_leading()
    second = start_manager(ONLY)
    bind(bindings)
    bindings.scene.until(lambda: len(injected(bindings)) >= MANY // 3)
    first.process.kill()
    left = MANY - len(injected(bindings))
    assert left > 0
    second.wait_until_leading()
    bindings.scene.until(lambda: len(injected(bindings)) == MANY)
    # A Deployment's generation counts the changes of its spec: one at its creation, one by the binding.
    assert {each["metadata"]["generation"] for each in injected(bindings)} == {2}
