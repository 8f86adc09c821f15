"""The program as an operator starts it: its log, its one-line refusals, and a changed script file."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import urllib3
import yaml

from kube.http.exec_plugin import API_VERSIONS
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.processes import Process
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support import process as hub_process
from tests.hub.support.process import ROOT, Hub, ProcessFailedError, started

MITMDUMP = Path(sys.executable).with_name("mitmdump")


async def test_the_log_has_the_start_and_end_of_an_outage(tmp_path: Path, cloud: ScriptableCloud) -> None:
    host, _, port = cloud.url.removeprefix("http://").partition(":")
    with Link(host, int(port)) as link:
        hub = Hub(tmp_path, f"http://{link.host}:{link.port}", flags=("--pool", "harbour"))
        await asyncio.to_thread(hub.start)
        process = hub.process
        link.refuse()
        await asyncio.to_thread(process.wait_for_line, "offline since", 20)
        link.carry()
        await asyncio.to_thread(process.wait_for_line, "online again", 20)
        assert await asyncio.to_thread(hub.stop) == 0
    lines = [re.sub(r"^\S+ \S+ ", "", line) for line in process.lines]
    start = (
        rf"INFO addons\.assembly: edgehub \S+ starts: node node-1, pool harbour, ports on 127\.0\.0\.1: "
        rf"plain {hub.port}, TLS {hub.tls_port}, admin {hub.admin_port}, cloud http://\S+, state {hub.state}"
    )
    expected = [
        start,
        r"INFO addons\.rules\.in_force: .*",
        r"INFO addons\.assembly: ready",
        r"WARNING addons\.link\.probes: http://\S+ is down .*",
        r"WARNING addons\.ui\.link_log: offline since \S+, answering from copies \(http://\S+: .*\)",
        r"INFO addons\.link\.probes: http://\S+ is up again",
        r"INFO addons\.ui\.link_log: online again after \d+s; 0 writes replayed",
        r"INFO addons\.assembly: the hub stops",
    ]
    assert len(lines) == len(expected), lines
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), (pattern, line)


async def test_a_hub_whose_start_failed_is_ended_by_the_test(
    tmp_path: Path, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_process, "START_TIMEOUT", 0)
    hub = Hub(tmp_path, cloud.url)
    with pytest.raises(ProcessFailedError, match="did not become ready"):
        async with started(hub):
            pass
    assert not hub.is_running


async def test_the_log_can_be_json_lines_at_a_level(tmp_path: Path, cloud: ScriptableCloud) -> None:
    hub = Hub(tmp_path, cloud.url, flags=("--log-format", "json"))
    await asyncio.to_thread(hub.start)
    process = hub.process
    await asyncio.to_thread(hub.stop)
    found = [json.loads(line) for line in process.lines]
    assert found[0]["message"].startswith("edgehub ")
    assert found[-1]["message"] == "the hub stops"
    quiet = Hub(tmp_path, cloud.url, flags=("--log-level", "error"))
    await asyncio.to_thread(quiet.start)
    process = quiet.process
    await asyncio.to_thread(quiet.stop)
    assert process.lines == []


async def test_a_changed_script_file_is_not_reloaded(tmp_path: Path, cloud: ScriptableCloud) -> None:
    """`mitmdump -s` makes mitmproxy watch the file; an upgrade in place replaces it."""

    def replaced_under_mitmdump(folder: Path, server: str) -> None:
        for name in ("addons", "kube"):
            shutil.copytree(ROOT / name, folder / name)
        hub, admin, plain = folder / "addons" / "hub.py", free_port(), free_port()
        options = {
            "server": server,
            "node": "n1",
            "state_dir": str(folder / "state"),
            "admin_port": admin,
            "port": plain,
            "tls_port": 0,
            "peer_port": 0,
        }
        settings = [part for name, value in options.items() for part in ("--set", f"hub_{name}={value}")]
        command = [str(MITMDUMP), "-s", str(hub), *settings]
        process = Process("mitmdump", command, folder, {"PYTHONPATH": str(folder)})
        try:
            process.wait_for_line("ready", 30)
            hub.write_text("raise RuntimeError('half an upgrade')\n")
            time.sleep(2.5)  # mitmproxy checks the file once a second
            for url in (f"http://{LOOPBACK}:{admin}/healthz", f"http://{LOOPBACK}:{plain}/version"):
                assert urllib3.request("GET", url, timeout=5, retries=False).status == 200, url
            assert sum("Loading script" in line for line in process.lines) == 1
            assert not any("Traceback" in line for line in process.lines)
        finally:
            process.stop()

    await asyncio.to_thread(replaced_under_mitmdump, tmp_path, cloud.url)


def test_a_hub_whose_exec_plugin_fails_does_not_start(tmp_path: Path) -> None:
    """This holds even without the cloud, which the plugin may need, as its credentials are only in memory."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1")
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"exec": {"apiVersion": API_VERSIONS[0], "command": "false"}}
    kubeconfig.write_text(yaml.safe_dump(document))
    hub = Hub(tmp_path, "https://127.0.0.1:1", kubeconfig=kubeconfig)
    done = subprocess.run(hub.command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "the hub cannot start: exec plugin false ended with status 1" in done.stderr + done.stdout


def test_mitmdump_reports_a_wrong_option_in_one_line() -> None:
    command = [str(MITMDUMP), "-q", "-s", str(ROOT / "addons" / "hub.py")]
    given = ("--set", "hub_server=http://127.0.0.1:1", "--set", "hub_prot=1")
    done = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines() + done.stderr.splitlines()
    assert line.endswith("the hub cannot start: there is no option hub_prot: is it hub_port?")


def test_an_unknown_flag_of_an_interface_is_named_without_advice_about_the_hubs_own(tmp_path: Path) -> None:
    """mitmproxy called --port deprecated, and advised its own --listen-port."""
    hub = Hub(tmp_path, "http://127.0.0.1:1", flags=("--ui", "web", "--", "--frob"))
    done = subprocess.run(hub.command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "usage: edgehub [options]\nedgehub: error: unrecognized arguments: --frob\n"
    assert not done.stdout.strip()


@pytest.mark.parametrize("program", ["hub", "manager"])
def test_ctrl_c_while_a_program_loads_ends_it_without_a_traceback(program: str) -> None:
    launched = [sys.executable, "-X", "importtime", "-c", f"import edgehub; edgehub.{program}()"]
    with subprocess.Popen(launched, stderr=subprocess.PIPE, text=True) as loading:
        assert loading.stderr is not None
        while "kube.wire.encoding" not in loading.stderr.readline():
            assert loading.poll() is None
        loading.send_signal(signal.SIGINT)
        said = loading.stderr.read()
    assert loading.returncode == -signal.SIGINT
    assert "Traceback" not in said


@pytest.mark.parametrize("program", ["mitmdump", "mitmweb"])
def test_a_failure_to_build_the_parts_leaves_no_open_proxy(tmp_path: Path, program: str) -> None:
    """If a script fails, mitmproxy continues, and serves any client on its own port."""
    script, port = tmp_path / "hub.py", free_port()
    source = (ROOT / "addons" / "hub.py").read_text()
    script.write_text(
        source.replace("    listeners = OwnListeners()\n", "    raise RuntimeError('on purpose')\n")
    )
    command = [str(MITMDUMP.with_name(program)), "-p", str(port), "-s", str(script)]
    command += ["--set", "web_open_browser=false"] if program == "mitmweb" else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "the hub cannot start" in said
    assert "on purpose" in said
