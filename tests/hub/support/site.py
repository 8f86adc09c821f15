"""Hubs with a real control plane and the product's RBAC, behind a link if a test cuts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.outage import Outage
from tests.hub.support.process import Hub


def hub_before(
    cloud: RealCloud, folder: Path, node: str, *flags: str, link: Link | None = None, **how: Any
) -> Hub:
    """Return the hub of a node with its own identity at the cloud, not started yet. `how` as for `Hub`."""
    cloud.apply(HUB_RBAC)
    server = cloud.url if link is None else f"https://{link.host}:{link.port}"
    return Hub(folder, server, node=node, kubeconfig=cloud.node_kubeconfig(node), flags=flags, **how)


@contextmanager
def behind_a_link(cloud: RealCloud, folder: Path, node: str) -> Iterator[Outage]:
    """Run a hub behind its own link."""
    # Long enough that no response can come from waiting for rules or a first copy: see SLACK.
    with (
        Link(cloud.host, cloud.port) as link,
        hub_before(cloud, folder, node, "--wait", "60", link=link) as hub,
    ):
        yield Outage(hub, link)


@contextmanager
def controlled_site(
    folder: Path, programs: Mapping[str, Path], controllers: Sequence[str], manager_flags: Sequence[str] = ()
) -> Iterator[tuple[RealCloud, Outage]]:
    """Start a new cloud with these Kubernetes controllers, and a hub behind a link to it."""
    with (
        RealCloud(folder / "cloud", programs, controllers=controllers, manager_flags=manager_flags) as cloud,
        behind_a_link(cloud, folder / "hub", "node-1") as outage,
    ):
        yield cloud, outage
