"""Starts and stops the node's services by systemctl, or by a program that takes its place."""

from __future__ import annotations

import subprocess

HUB_UNIT = "edgehub.service"
SOCKET_UNIT = "edgehub.socket"
KUBELET_UNIT = "kubelet.service"
PROXY_UNIT = "kube-proxy.service"
TIMEOUT = 120.0
"""Seconds for one command: systemd itself gives a service 90 to start."""


class ServiceError(Exception):
    """A command failed; the message holds its last words."""


class Services:
    """Calls a program as systemctl is called; without one nothing is started or stopped."""

    def __init__(self, program: str) -> None:
        self.program = program

    @property
    def can_be_called(self) -> bool:
        return bool(self.program)

    def start_hub(self, *, has_sockets: bool = False, opens_anew: bool = False) -> None:
        """Start the hub, now and at each boot, or start it anew.

        Its sockets stay open meanwhile, unless they are to be opened at other addresses.
        """
        self._call("daemon-reload")
        self._call("enable", *([SOCKET_UNIT] if has_sockets else []), HUB_UNIT)
        self._call("stop", HUB_UNIT)
        if has_sockets and opens_anew:
            self._call("restart", SOCKET_UNIT)
        # A hub that asks for an identity is not ready for a long time. The installation waits, and says for what.
        self._call("start", "--no-block", HUB_UNIT)

    def stop_hub(self, *, has_sockets: bool = False) -> None:
        """Stop the hub for good: the sockets first, or the next connection would start it again."""
        self._call("disable", "--now", *([SOCKET_UNIT] if has_sockets else []), HUB_UNIT)

    def reload(self) -> None:
        """Have systemd read its units again."""
        self._call("daemon-reload")

    def restart_clients(self, kubelet: str = KUBELET_UNIT) -> None:
        """Have the service that kubelet runs in, and kube-proxy where it is one, read their kubeconfigs again."""
        self._call("restart", kubelet)
        # `try-restart` fails where there is no unit of this name, as on each node of kubeadm.
        if self.can_be_called and self._run("is-active", "--quiet", PROXY_UNIT).returncode == 0:
            self._call("restart", PROXY_UNIT)

    def _call(self, *arguments: str) -> None:
        if not self.program:
            return
        done = self._run(*arguments)
        if done.returncode:
            words = done.stderr.strip() or f"exit status {done.returncode}"
            raise ServiceError(f"{self.program} {' '.join(arguments)}: {words}")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603 - the operator names the program
                [self.program, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServiceError(f"{self.program} {' '.join(arguments)}: {error}") from error
