"""What `scripts/hub explain` asks, prints and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from addons.ui.commands.shell import run
from tests.cloud.ports import LOOPBACK, free_port

ASKED = ("--component", "kube-proxy", "--resource", "endpointslices", "--namespace", "a b", "--name", "web-1")


@pytest.fixture
def admin() -> Iterator[str]:
    """A hub's admin port that tells what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{self.headers['Accept']} {self.path}\n".encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Standard error is the test's."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://{LOOPBACK}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("flags", "accept"), [((), "text/plain"), (("--json",), "application/json")])
def test_it_prints_the_answer(
    admin: str, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], accept: str
) -> None:
    assert run(["explain", *ASKED, "--admin", f"{admin}/", *flags]) == 0
    query = "component=kube-proxy&resource=endpointslices&namespace=a+b&name=web-1&verb=list"
    assert capsys.readouterr().out == f"{accept} /debug/explain?{query}\n"


@pytest.mark.parametrize(
    "url", [f"http://{LOOPBACK}:{free_port()}", "file:///etc/hostname"], ids=["nobody listens", "no http"]
)
def test_a_hub_that_cannot_be_asked(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert run(["explain", *ASKED, "--admin", url]) == 1
    said = capsys.readouterr()
    assert url in said.err
    assert not said.out


def test_what_must_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["explain", "--component", "kube-proxy"])
    assert caught.value.code == 2
    assert "--resource" in capsys.readouterr().err
