"""A process in a pod's network that calls the API server repeatedly, and records the longest time without a response.
It uses the pod's address of the API server, its token and its CA, and opens a connection for each call."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

from scripts.node_machine.machine import Machine
from tests.node.support.callers import Caller

MOST = 5.0
"""The maximum seconds without the API server for a pod while its hub is installed, upgraded or removed."""
PROGRAM = """\
import json, pathlib, ssl, sys, threading, time, urllib.request
process = pathlib.Path(f"/proc/{sys.argv[1]}")
words = (process / "environ").read_text().split(chr(0))
own = dict(word.partition("=")[::2] for word in words)
host, port = (own[f"KUBERNETES_SERVICE_{name}"] for name in ("HOST", "PORT"))
account = process / "root/var/run/secrets/kubernetes.io/serviceaccount"
trust = ssl.create_default_context(cadata=(account / "ca.crt").read_text())
token = (account / "token").read_text()
asked = urllib.request.Request(
    f"https://{host}:{port}/api/v1/namespaces/default/services", headers={"Authorization": f"Bearer {token}"}
)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
last, longest, why, answers = time.monotonic(), 0.0, "", 0
while not ended.wait(0.2):
    try:
        with urllib.request.urlopen(asked, timeout=2, context=trust) as answer:
            answer.read()
        answers += 1
        gap, last = time.monotonic() - last, time.monotonic()
        longest = max(longest, gap)
    except OSError as error:
        why = str(error)
gap = time.monotonic() - last
print(json.dumps({"longest": max(longest, gap), "why": why, "answers": answers}))
"""


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time, in seconds, from one response to the next, the last error, and the number of responses."""

    longest: float
    why: str
    answers: int


class Asker:
    """A process that sends a request every 0.2 s while the context is open."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        node, pid = self._caller.node, self._caller.pid()
        inside = ("nsenter", f"--target={pid}", "--net", "python3", "-c", PROGRAM, pid)
        self._process = _open(node, *inside)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.communicate()

    def stop(self) -> Gap:
        """End the process; return its record."""
        assert self._process is not None
        said, _ = self._process.communicate()
        return Gap(**json.loads(said))


@contextmanager
def answered_throughout(what: str, *callers: Caller) -> Iterator[None]:
    """Send requests from each of these pods during the block, print the longest time without a response, and check its
    bound."""
    with ExitStack() as stack:
        askers = {each.name: stack.enter_context(Asker(each)) for each in callers}
        yield
        gaps = {name: asker.stop() for name, asker in askers.items()}
    for name, gap in gaps.items():
        print(f"{what}: {name} was without an answer for {gap.longest:.1f} s at most, {gap.answers} answers")
        assert gap.answers, (what, name, gap)
        assert gap.longest <= MOST, (what, name, gap)


def _open(node: Machine, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        node.enter(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    )
