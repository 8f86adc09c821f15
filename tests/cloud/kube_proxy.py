"""The real kube-proxy with a recorded iptables: the rules that it would write on a node. It runs without privileges. A
script replaces the system's iptables: it records the input of `iptables-restore` and accepts all other calls, so
nothing in the machine's network changes."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from itertools import groupby
from pathlib import Path

from tests.cloud.hollow import READY_TIMEOUT, wait_caches_synced
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.processes import Component, Process, ProcessFailedError
from tests.cloud.versions import node_minor

PROGRAM = "kube-proxy"
SYNCED = "SyncProxyRules complete"
"""The log line after each write of rules."""
NETWORK_CAPABILITIES = "-net_admin,-net_raw,-sys_admin,-sys_module,-sys_resource"
"""Capabilities that kube-proxy must not have, because it also uses netlink, past the fake iptables script."""
NODE_PORTS_OF_PRIMARY = 31
"""The minor version from which kube-proxy accepts "primary" for its node's own address."""
FAKE_IPTABLES = """\
#!/bin/sh
case "$1" in --version) echo 'iptables v1.8.9 (legacy)'; exit;; esac
case "$0" in *-restore) { date '+# %m%d %H:%M:%S.%N'; exec cat; } >>"$EDGEHUB_TEST_RULES";; esac
"""


class KubeProxy(Component):
    """The kube-proxy of a node. It waits until the Node exists and has an address."""

    def __init__(self, node: str, kubeconfig: Path, folder: Path, programs: Mapping[str, Path]) -> None:
        self._rules = folder / f"kube-proxy-{node}.rules"
        self._rules.touch()
        tools = folder / "iptables"
        _install_fakes(tools)
        self._health_port = free_port()
        flags = [
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={node}",
            "--proxy-mode=iptables",
            f"--healthz-bind-address={LOOPBACK}:{self._health_port}",
            f"--metrics-bind-address={LOOPBACK}:{free_port()}",
            # Write rules at once, not at most once a second.
            "--iptables-min-sync-period=0s",
            # Keep kernel and process settings unchanged.
            "--iptables-localhost-nodeports=false",
            *(["--nodeport-addresses=primary"] if node_minor() >= NODE_PORTS_OF_PRIMARY else []),
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
            "--oom-score-adj=0",
            "-v=2",
        ]
        self.process = Process(
            f"kube-proxy-{node}",
            [*_without_network_rights(), programs[PROGRAM], *flags],
            folder,
            env={
                "PATH": str(tools) + os.pathsep + os.environ["PATH"],
                "EDGEHUB_TEST_RULES": str(self._rules),
            },
        )

    def wait_synced(self, timeout: float = READY_TIMEOUT) -> None:
        """Return when it has read everything and has written rules once; raises ProcessFailedError."""
        wait_caches_synced(self.process, timeout)
        self.process.wait_for_line(SYNCED, timeout)

    def endpoints(self) -> dict[str, frozenset[str]]:
        """Return the `address:port`s of each cluster IP's rules, by `namespace/name:port name`."""
        return parse_endpoints(self._rules.read_text().splitlines())

    def history(self, service_port: str) -> list[frozenset[str]]:
        """Return the targets of a service port in each write of rules, without repetitions."""
        return [state for state, _ in groupby(each for _, each in self._led(service_port))]

    def _led(self, service_port: str) -> Iterator[tuple[str, frozenset[str]]]:
        for at, endpoints in states_of(self._rules.read_text().splitlines()):
            yield at, endpoints.get(service_port, frozenset())

    def wait_endpoints(self, service_port: str, wanted: Set[str], timeout: float = READY_TIMEOUT) -> None:
        """Return when a service port has exactly these addresses; raises ProcessFailedError."""
        deadline = time.monotonic() + timeout
        while True:
            mark = len(self.process.lines)
            found = self.endpoints().get(service_port, frozenset())
            if found == wanted:
                return
            try:
                self.process.wait_for_line(SYNCED, max(0.0, deadline - time.monotonic()), after=mark)
            except ProcessFailedError as error:
                error.add_note(f"It leads {service_port} to {sorted(found)}, wanted is {sorted(wanted)}.")
                raise

    def led_at(self, service_port: str, wanted: Set[str]) -> datetime:
        """Return the start time of the write that first set exactly these addresses for a service port."""
        at = next(at for at, state in self._led(service_port) if state == wanted)
        return time_of(*at.split())


def time_of(day: str, time_of_day: str) -> datetime:
    """Parse a time of this year: the end of a date such as `1123`, and `19:55:04.123456` with or without more
    digits."""
    return datetime.fromisoformat(f"{datetime.now():%Y}{day[-4:]} {time_of_day[:15]}")


def parse_endpoints(lines: Iterable[str]) -> dict[str, frozenset[str]]:
    """Apply a sequence of `iptables-restore --noflush` inputs, each at its COMMIT, and return the endpoints."""
    return deque(states_of(lines), maxlen=1)[0][1]


def states_of(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, frozenset[str]]]]:
    """Return the targets of each cluster IP at first, and after each write in such a log, whose writes begin with their
    time. Naming a chain (`:CHAIN`) empties it; kube-proxy names only the chains that it rewrites. The table `nat`
    translates addresses; rejections for services without endpoints, in `filter`, are ignored."""
    chains: dict[str, list[str]] = {}
    pending: dict[str, list[str]] = {}
    table = at = ""
    yield at, {}
    for line in lines:
        match line.split(maxsplit=2):
            case ["#", day, time_of_day]:
                at = f"{day} {time_of_day}"
            case [chain_field] if chain_field.startswith("*"):
                table, pending = chain_field, {}
            case [chain_field, _, _] if chain_field.startswith(":"):
                pending[chain_field[1:]] = []
            case ["-A", chain, rule]:
                pending.setdefault(chain, []).append(rule)
            case ["COMMIT"] if table == "*nat":
                chains |= pending
                yield at, _endpoints_of(chains)


def _endpoints_of(chains: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    endpoints: dict[str, frozenset[str]] = {}
    for rule in chains.get("KUBE-SERVICES", ()):
        if found := re.search(r'--comment "(\S+) cluster IP" .*-j (KUBE-SVC-\w+)$', rule):
            targets = (re.search(r'--comment "\S+ -> (\S+)"', each) for each in chains.get(found[2], ()))
            endpoints[found[1]] = frozenset(target[1] for target in targets if target)
    return endpoints


def _install_fakes(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    # Without ip6tables kube-proxy uses IPv4 only.
    for name in ("iptables", "iptables-save", "iptables-restore"):
        script = folder / name
        script.write_text(FAKE_IPTABLES)
        script.chmod(0o755)


def _without_network_rights() -> list[str]:
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise RuntimeError(
            "kube-proxy must not run as root here: start the tests as a user, or install setpriv"
        )
    return [setpriv, f"--bounding-set={NETWORK_CAPABILITIES}"]
