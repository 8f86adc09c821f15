"""`scripts/conformance`: runs Kubernetes' own end-to-end tests at kube-apiserver and through a hub.

Only specs count that pass directly on this control plane: etcd, kube-apiserver and kube-controller-manager, without
kubelet. docs/conformance.md describes each mode.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from scripts.conformance_tests import api_paths, on_node, specs
from scripts.node_machine.commands import LackError, say
from tests.cloud.build import E2E, ensure_binaries
from tests.cloud.real import RealCloud

DIRECT = "direct"
WATCHES_NODES = "node-lifecycle-controller"
"""The controller that is disabled, because it would notice that nothing runs on the node."""
COMPACTION = "--etcd-compaction-interval=1m"
"""The interval of etcd's compaction, for a spec that waits for one; the default is five minutes."""


def outcomes(programs: Mapping[str, Path], names: Sequence[str], mode: str, folder: Path) -> dict[str, str]:
    """Run the specs in a mode with `specs.run`, on a control plane of its own."""
    controllers = ["*", f"-{WATCHES_NODES}"]
    with RealCloud(
        folder / "cloud", programs, controllers=controllers, apiserver_flags=[COMPACTION]
    ) as cloud:
        api_paths.add_node(cloud)
        straight = nullcontext(cloud.admin_kubeconfig())
        kubeconfig_of_mode = (
            straight if mode == DIRECT else api_paths.through_hub(cloud, mode, folder / "hub")
        )
        with kubeconfig_of_mode as kubeconfig:
            return specs.run(programs, kubeconfig, names, folder / "specs")


def verdict(name: str, mode: str, why: str | None) -> str:
    """Return the table's cell of a spec in a mode. `why` is an outcome of `specs.run`, None if the spec was not run
    there."""
    if why is None:
        return "-"
    modes, _ = api_paths.FORBIDDEN.get(name, ((), ""))
    if mode in modes:
        return "forbidden" if why else "ALLOWED"
    return "FAILED" if why else "passed"


def table(direct: Mapping[str, str], modes: Mapping[str, Mapping[str, str]]) -> str:
    """Return a row for each spec, with its message if it fails; then the totals."""
    columns = {DIRECT: direct, **modes}
    lines = ["  ".join([*(f"{mode:9}" for mode in columns), "spec"])]
    sums = {mode: Counter[str]() for mode in columns}
    for name in direct:
        verdicts = {mode: verdict(name, mode, reports.get(name)) for mode, reports in columns.items()}
        lines.append("  ".join([*(f"{text:9}" for text in verdicts.values()), name]))
        for mode, text in verdicts.items():
            sums[mode][text] += 1
            if text == "FAILED":
                lines.append(f"    {mode}: {columns[mode][name]}")
    for mode, counted in sums.items():
        del counted["-"]
        outcome_counts = ", ".join(f"{count} {text}" for text, count in counted.items())
        lines.append(f"{mode}: {counted['passed']} of {counted.total()} ({outcome_counts})")
    return "\n".join(lines)


def main() -> int:
    """Run the specs, and print the table.

    Exit status 1 if a spec passes directly and fails through a hub, in a mode that does not forbid it; 2 if the machine
    lacks something that a node needs.
    """
    parser = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__)
    parser.add_argument(
        "--mode", nargs="+", choices=api_paths.MODES, default=api_paths.MODES, help="Default: all."
    )
    parser.add_argument("--focus", default="", help="Regular expression: run only specs whose names match.")
    parser.add_argument(
        "--node",
        action="store_true",
        help="Run specs with containers, on a node of scripts/node, without modes.",
    )
    options = parser.parse_args()
    programs = {**ensure_binaries(), **ensure_binaries(recipe=E2E)}
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    print(f"logs: {folder}", file=sys.stderr, flush=True)
    if options.node:
        try:
            direct, *others = on_node.outcomes(programs, specs.chosen(options.focus, specs.ON_NODE), folder)
        except LackError as error:
            say(str(error))
            return 2
        modes = dict(zip(on_node.MODES, others, strict=True))
    else:
        direct = outcomes(programs, specs.chosen(options.focus), DIRECT, folder / DIRECT)
        passing = [name for name, why in direct.items() if not why]
        modes = {mode: outcomes(programs, passing, mode, folder / mode) for mode in options.mode}
    print(table(direct, modes))
    verdicts = {verdict(name, mode, why) for mode, reports in modes.items() for name, why in reports.items()}
    return int(not verdicts <= {"passed", "forbidden"})


if __name__ == "__main__":
    sys.exit(main())
