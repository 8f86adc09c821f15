"""`scripts/node`: runs a real kubeadm node and its cloud in namespaces of this machine, by one command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from scripts.node_machine import cloud, lifecycle, network
from scripts.node_machine.commands import FailedError, LackError, require_machine, say
from scripts.node_machine.instances import CLOUD, NAME_VARIABLE, Instance, own
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import Cut
from tests.cloud.build import BuildError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit status 2: the machine lacks something, named in one line; 1: the command failed."""
    try:
        given = parser().parse_args(arguments)
        require_machine()
        return run(Instance(given.name), given)
    except LackError as error:
        say(str(error))
        return 2
    except (FailedError, BuildError, ValueError) as error:
        say(str(error))
        return 1


def parser() -> argparse.ArgumentParser:
    """Build the command-line parser."""
    made = argparse.ArgumentParser(prog="scripts/node", description=__doc__)
    made.add_argument(
        "--name",
        default=own().name,
        help=f"name of the instance; default: ${NAME_VARIABLE}, or the checkout's, %(default)s",
    )
    commands = made.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start control plane and nodes, and wait until all pods are ready")
    up.add_argument("--nodes", type=int, default=1, choices=range(1, 10), help="number of nodes; default: 1")
    commands.add_parser("down", help="stop everything, and remove its files")
    commands.add_parser("status", help="print the machines, each with the process ID of its init")
    reboot = commands.add_parser("reboot", help="power a node off without a shutdown, and boot it again")
    reboot.add_argument(
        "--offline",
        action="store_true",
        help="disconnect it from the cloud before (hole), if it is connected",
    )
    reboot.add_argument(
        "--later", default="", metavar="TIME", help="advance the clocks of node and cloud: 1h, 40d; 0s: reset"
    )
    cut = commands.add_parser("cut", help="disconnect a node from the cloud")
    cut.add_argument("how", nargs="?", type=Cut, default=Cut.HOLE, help=f"{', '.join(Cut)}; default: hole")
    heal = commands.add_parser("heal", help="connect the node again")
    shell = commands.add_parser("sh", help="run a command on a node, or a shell")
    for each in (reboot, cut, heal, shell):
        each.add_argument(
            "--on",
            default="edge-1",
            help="name of the node, such as edge-2; for sh also cloud; default: edge-1",
        )
    kubectl = commands.add_parser("kubectl", help="run kubectl against the cloud, as administrator")
    for each in (shell, kubectl):
        each.add_argument("words", nargs=argparse.REMAINDER, help="the command and its arguments")
    return made


def run(instance: Instance, given: argparse.Namespace) -> int:
    """Run one parsed command."""
    clouds = Machine(instance, CLOUD)
    match given.command:
        case "up":
            lifecycle.up(instance, given.nodes)
        case "down":
            lifecycle.down(instance)
        case "reboot":
            lifecycle.reboot(instance, given.on, offline=given.offline, later=given.later)
        case "cut":
            network.cut(clouds, given.on, given.how)
        case "heal":
            network.heal(clouds, given.on)
        case "status":
            for name in instance.machines:
                print(name, instance.pid(name) or "ended", network.cut_of(clouds, name) or "")
        case "sh":
            become(Machine(instance, given.on).enter(*(_command(given.words) or ["bash", "--login"])))
        case "kubectl":
            become(clouds.enter("kubectl", f"--kubeconfig={cloud.KUBECONFIG}", *_command(given.words)))
    return 0


def _command(given: Sequence[str]) -> list[str]:
    return [*given[1:]] if given and given[0] == "--" else [*given]


def become(command: Sequence[str]) -> None:
    """Replace this process with a command."""
    os.chdir("/")
    os.execvp(command[0], [*command])  # noqa: S606 - a person speaks to it


if __name__ == "__main__":
    sys.exit(main())
