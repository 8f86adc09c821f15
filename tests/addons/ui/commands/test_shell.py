"""The shell's commands: their requests to a running hub, their output, and the programs that display it."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mitmproxy.tools import main as programs

from addons.ui.commands import shell
from addons.ui.commands.shell import REPORTS, add_observe_flags, query_of, run, show_lines
from addons.ui.commands.web_interface import run_web
from addons.ui.reports.text import TEXTS
from tests.addons.support.samples import SEEN
from tests.cloud.ports import LOOPBACK, free_port
from tests.support.server_thread import Answering, HttpServer

EXPLAIN = (
    *("explain", "--component", "kube-proxy", "--resource", "endpointslices"),
    *("--namespace", "a b", "--name", "web-1"),
)
TRIAL: dict[str, Any] = {
    "problems": [],
    "unnamedProblems": 0,
    "changes": True,
    "components": [],
    "unseen": [],
    "cached": {"gained": [], "lost": []},
    "lost": {"objects": 0, "endpoints": 0},
    "untried": [],
    "complete": True,
}


class FakeAdmin:
    """A hub's admin port that responds with `answer`, or with the received request if that is unset."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer: bytes | None = None
        self.code = 200
        self.posted = b""


@pytest.fixture
def admin() -> Iterator[FakeAdmin]:
    class Handler(Answering):
        def respond(self) -> None:
            if self.command == "POST":
                output_lines.posted = self.body()
            asked = f"{self.headers['Accept']} {self.path}\n".encode()
            self.answer(output_lines.answer if output_lines.answer is not None else asked, output_lines.code)

    with HttpServer(Handler) as server:
        output_lines = FakeAdmin(server.url)
        yield output_lines


@pytest.mark.parametrize(("flags", "accept"), [((), "text/plain"), (("--json",), "application/json")])
def test_explain_prints_the_response(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], accept: str
) -> None:
    assert run([*EXPLAIN, "--admin", f"{admin.url}/", *flags]) == 0
    query = "component=kube-proxy&resource=endpointslices&namespace=a+b&name=web-1&verb=list"
    assert capsys.readouterr().out == f"{accept} /debug/explain?{query}\n"


@pytest.mark.parametrize("name", [*REPORTS, "rules"])
def test_each_report_is_printed_as_text_and_as_json(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(TEXTS, name, lambda report: f"told {report}\n")
    admin.answer = b'["x"]'
    assert run([name, "--admin", admin.url]) == 0
    assert capsys.readouterr().out == "told ['x']\n"
    assert run([name, "--admin", admin.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ["x"]


@pytest.mark.parametrize("command", [["views"], EXPLAIN])
def test_control_characters_of_clients_are_escaped_on_the_terminal(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """A field selector may contain any character."""
    odd = "/api/v1/services?fieldSelector=metadata.name=\x1b[2Jx\ny\x9b1m"
    names = ("component", "filters", "kept", "changed", "hidden", "watchers", "version")
    row = {"path": odd, "labelSelector": "", "fieldSelector": odd, **dict.fromkeys(names, "")}
    admin.answer = json.dumps([row], ensure_ascii=False).encode() if command == ["views"] else odd.encode()
    assert run([*command, "--admin", admin.url]) == 0
    output_lines = capsys.readouterr().out.splitlines()
    assert len(output_lines) == 2
    assert all(map(str.isprintable, output_lines))


DRILL = {"allowed": True, "link": "offline", "text": "the link is offline until 12:00:00"}


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("offline",), "link=offline"),
        (("slow", "256", "600", "--minutes", "5"), "link=slow&kbps=256&ms=600&minutes=5"),
        (("online",), "link=online"),
    ],
)
def test_a_drill_is_sent_as_a_post(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], asked: str
) -> None:
    assert run(["link", *arguments, "--admin", admin.url, "--json"]) == 0
    assert capsys.readouterr().out == f"application/json /debug/link?{asked}\n"
    assert admin.posted == b""
    admin.answer = json.dumps(DRILL).encode()
    assert run(["link", *arguments, "--admin", admin.url]) == 0
    assert capsys.readouterr().out == (
        "DRILL: the link is offline until 12:00:00; it ends by itself, or with: edgehub link online\n"
    )


