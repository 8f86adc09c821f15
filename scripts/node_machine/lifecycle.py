"""Brings an instance up and down, and reboots its nodes, with their clocks moved if requested."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.node_machine import cgroups, cloud, network, node
from scripts.node_machine.clock import units
from scripts.node_machine.commands import require_machine, say, until
from scripts.node_machine.images import ensure_images, kubeadm_images
from scripts.node_machine.instances import CLOUD, ROOT, Instance
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import Cut
from scripts.node_machine.programs import ensure_programs
from scripts.node_machine.userland import CHECKOUT, ensure_userland, locked


@dataclass(frozen=True, slots=True)
class Materials:
    """The programs, userland and images that machines are made of."""

    layers: Sequence[Path]
    programs: dict[str, Path]
    images: Path


def materials() -> Materials:
    """Return programs, userland and images; build the missing ones."""
    layers = ensure_userland()
    programs = ensure_programs()
    return Materials(layers, programs, ensure_images(programs, layers[-1]))


def names_of_nodes(count: int) -> list[str]:
    return [f"edge-{number}" for number in range(1, count + 1)]


def up(instance: Instance, nodes: int) -> None:
    """Start cloud and nodes, and wait until each node and all its pods are ready; add missing nodes to a running
    instance."""
    made = materials()
    with locked(instance.folder):
        if instance.is_up:
            missing = [name for name in names_of_nodes(nodes) if name not in instance.nodes]
            say(f"{instance.name} is up already: {', '.join(instance.machines)}")
            for name in missing:
                _lay_out_node(instance, name, made)
                node.join(Machine(instance, name))
            if missing:
                cloud.wait_until_ready(Machine(instance, CLOUD), missing)
            return
        _down(instance)
        try:
            _up(instance, names_of_nodes(nodes), made)
            instance.mark_up()
        except BaseException:
            _show_last_logs(instance)
            _down(instance)
            raise


@contextmanager
def running(instance: Instance) -> Iterator[Instance]:
    """Yield a running instance; if none was running, start it with a node and end it afterwards. Raises LackError."""
    require_machine()
    if instance.is_up:
        yield instance
        return
    up(instance, 1)
    try:
        yield instance
    finally:
        down(instance)


def _up(instance: Instance, nodes: Sequence[str], made: Materials) -> None:
    say(f"booting cloud and {', '.join(nodes)} of {instance.name}")
    boot(instance, CLOUD, made)
    with ThreadPoolExecutor() as pool:
        laid = [pool.submit(_lay_out_node, instance, name, made) for name in nodes]
        cloud.lay_out(Machine(instance, CLOUD), legacy_cgroups=has_legacy_cgroups())
        say("the control plane is ready")
        for each in laid:
            each.result()
        for each in [pool.submit(node.join, Machine(instance, name)) for name in nodes]:
            each.result()
    say(f"{', '.join(nodes)} joined")
    cloud.wait_until_ready(Machine(instance, CLOUD), nodes)


def _lay_out_node(instance: Instance, name: str, made: Materials) -> None:
    boot(instance, name, made)
    units.move_node(Machine(instance, name), Machine(instance, CLOUD).moved)
    pause = kubeadm_images(made.programs["kubeadm"])["pause"]
    node.lay_out(Machine(instance, name), pause, legacy_cgroups=has_legacy_cgroups())


def has_legacy_cgroups() -> bool:
    """Whether machines have control groups of version 1."""
    return any(each.kind == "cgroup" for each in cgroups.here())


def boot(instance: Instance, name: str, made: Materials) -> None:
    """Boot a machine with its existing disk, and wait until systemd is up."""
    machine, clouds = Machine(instance, name), Machine(instance, CLOUD)
    binds = {ROOT: [CHECKOUT]}
    binds |= cloud.programs(made.programs) if name == CLOUD else node.programs(made.programs, made.images)
    held = machine.start(made.layers, binds)
    if name == CLOUD:
        network.lay_cloud(machine)
    else:
        network.lay_node(clouds, machine, carrier=network.cut_of(clouds, name) is not Cut.DOWN)
    held.close()
    machine.wait_until_up()


def down(instance: Instance) -> None:
    """End an instance, or clean up after a crash, and remove its state."""
    with locked(instance.folder):
        _down(instance)


def remove(instance: Instance, name: str) -> None:
    """Remove a node from the cluster, and its state."""
    machine = Machine(instance, name)
    with locked(instance.folder):
        cloud.kubectl(Machine(instance, CLOUD), "delete", "node", name)
        machine.end()
        shutil.rmtree(machine.folder)


def _down(instance: Instance) -> None:
    for name in reversed(instance.machines):
        Machine(instance, name).end()
    cgroups.end(instance.name)
    instance.forget()


def reboot(instance: Instance, name: str, *, offline: bool, later: str) -> None:
    """End a node as a power cut does, and boot it again with the same disk."""
    machine = Machine(instance, name)
    with locked(instance.folder):
        clouds = Machine(instance, CLOUD)
        if offline and network.cut_of(clouds, name) is None:
            network.cut(clouds, name, Cut.HOLE)
        machine.end()
        if later:
            _move_clocks(machine, clouds, later)
        boot(instance, name, materials())
        if later:
            until("the control plane is ready", lambda: cloud.is_ready(clouds), cloud.READY_TIMEOUT)


def _move_clocks(node: Machine, clouds: Machine, later: str) -> None:
    """Move the clocks of an ended node and of its cloud on; `0s` resets both to the machine's time."""
    units.require_x86()
    more = units.seconds(later)
    moved = more and clouds.moved + more
    units.move_cloud(clouds, moved)
    units.move_node(node, moved)


def _show_last_logs(instance: Instance) -> None:
    """Print the last log lines of the machines before they are stopped."""
    for name in instance.machines:
        machine = Machine(instance, name)
        if machine.runs:
            lines = machine.try_run("journalctl", "--no-pager", "--lines=40", "--priority=warning").stdout
            say(f"last log lines of {name}:\n{lines}")
