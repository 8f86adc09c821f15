"""Pods that call the API server and DNS repeatedly, as programs in clusters do, and the result of each call. Their logs
are read from the node's disk, so that they are available while the node is cut off."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from kube.json_type import Json
from scripts.node_machine import cloud
from scripts.node_machine.commands import until
from scripts.node_machine.machine import Machine
from tests.support.objects import obj

LONG = 180.0
"""Seconds for steps that take several seconds on idle cores."""
LABEL = "edgehub-test"
SETTINGS = "settings"
"""The name of the mounted ConfigMap."""
ROLES = ("view", "system:service-account-issuer-discovery")
LOOP = """\
said() { "$@" >/tmp/said 2>&1 && echo yes || echo "no:$(tail -n 1 /tmp/said | tr -s ' "' _)"; }
while sleep 0.5; do
    began=$(date +%s)
    api=$(said timeout 10 kubectl get --raw /api/v1/services)
    dns=$(said timeout 5 nslookup kubernetes.default.svc.cluster.local)
    echo "$began $KUBERNETES_SERVICE_HOST $(cat /settings/value) $dns $api"
done
"""

KILL_SANDBOX = """\
for each in $(pgrep -x pause); do
    if [ "$(readlink "/proc/$each/ns/net")" = "$(readlink "/proc/$1/ns/net")" ]; then kill -KILL "$each"; fi
done
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A round of calls: its start, the API server's address, the mounted setting, and the responses of API server and
    DNS."""

    began: int
    address: str
    setting: str
    dns: str
    api: str

    @property
    def is_answered(self) -> bool:
        return (self.dns, self.api) == ("yes", "yes")


@dataclass(frozen=True, slots=True)
class Caller:
    """A pod on the node, by its name."""

    name: str
    node: Machine
    cloud: Machine

    def start(self) -> None:
        """Create the pod, and wait for its first calls."""
        cloud.kubectl(self.cloud, "apply", "-f", "-", stdin=json.dumps(self._manifest()))
        self.wait_for_calls()

    def _manifest(self) -> Json:
        container = {
            "name": "caller",
            "image": image(self.node, "kubectl"),
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", LOOP, self.name],
            "volumeMounts": [{"name": SETTINGS, "mountPath": f"/{SETTINGS}"}],
        }
        return obj(
            "Pod",
            self.name,
            labels={LABEL: ""},
            spec={
                "nodeSelector": {"kubernetes.io/hostname": self.node.name},
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                "volumes": [{"name": SETTINGS, "configMap": {"name": SETTINGS}}],
            },
        )

    def calls(self) -> list[Call]:
        """Return the calls in the existing logs of its containers."""
        read = f"cat /var/log/pods/default_{self.name}_*/caller/*.log"
        lines = self.node.try_run("sh", "-c", read).stdout.splitlines()
        # The container runtime prefixes each line with the time, the stream and a marker of complete lines.
        columns = [line.split()[3:8] for line in lines]
        return sorted(
            (Call(int(each[0]), *each[1:]) for each in columns if len(each) == 5), key=lambda call: call.began
        )

    def wait_for_calls(self, setting: str = "", timeout: float = LONG) -> None:
        """Wait for answered calls that start from now on; with this setting mounted, if given."""
        now = int(time.time())

        def is_served() -> bool:
            return any(
                call.is_answered and call.began > now and setting in ("", call.setting)
                for call in self.calls()
            )

        try:
            until(f"{self.name} is answered", is_served, timeout, interval=0.5)
        except Exception as error:
            last = "\n".join(map(str, self.calls()[-5:]))
            raise AssertionError(f"{error}\n{last}") from error

    def pid(self) -> str:
        """Return the process ID of its container."""
        return self.node.run("pgrep", "-f", f"done.* {self.name}$").split()[0]

    def kill(self) -> None:
        """Kill its container's process, like a crash."""
        self.node.run("kill", "-KILL", self.pid())

    def kill_sandbox(self) -> None:
        """Kill the process that owns its network namespace."""
        self.node.run("sh", "-euc", KILL_SANDBOX, "sh", self.pid())

    def restarts(self) -> int:
        """Return how often its container was started on the node, by its logs."""
        listed = self.node.run("sh", "-c", f"ls /var/log/pods/default_{self.name}_*/caller/")
        return max(int(name.partition(".")[0]) for name in listed.split())


def image(node: Machine, name: str) -> str:
    """Return the full name of an image on the node."""
    listed = node.run("ctr", "--namespace=k8s.io", "images", "list", "--quiet").split()
    return next(each for each in listed if f"/{name}:" in each)


def prepare(clouds: Machine, setting: str) -> None:
    """Create the objects that callers read, and their permissions."""
    for role in ROLES:
        rights = obj(
            "ClusterRoleBinding",
            f"{LABEL}-{role.rpartition(':')[2]}",
            apiVersion="rbac.authorization.k8s.io/v1",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            subjects=[{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        )
        cloud.kubectl(clouds, "apply", "-f", "-", stdin=json.dumps(rights))
    set_value(clouds, setting)


def set_value(clouds: Machine, setting: str) -> None:
    """Change the setting that callers mount."""
    settings = obj("ConfigMap", SETTINGS, data={"value": setting})
    cloud.kubectl(clouds, "apply", "-f", "-", stdin=json.dumps(settings))


def end_all(clouds: Machine) -> None:
    """Delete all callers, and wait until they are gone."""
    cloud.kubectl(clouds, "delete", "pod", f"--selector={LABEL}", "--timeout=120s", "--ignore-not-found")