def test_a_drill_is_red_on_a_terminal(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.answer = json.dumps(DRILL).encode()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(["link", "--admin", admin.url]) == 0
    assert capsys.readouterr().out.startswith("\x1b[1;31mDRILL: ")
    admin.answer = b'{"allowed": false, "link": "online"}'
    assert run(["link", "--admin", admin.url]) == 0
    assert capsys.readouterr().out == (
        "the link is as it is; drills are not allowed: start the hub with --allow-drills\n"
    )


def test_dump_requests_the_named_objects(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dump", "services", "--namespace", "a", "--as", "kubelet", "--admin", admin.url]) == 0
    assert capsys.readouterr().out.endswith("/debug/dump?resource=services&namespace=a&name=&as=kubelet\n")


@pytest.mark.parametrize(
    ("given", "flags", "status"),
    [
        ({}, (), 0),
        ({"lost": {"objects": 2, "endpoints": 0}}, (), 1),
        ({"lost": {"objects": 0, "endpoints": 2}}, (), 1),
        ({"lost": {"objects": 2, "endpoints": 0}}, ("--allow-loss",), 0),
        ({"problems": [{"key": "k", "text": "t", "why": "w"}]}, ("--allow-loss",), 1),
        ({"complete": False}, (), 1),
        ({"untried": ["coredns endpoints"]}, ("--allow-loss",), 3),
        ({"untried": ["coredns endpoints"], "lost": {"objects": 1, "endpoints": 0}}, (), 1),
    ],
)
def test_the_exit_status_of_rules_try_shows_lost_objects(
    admin: FakeAdmin, tmp_path: Path, given: dict[str, Any], flags: tuple[str, ...], status: int
) -> None:
    (tmp_path / "edit.yaml").write_text("endpoints: x\n")
    admin.answer = json.dumps(TRIAL | given).encode()
    assert run(["rules", "try", str(tmp_path / "edit.yaml"), "--admin", admin.url, *flags]) == status
    assert admin.posted == b"endpoints: x\n"


def test_rules_try_reads_standard_input(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.answer = json.dumps(TRIAL).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"masterservice: y\n")))
    assert run(["rules", "try", "-", "--admin", admin.url]) == 0
    assert admin.posted == b"masterservice: y\n"


