"""Runs specs of upstream's e2e.test against one API, several processes at once, and reads their outcomes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

CANDIDATES = Path(__file__).with_name("specs.txt")
"""The names of upstream's specs that need no container to run."""
ON_NODE = Path(__file__).with_name("specs_on_node.txt")
"""Names of [Conformance] specs with containers that need only the images of a node of `scripts/node`."""
PROCESSES = 8
"""Concurrent processes of e2e.test. Its specs mostly wait."""
ALONE = "[Serial]"
"""The label of specs that must run alone."""
SLOW = "60s"
"""Time after which the log shows what a spec waits for."""
LONGEST = "30m"
"""Timeout of one process: one spec waits for a compaction of etcd, every five minutes."""


def chosen(focus: str, candidates: Path = CANDIDATES) -> list[str]:
    """Return the candidates whose name matches a regular expression."""
    return [name for name in candidates.read_text().splitlines() if re.search(focus, name)]


def run(
    programs: Mapping[str, Path],
    kubeconfig: Path,
    specs: Sequence[str],
    folder: Path,
    enter: Sequence[str] = (),
) -> dict[str, str]:
    """Run specs; return the outcome of each: "" if it passed, else the failure.

    `folder` gets the logs; `enter` is a command prefix that runs another command in its environment.
    """
    together = [name for name in specs if ALONE not in name]
    parts = [together[number::PROCESSES] for number in range(PROCESSES)]
    outcomes = dict.fromkeys(specs, "was not run")
    with ThreadPoolExecutor(PROCESSES) as pool:
        for report in pool.map(
            lambda numbered: _run_part(
                programs, kubeconfig, numbered[1], folder / f"part-{numbered[0]}", enter
            ),
            enumerate(filter(None, parts)),
        ):
            outcomes |= report
    if alone := [name for name in specs if ALONE in name]:
        outcomes |= _run_part(programs, kubeconfig, alone, folder / "serial", enter)
    return {name: outcomes[name] for name in specs}


def _run_part(
    programs: Mapping[str, Path],
    kubeconfig: Path,
    specs: Iterable[str],
    folder: Path,
    enter: Sequence[str],
) -> dict[str, str]:
    folder.mkdir(parents=True)
    command: list[str | Path] = [
        *enter,
        programs["e2e.test"],
        f"--kubeconfig={kubeconfig}",
        f"--kubectl-path={programs['kubectl']}",
        f"--report-dir={folder}",
        f"--ginkgo.focus={'|'.join(f'{re.escape(name)}$' for name in specs)}",
        f"--ginkgo.timeout={LONGEST}",
        "--ginkgo.no-color",
        f"--ginkgo.poll-progress-after={SLOW}",
        # There are no nodes to wait for, or to read logs from.
        "--allowed-not-ready-nodes=-1",
        "--num-nodes=1",
        "--disable-log-dump",
        "--dump-logs-on-failure=false",
    ]
    environment = {"HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    with (folder / "log").open("wb") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False)
    report = folder / "junit_01.xml"
    return read_report(report.read_bytes()) if report.exists() else {}


def read_report(report: bytes) -> dict[str, str]:
    """Return the outcomes in a JUnit report of e2e.test, by the names of the specs that ran."""
    outcomes = {}
    for case in ElementTree.fromstring(report).iter("testcase"):  # noqa: S314  # made by a program that we built
        name, status = case.get("name", "").removeprefix("[It] "), case.get("status", "")
        if status in ("skipped", "pending"):
            continue
        if status == "passed":
            outcomes[name] = ""
            continue
        message = next((element.text or "" for tag in ("failure", "error") for element in case.iter(tag)), "")
        outcomes[name] = " ".join(message.split()) or status
    return outcomes
