"""The README's first command, as a user or a script runs it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.cloud.processes import Process
from tests.support.polling import eventually

ROOT = Path(__file__).parents[2]
SHOWN = (
    "node-1 (pool harbour): 10.1.0.1 on node-1",
    "node-2 (pool airport): 10.2.0.1 on node-2",
    "the same watch, a moment later: MODIFIED 10.1.0.1 on node-1",
    "kube-proxy's watch on node-1: MODIFIED 10.1.0.1 on node-1, 10.2.0.9 on node-1",
)


@pytest.mark.parametrize(
    "flags", [(), pytest.param(("--real",), marks=[pytest.mark.real, pytest.mark.timeout(120)])]
)
def test_the_demo_prints_the_lines_of_the_readme_and_ends(flags: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "demo", *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    for line in SHOWN:
        assert line in done.stdout
    assert "What to look at next:\n  scripts/demo --ui web " in done.stdout
    if flags:
        assert "kubelet: node-1 is Ready" in done.stdout
    else:
        shown = re.search(r"The demo prints.*?\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        assert shown is not None
        assert set(shown[1].splitlines()) <= set(done.stdout.splitlines()), "the README shows it"
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("line", ["edgehub: a hub on each", "1. The same list"], ids=["starts", "runs"])
def test_a_demo_ended_by_a_signal_leaves_no_processes_or_files(
    tmp_path: Path, ending: signal.Signals, line: str
) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    demo = Process("demo", [ROOT / "scripts" / "demo"], tmp_path, {"TMPDIR": str(folder)})
    try:
        demo.wait_for_line(line, 60)
        os.kill(demo.pid, ending)
    finally:
        assert demo.stop(grace=30) == 128 + signal.SIGINT
    assert not [line for line in demo.lines if "Traceback" in line]
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("is_loading", "expected"), [(True, -signal.SIGINT), (False, 128 + signal.SIGINT)])
def test_control_c_at_a_terminal_ends_the_demo_without_a_traceback(
    tmp_path: Path, is_loading: bool, expected: int
) -> None:
    """A terminal signals every process of the demo: hubs that ended by themselves once made the demo fail."""
    folder = tmp_path / "place"
    folder.mkdir()
    log = tmp_path / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [ROOT / "scripts" / "demo"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder)},
        ) as demo,
    ):

        def is_without_a_handler() -> bool:
            """Return whether Python has started the demo, and leaves SIGINT to the kernel."""
            process = Path("/proc", str(demo.pid))
            fields = dict(re.findall(r"(Sig\w+):\s+(\w+)", (process / "status").read_text()))
            ignored, caught = int(fields["SigIgn"], 16), int(fields["SigCgt"], 16)
            is_python = "scripts.demonstration" in (process / "cmdline").read_text()
            has_begun = is_python and bool(ignored & 1 << signal.SIGPIPE - 1)
            return has_begun and not (caught | ignored) & 1 << signal.SIGINT - 1

        if is_loading:
            eventually(is_without_a_handler, "Python has started", 60)
        else:
            eventually(lambda: "a hub on each" in log.read_text(), "the demo starts hubs", 60)
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.wait(30) == expected
    assert bool(log.read_text()) != is_loading
    assert "Traceback" not in log.read_text()
    assert not list(folder.iterdir())


def test_an_interactive_demo_has_components_and_ends_with_its_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    env = {"TMPDIR": str(folder)}
    demo = Process("demo", [ROOT / "scripts" / "demo", "--ui", "web"], tmp_path, env)
    try:
        page = demo.wait_for_line(r"The hub's page: +http", 60).split()[-1]
        assert "/?token=" in demo.wait_for_line("edgehub: open http", 60)
        for component in ("kube-proxy", "kubelet", "flanneld", "inventory"):
            until_shown(f"{page}/debug/components", component)
    finally:
        os.kill(demo.pid, signal.SIGINT)
        assert demo.stop(grace=30) == 0
    assert not list(folder.iterdir()), "it leaves nothing behind"


LINE = re.compile(
    r"^\S+  (?P<component>\S+) +(?P<verb>\S+) +(?P<what>.+?) +(?P<route>\w+) +(?P<code>\d+) +\d"
)
"""A request as printed by `observe`."""


def test_every_line_of_the_demos_outage_has_the_expected_status(tmp_path: Path) -> None:
    """The demo's kubelet once patched a Lease, and read JSON while the copies were in protobuf, so visitors saw 503 and
    406."""

    def ask(url: str) -> Any:
        headers = {"Accept": "application/json"}
        return urllib3.request("GET", url, headers=headers, retries=False).json()

    hub = ROOT / "scripts" / "hub"

    def rehearse(watched: Process, page: str) -> None:
        """Run an outage from its start until each kind of request was printed after its end."""
        with_a_cloud = (
            "kubelet +get +nodes .* relayed ",
            "kubelet +patch +nodes/status .* relayed ",
            "kubelet +update +leases.* viewed .* hub",
            "inventory +list +configmaps .* viewed .* cloud",
        )
        without = (
            "kubelet +get +nodes .* offline .* copy",
            "kubelet +patch +nodes/status .* offline .* copy",
            "kubelet +update +leases.* viewed .* hub",
            "inventory +list +configmaps .* offline .* copy",
        )
        for link, patterns in (("online", with_a_cloud), ("offline", without), ("online", with_a_cloud)):
            subprocess.run([hub, "link", link, "--admin", page], check=True, capture_output=True)
            seen = len(watched.lines)
            for pattern in patterns:
                watched.wait_for_line(pattern, 60, after=seen)

    demo = Process("demo", [ROOT / "scripts" / "demo", "--ui", "web"], tmp_path)
    try:
        page = demo.wait_for_line(r"The hub's page: +http", 60).split()[-1]
        until_shown(f"{page}/readyz", "ok")
        watched = Process("observe", [hub, "observe", "--follow", "--admin", page], tmp_path)
        try:
            rehearse(watched, page)
        finally:
            watched.stop()
        shown = {line: found for line in watched.lines if (found := LINE.match(line))}
        assert [line for line, found in shown.items() if found["code"] not in ("200", "201")] == []
        # On idle cores the terminal also shows how the other components start their watches.
        assert {found["component"] for found in shown.values()} >= {"kubelet", "inventory"}
        status, components = (ask(f"{page}/debug/{name}") for name in ("status", "components"))
        assert [each for each in components if each["errors"]] == []
        assert status["journal"] == 0
        assert status["bytes"]["fromCopies"] > 0.8 * status["bytes"]["sent"], "what copies are for"
    finally:
        os.kill(demo.pid, signal.SIGINT)
        demo.stop(grace=30)


def until_shown(url: str, text: str) -> None:
    """Return when a page contains a text, which may appear later, without a notification."""

    def shown() -> bool:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            headers = {"Accept": "application/json"}
            return text in urllib3.request("GET", url, headers=headers, retries=False).data.decode()
        return False

    eventually(shown, text)
