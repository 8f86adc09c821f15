"""The systemd units, or static pods, that start the hub on a node, and calls of systemctl or a replacement."""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex

from kube.json_type import Json

STATE_DIR = "/var/lib/edgehub"
"""Folder of the unit's StateDirectory."""

KUBELET_PKI = "/var/lib/kubelet/pki"
"""Folder in which kubelet stores the node's certificate."""

TMP_MOUNT = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - a pod's own
TMP_VOLUME = {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
"""In-memory folder for keys that TLS reads from files: on a read-only root Python finds no other temporary folder."""

UNIT_TEXT = """\
[Unit]
Description=Edgehub, the hub between the components of this node and the cloud
Documentation=man:edgehub(1)
Wants=network-online.target
After=network-online.target
Before=kubelet.service
# Restart the hub however often it ends: without it the node is cut off from the cloud, and its sockets stay closed.
StartLimitIntervalSec=0
Requires=edgehub.socket
After=edgehub.socket

[Service]
Type=notify
# kubelet starts after the hub, or after this time. A hub that waits for its node's identity counts as started.
TimeoutStartSec=90
ExecStart={command}
Restart=always
RestartSec=1
# A hub whose event loop hangs is killed, without a core file, which would contain the node's key.
WatchdogSec=120
WatchdogSignal=SIGKILL
TimeoutStopSec=10
LimitNOFILE=65536
MemoryHigh=512M
OOMScoreAdjust=-900
# One heap for all threads: glibc's heap for each thread costs memory, which a node with 1 GB needs more than the speed.
Environment=MALLOC_ARENA_MAX=1 HOME=/var/lib/edgehub
UMask=0077
StateDirectory=edgehub
StateDirectoryMode=0700
# root without capabilities reads only root's own files, such as the node's key.
CapabilityBoundingSet={capabilities}
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=default
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
"""

GUARD_TEXT = """\
[Unit]
Description=Rolls back an upgrade of Edgehub that was killed
StartLimitIntervalSec=0

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
# An older program, which has no guard, exits with this status.
RestartPreventExitStatus=2

[Install]
WantedBy=multi-user.target
"""

SOCKET_TEXT = """\
[Unit]
Description=Ports of Edgehub, which stay open while the hub is replaced
Before=kubelet.service
# As in the hub's unit: the hub does not start without its sockets.
StartLimitIntervalSec=0

[Socket]
{listens}
# The hub configures the address for pods only when it starts.
FreeBind=yes
NoDelay=yes
Backlog=1024

[Install]
WantedBy=sockets.target
"""


def unit(command: Sequence[str], *, makes_address: bool = False) -> str:
    """Return the unit that runs a command line. With `makes_address` it may configure network addresses.

    systemd passes the sockets of `socket_unit` to the hub. ValueError for an argument with a control character, since a
    line break would begin a new line of the unit.
    """
    return UNIT_TEXT.format(
        command=" ".join(map(_quoted, command)),
        capabilities="CAP_NET_ADMIN" if makes_address else "",
    )


def guard_unit(command: Sequence[str]) -> str:
    """Return the unit that rolls back an upgrade whose process has been killed."""
    return GUARD_TEXT.format(command=" ".join(map(_quoted, command)))


def socket_unit(addresses: Iterable[tuple[str, int]]) -> str:
    """Return the unit of the sockets at these IP addresses and ports, which are open before and after the hub runs."""
    listens = (
        f"ListenStream=[{host}]:{port}" if host.version == 6 else f"ListenStream={host}:{port}"
        for host, port in ((ip_address(address), port) for address, port in addresses)
    )
    return SOCKET_TEXT.format(listens="\n".join(listens))


def _quoted(argument: str) -> str:
    """Quote an argument of a command line in systemd's syntax, and escape `%` and `$`."""
    if not argument.isprintable():
        raise ValueError(f"{argument!r} cannot be in the unit's command: it has an unprintable character")
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return (
        f'"{escaped}"'
        if not argument or any(character.isspace() or character in "\"'\\;" for character in argument)
        else escaped
    )


def static_pod(
    image: str,
    arguments: Sequence[str],
    kubeconfig: str,
    admin: tuple[str, int],
    *,
    makes_address: bool = False,
    folders: Iterable[str] = (),
    read_at_start: str = "",
) -> str:
    """Return the static pod that runs the hub from an image, as JSON, which kubelet reads as YAML.

    `admin` is the address of the hub's admin port. With `makes_address` it may configure network addresses. `folders`
    of the node contain further files that the hub reads. They are mounted as folders, so that the hub sees replaced
    files. A change of what is `read_at_start` makes another pod.
    """
    host, port = admin
    mounts = [
        (kubeconfig, "File", True, "kubeconfig"),
        (KUBELET_PKI, "DirectoryOrCreate", True, "pki"),
        (STATE_DIR, "DirectoryOrCreate", False, "state"),
        *((folder, "Directory", True, f"files-{number}") for number, folder in enumerate(folders)),
    ]
    shown = [{"name": name, "mountPath": path, "readOnly": read_only} for path, _, read_only, name in mounts]
    container = _container(
        image,
        arguments,
        [*shown, TMP_MOUNT],
        capabilities=("NET_ADMIN",) if makes_address else (),
        env=[{"name": "MALLOC_ARENA_MAX", "value": "1"}, {"name": "HOME", "value": STATE_DIR}],
        livenessProbe={
            "httpGet": {"host": host, "port": port, "path": "/healthz"},
            "initialDelaySeconds": 15,
            "failureThreshold": 6,
        },
        resources={"requests": {"cpu": "50m", "memory": "128Mi"}},
    )
    volumes = [{"name": name, "hostPath": {"path": path, "type": kind}} for path, kind, _, name in mounts]
    return _pod("edgehub", container, [*volumes, TMP_VOLUME], read_at_start)


def guard_pod(image: str, command: Sequence[str], *, restarts_clients: bool) -> str:
    """Return the static pod that restores the previous hub if the process that replaces it has been killed. The node's
    root is mounted at GUARD_ROOT.

    It writes root's files, and kubelet does the rest, so it needs no capability and no systemctl, unless it
    `restarts_clients` by the host's systemctl.
    """
    arguments = (
        *command,
        "--root",
        GUARD_ROOT,
        *(("--systemctl", HOST_SYSTEMCTL) if restarts_clients else ()),
    )
    container = _container(image, arguments, [{"name": "host", "mountPath": GUARD_ROOT}])
    if restarts_clients:
        container["securityContext"] = {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True}
    volumes = [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}]
    # kubelet does not start a pod again that has just ended, so each guard has a name of its own.
    name = f"{GUARD_POD}-{token_hex(4)}"
    return _pod(name, container, volumes, restartPolicy="OnFailure", hostPID=restarts_clients)


