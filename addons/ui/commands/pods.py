"""`edgehub pods`: lists this node's pods that wait for an update, updates one, or pulls its images."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from addons.ui.commands.asking import NoAnswer, open_page
from addons.ui.reports.text import Column, Row, table
from kube.json_type import Json
from kube.log_lines import printable
from kube.pod_conditions import IMAGE_READY, NEED_UPGRADE

ACTIONS = ("upgrade", "imagepull")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("action",),
        nargs="?",
        choices=ACTIONS,
        help="upgrade: replace the pod now; imagepull: pull its new images first.",
    )
    parser.add_argument("pod", nargs="?", default="", metavar="NAME", help="The pod.")
    parser.add_argument(
        "--namespace", default="", help="Without it, that of the one waiting pod of this name."
    )
    parser.add_argument("--json", action="store_true", help="The waiting pods for tools.")


def run(options: argparse.Namespace) -> int:
    """Run the command. Return the exit status; NoAnswer if the hub does not answer or refuses."""
    if options.action is None:
        show(waiting(options.admin), as_json=options.json)
        return 0
    if not options.pod:
        options.own.error(f"{options.action} needs the NAME of a pod")
    namespace = options.namespace or namespace_of(options.pod, waiting(options.admin))
    path = f"/openyurt.io/v1/namespaces/{namespace}/pods/{options.pod}/{options.action}"
    with open_page(options.admin, path, accept="*/*", body=b"") as answer:
        print(printable(answer.read().decode()))
    return 0


def waiting(admin: str) -> list[Json]:
    """Return the pods that need an upgrade, from the node's own copy."""
    with open_page(admin, "/pods") as answer:
        pods: list[Json] = json.load(answer)["items"]
    return [pod for pod in pods if conditions_of(pod).get(NEED_UPGRADE, {}).get("status") == "True"]


def conditions_of(pod: Row) -> dict[str, Any]:
    return {found["type"]: found for found in (pod.get("status") or {}).get("conditions") or []}


def namespace_of(name: str, pods: list[Json]) -> str:
    """Return the namespace of the only pod with this name. NoAnswer if there is none, or several."""
    found = [pod["metadata"]["namespace"] for pod in pods if pod["metadata"]["name"] == name]
    if len(found) != 1:
        why = f"in {', '.join(sorted(found))}" if found else "nowhere"
        raise NoAnswer(f"a pod {name} waits for an update {why}: name one by --namespace")
    return str(found[0])


def show(pods: list[Json], *, as_json: bool) -> None:
    """Print the pods as a table, or as a JSON array."""
    if as_json:
        print(json.dumps(pods, indent=2))
        return
    if not pods:
        print("no pod of this node waits for an update")
        return
    print(table(pods, COLUMNS), end="")


def _daemonset(pod: Row) -> str:
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("name", ""))


def images(pod: Row) -> str:
    """Return the state of the new images on the node."""
    found = conditions_of(pod)
    ready, wanted = found.get(IMAGE_READY), found[NEED_UPGRADE].get("message", "")
    if ready is None:
        return "not asked for"
    if ready.get("message") != wanted:
        return str(ready.get("reason") or "of another template")
    return "pulled" if ready.get("status") == "True" else "being pulled"


COLUMNS: Sequence[Column] = (
    ("namespace", lambda pod: pod["metadata"]["namespace"]),
    ("name", lambda pod: pod["metadata"]["name"]),
    ("daemonset", _daemonset),
    ("images", images),
)