def test_support_writes_a_new_file_for_its_owner(
    admin: FakeAdmin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.answer = b"packed"
    path = tmp_path / "support.tar.gz"
    assert run(["support", str(path), "--admin", admin.url]) == 0
    assert path.read_bytes() == b"packed"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run(["support", str(path), "--admin", admin.url]) == 1
    assert "File exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "message"),
    [(b'{"message": "not for you"}', "refuses: not for you"), (b"<html>", "refuses: HTTP Error 403")],
)
def test_a_refusal_of_the_admin_port_is_printed(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str], answer: bytes, message: str
) -> None:
    admin.code, admin.answer = 403, answer
    assert run(["status", "--admin", admin.url]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", [["status"], ["observe"], ["attach", "--ui", "web"]])
def test_the_error_names_a_port_that_belongs_to_another_program(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    class Page(Answering):
        def respond(self) -> None:
            self.answer(b"<html>", content_type="text/html")

    with HttpServer(Page) as server:
        assert run([*command, "--admin", server.url]) == 1
    assert (
        capsys.readouterr().err == f"{server.url} is no admin port of a hub: --admin names the port of one\n"
    )


@pytest.mark.parametrize(
    "url", [f"http://{LOOPBACK}:1", "file:///etc/hostname", "http://[::1", "http://a.invalid:1"]
)
def test_an_unreachable_hub_is_reported(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert run([*EXPLAIN, "--admin", url]) == 1
    said = capsys.readouterr()
    assert url in said.err
    assert "Errno" not in said.err
    assert not said.out


def test_a_missing_file_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["rules", "try", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["explain", "--component", "kube-proxy"], ["nonsense"], ["support"]])
def test_a_missing_argument_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(arguments)
    assert caught.value.code == 2


def test_the_kubeconfig_command_prints_the_hub_without_credentials(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.answer = b'{"url": "http://127.0.0.1:1234"}'
    assert run(("kubeconfig", "--admin", admin.url)) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    # client-node refuses a plain http server unless verification is off.
    cluster = {"server": "http://127.0.0.1:1234", "insecure-skip-tls-verify": True}
    assert found["clusters"] == [{"name": "edgehub", "cluster": cluster}]
    assert found["users"] == [{"name": "node", "user": {}}]
    admin.answer = b'{"url": ""}'
    assert run(("kubeconfig", "--admin", admin.url)) == 1
    assert "no plain port" in capsys.readouterr().err


def test_a_command_that_calls_a_hub_imports_no_proxy() -> None:
    program = "import sys, addons.ui.commands.shell; print('mitmproxy.http' in sys.modules)"
    output_lines = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert output_lines.stdout == "False\n"


LINE = json.dumps(SEEN.to_json()).encode() + b"\n"


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("", {}),
        ("--component kubelet --events", {"component": "kubelet", "events": "1"}),
        ("--since 5m --follow", {"since": "300", "follow": "1"}),
        ("--verdict offline --namespace a", {"verdict": "offline", "namespace": "a"}),
    ],
)
def test_flags_of_observe_become_a_query(typed: str, asked: dict[str, str]) -> None:
    parser = argparse.ArgumentParser()
    add_observe_flags(parser)
    assert query_of(parser.parse_args(typed.split())) == asked


@pytest.mark.parametrize("typed", ["--since 5", "--since x", "--verdict lost"])
def test_invalid_flags_of_observe_are_errors(typed: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_observe_flags(parser)
    with pytest.raises(argparse.ArgumentError):
        parser.parse_args(typed.split())


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["observe", "kubeconfig"])
def test_a_closed_output_pipe_prints_no_error(admin: FakeAdmin, command: str, unbuffered: str) -> None:
    admin.answer = {"observe": LINE * 10_000, "kubeconfig": b'{"url": "http://hub"}'}[command]
    reading, writing = os.pipe()
    os.close(reading)
    program = f"import sys; from addons.ui.commands.shell import run; sys.exit(run({[command, '--admin', admin.url]}))"
    with open(writing, "wb") as closed:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            stdout=closed,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    ("output", "expected"), [("text", "kube-proxy"), ("wide", "v42"), ("json", '"version": 42')]
)
def test_observed_lines_hints_and_losses_are_printed(
    output: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_lines([b'{"hint": "nobody"}\n', b"\n", LINE, b'{"dropped": 3}\n'], output)
    printed = capsys.readouterr()
    assert expected in printed.out
    left_out = "edgehub: 3 lines are left out: they came faster than they were read\n"
    assert printed.err == f"edgehub: nobody\n{left_out}"


def test_an_unreachable_hub_leaves_no_empty_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, admin = tmp_path / "flows.mitm", f"http://127.0.0.1:{free_port()}"
    assert shell.run(["attach", "-w", str(file), "--admin", admin]) == 1
    said = capsys.readouterr().err
    assert said.endswith(
        f"the hub at {admin} does not answer: nothing listens there: does a hub run here? "
        "--admin names another port of it\n"
    )
    assert "flows" not in said.removesuffix(said.splitlines()[-1])
    assert not file.exists()


def test_a_web_port_in_use_is_reported_in_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: list[str]) -> None:
        assert arguments == ["-s", "x"]
        raise OSError(
            errno.EADDRINUSE, "Web server failed to listen on 127.0.0.1:8081 with [Errno 98] Address"
        )

    monkeypatch.setattr(programs, "mitmweb", fail)
    with pytest.raises(SystemExit, match=r"8081: Address already in use; .*-- --set web_port=PORT$"):
        run_web(["-s", "x"])