def _container(
    image: str,
    arguments: Sequence[str],
    mounts: Sequence[Json],
    *,
    capabilities: Sequence[str] = (),
    **fields: object,
) -> Json:
    return {
        "name": "edgehub",
        "image": image,
        "command": ["edgehub"],
        "args": [argument.replace("$(", "$$(") for argument in arguments],  # Kubernetes replaces `$(NAME)`
        **fields,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], **({"add": [*capabilities]} if capabilities else {})},
            "readOnlyRootFilesystem": True,
            "runAsUser": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts,
    }


def _pod(
    name: str, container: Json, volumes: Sequence[Json], read_at_start: str | None = None, **spec: object
) -> str:
    """Return the manifest. With `read_at_start` its UID depends on this text and on everything but the image, so that
    kubelet replaces only the container for a new image.

    That takes half a second. kubelet ignores changes of other fields of a running container, so these change the UID.
    """
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"app": name}},
        "spec": {
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "containers": [container],
            "volumes": volumes,
            **spec,
        },
    }
    if read_at_start is not None:
        same = {**pod, "spec": {**pod["spec"], "containers": [{**container, "image": ""}]}}
        text = json.dumps(same) + read_at_start
        pod["metadata"]["uid"] = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return json.dumps(pod, indent=2) + "\n"


