"""The instance of `scripts/node` that all tests of a run share, and its hub."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kube.option import VERSION
from kube.requests.node_pools import POOL_LABEL
from scripts.node_machine import cloud, lifecycle, network
from scripts.node_machine.commands import LackError
from scripts.node_machine.instances import CLOUD, Instance, own
from scripts.node_machine.machine import Machine
from tests.node.support import callers, hub, hub_image


@pytest.fixture(scope="session")
def instance() -> Iterator[Instance]:
    """Yield the checkout's own instance: the running one, or one started for the tests and ended after them."""
    try:
        with lifecycle.running(own()) as instance:
            yield instance
    except LackError as error:
        pytest.exit(f"no real node: {error}", returncode=2)


@pytest.fixture(scope="session")
def node(instance: Instance) -> Machine:
    return Machine(instance, "edge-1")


@pytest.fixture(scope="session")
def clouds(instance: Instance) -> Machine:
    return Machine(instance, CLOUD)


@pytest.fixture(scope="session")
def manager(clouds: Machine) -> None:
    """Apply the manifests to the cloud that the installation page requires first."""
    hub.prepare_cluster(clouds)
    hub.start_manager(clouds)


@pytest.fixture(scope="module")
def prepared(node: Machine, clouds: Machine) -> Iterator[None]:
    """Create the objects that callers need, and delete them afterwards."""
    callers.end_all(clouds)
    callers.prepare(clouds, "first")
    yield
    network.heal(clouds, node.name)
    callers.end_all(clouds)


@pytest.fixture(scope="module")
def bare(instance: Instance, clouds: Machine, manager: None, prepared: None) -> Iterator[Machine]:
    """Return a node that never had a hub, with the images of several versions, in its own pool."""
    lifecycle.up(instance, 2)
    node = Machine(instance, "edge-2")
    for version in (VERSION, hub_image.OTHER, hub_image.BAD):
        hub_image.import_image(node, version)
    hub.prepare_pool(clouds, hub.POOL)
    cloud.kubectl(clouds, "label", "node", node.name, f"{POOL_LABEL}={hub.POOL}")
    yield node
    network.heal(clouds, node.name)
    callers.end_all(clouds)
    cloud.kubectl(clouds, "delete", "nodepool", hub.POOL)
    cloud.kubectl(clouds, "--namespace=kube-system", "delete", "jobs", "--selector=edgehub.io/job=node")
    lifecycle.remove(instance, node.name)


@pytest.fixture(scope="session")
def behind_hub(node: Machine, clouds: Machine, manager: None) -> Iterator[None]:
    """Return the node; its kube-proxy and coredns use its hub, from the first test that needs it to the last."""
    hub.install(node)
    hub.start_pods_anew(clouds, node.name)
    yield
    network.heal(clouds, node.name)
    hub.uninstall(node)