def uid_of(manifest: bytes | None) -> str:
    """Return the UID in a static pod's manifest; "" if it has none, and kubelet generates one."""
    try:
        return str(json.loads(manifest or b"")["metadata"].get("uid", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""


HUB_UNIT = "edgehub.service"
SOCKET_UNIT = "edgehub.socket"
KUBELET_UNIT = "kubelet.service"
PROXY_UNIT = "kube-proxy.service"
GUARD_UNIT = "edgehub-upgrade.service"
GUARD_POD = "edgehub-upgrade"
GUARD_ROOT = "/host"
HOST_SYSTEMCTL = "nsenter --target 1 --mount -- systemctl"
"""The host's systemctl from a privileged pod, in the namespaces of the host's first process."""
TIMEOUT = 120.0
"""Seconds for one command; systemd itself allows a service 90 to start."""
ENDED = ("failed", "dead", "auto-restart", "auto-restart-queued")
"""systemd's states of a service whose process has ended."""
LAST_LINES = 8
"""Lines of a service's log in an error."""


class ServiceError(Exception):
    """Raised if a command failed; the message has the end of its output."""


class Services:
    """Calls a command with systemctl's arguments; without a command no service is started or stopped."""

    def __init__(self, program: str) -> None:
        self.program = program
        self._command = shlex.split(program)

    @property
    def can_be_called(self) -> bool:
        return bool(self.program)

    def start_hub(self, *, opens_anew: bool = False) -> None:
        """Start or restart the hub, and enable it at boot.

        Its sockets stay open meanwhile, unless their addresses change.
        """
        self._call("daemon-reload")
        self._call("enable", SOCKET_UNIT, HUB_UNIT)
        self._call("stop", HUB_UNIT)
        if opens_anew:
            self._call("restart", SOCKET_UNIT)
        # A hub that requests an identity may be unready for long. The installation waits, and prints why.
        self._call("start", "--no-block", HUB_UNIT)

    def stop_hub(self) -> None:
        """Stop and disable the hub, its sockets first: otherwise the next connection would start it again."""
        self._call("disable", "--now", SOCKET_UNIT, HUB_UNIT)

    def start_guard(self) -> None:
        """Start the guard that rolls back a killed upgrade, now and at each boot."""
        self._call("daemon-reload")
        self._call("enable", GUARD_UNIT)
        self._call("start", "--no-block", GUARD_UNIT)

    def disable_guard(self) -> None:
        """Disable the guard at boot, without stopping it: it may be the caller."""
        self._call("disable", GUARD_UNIT)

    def reload(self) -> None:
        """Reload systemd's units."""
        self._call("daemon-reload")

    def restart_clients(self, kubelet: str = KUBELET_UNIT) -> None:
        """Restart the service that runs kubelet, and kube-proxy if it is a service, so that they read their
        kubeconfigs.
        """
        self._call("restart", kubelet)
        # `try-restart` fails if the unit does not exist, as on kubeadm's nodes.
        if self.can_be_called and self._run("is-active", "--quiet", PROXY_UNIT).returncode == 0:
            self._call("restart", PROXY_UNIT)

    def last_lines(self, unit: str, *, of_running: bool = False) -> str:
        """Return the last log lines of a service if it has ended, or if `of_running`; otherwise "".

        A service for which systemd has scheduled a restart has ended.
        """
        try:
            shown = self._run("show", "--property=SubState,Job", unit).stdout if self.program else ""
            properties = dict(line.partition("=")[::2] for line in shown.splitlines())
            state = properties.get("SubState", "")
            # A start is queued: the unit still has the state of its previous run.
            is_queued = properties.get("Job", "") not in ("", "0") and state in ("failed", "dead")
            has_ended = state in ENDED and not is_queued
            if not state or not (of_running or has_ended):
                return ""
            logged = self._run("status", "--no-pager", "--full", f"--lines={LAST_LINES}", unit).stdout
        except ServiceError:
            return ""
        # An empty line separates the service's state from its log.
        lines = self._journal(unit) or logged.rstrip().partition("\n\n")[2]
        how = "has ended" if has_ended else "is waiting to start" if is_queued else "runs"
        return f"{unit} {how}, and its last lines are:\n{lines}" if lines else f"{unit} {how}"

    def _journal(self, unit: str) -> str:
        """Return a service's last lines by the journalctl beside systemctl; "" if there is none.

        `systemctl status` leaves out the lines from before systemd scheduled the service's restart.
        """
        journalctl = *self._command[:-1], str(Path(self._command[-1]).with_name("journalctl"))
        try:
            return self._run(
                "--quiet", f"--lines={LAST_LINES}", f"--unit={unit}", of=journalctl
            ).stdout.rstrip()
        except ServiceError:
            return ""

    def _call(self, *arguments: str) -> None:
        if not self.program:
            return
        done = self._run(*arguments)
        if done.returncode:
            message = done.stderr.strip() or f"exit status {done.returncode}"
            raise ServiceError(f"{self.program} {' '.join(arguments)}: {message}")

    def _run(self, *arguments: str, of: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run systemctl, or another command, with these arguments."""
        command = *(of or self._command), *arguments
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)  # noqa: S603 - the operator names the program
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServiceError(f"{self.program} {' '.join(arguments)}: {error}") from error
