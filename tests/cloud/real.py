"""A real control plane on loopback: etcd, kube-apiserver and, on request, kube-controller-manager."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import urllib3

from kube.json_type import Json
from tests.cloud.audit import POLICY, AuditEvent, read_audit
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import ADMIN_GROUP, Authority, Credential, signing_key
from tests.cloud.ports import LOOPBACK, ReservedPort
from tests.cloud.processes import Process
from tests.cloud.rest import RestClient, RestError, is_true
from tests.cloud.versions import served

PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
"""The programs that a control plane without controllers needs."""
SERVICE_RANGE = "10.96.0.0/16"
"""Cluster IPs of Services; `default/kubernetes` gets the first one."""
ADVERTISED = "198.51.100.1"
"""The server's address in the Endpoints of `default/kubernetes`, where kube-apiserver refuses loopback: a documentation
address (RFC 5737), which nothing reaches by accident and which needs no route."""
START_TIMEOUT = 120.0
"""Seconds to readiness, 4 on idle cores; many times that on busy ones."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APISERVER_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL. An orderly end needs one second, but sixty with an open watch, during which the
port refuses connections and the watch stays open."""
KUBECTL_TIMEOUT = 60.0
"""Seconds for one kubectl command."""


class RealCloud:
    """A control plane that has only the objects that kube-apiserver creates; a context manager. `folder` gets data,
    certificates and logs. `programs` are paths by name, of `PROGRAMS` and, with `controllers` (the value of its
    `--controllers`), of kube-controller-manager. All methods block; threads may share it."""

    def __init__(
        self,
        folder: Path,
        programs: Mapping[str, Path],
        *,
        controllers: Sequence[str] = (),
        apiserver_flags: Sequence[str] = (),
        manager_flags: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.authority = Authority()
        self._programs = programs
        self._controllers = controllers
        self._apiserver_flags = apiserver_flags
        self._manager_flags_given = manager_flags
        self._port = ReservedPort()
        self._etcd_port = ReservedPort()
        self._processes: dict[str, Process] = {}
        self._clients: list[RestClient] = []
        self.url = f"https://{LOOPBACK}:{self._port.number}"
        self.host, self.port = LOOPBACK, self._port.number
        self.authority_file = folder / "ca.crt"
        self._audit_log = folder / "audit.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; return when the API is ready and has its own objects. A failure ends all processes."""
        try:
            self._write_files()
            self._start_etcd()
            self.admin = self.client(self.authority.issue_admin())
            self.start_apiserver()
            self._wait_until_made()
            if self._controllers:
                manager = self._run("kube-controller-manager", self._manager_flags())
                manager.wait_for_line("Caches are synced", START_TIMEOUT)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process at once, without regard to the data; safe to call twice."""
        for process in reversed(self._processes.values()):
            process.kill()
        self._processes.clear()
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._port.release()
        self._etcd_port.release()

    def start_apiserver(self) -> None:
        """Start kube-apiserver, on the same port each time; return when it is ready."""
        apiserver = self._run("kube-apiserver", self._apiserver_flag_list())
        apiserver.wait_for_line("Serving securely", START_TIMEOUT)
        apiserver.wait_until(self._ready, "become ready", START_TIMEOUT)

    def stop_apiserver(self, *, crash: bool = False) -> None:
        """End kube-apiserver by SIGTERM or, as a crash, by SIGKILL; its port refuses connections until the next
        start."""
        apiserver = self._processes.pop("kube-apiserver")
        if crash:
            apiserver.kill()
        else:
            apiserver.stop(APISERVER_GRACE)

    def compact(self) -> None:
        """Compact etcd to the current version, and restart kube-apiserver, whose cache has older versions."""
        self._etcd("kv/compaction", {"revision": self._revision(), "physical": True})
        self.stop_apiserver()
        self.start_apiserver()

    def replace(self, *, is_new: bool) -> None:
        """Replace this cluster with another one with the same address and certificates, and an empty etcd. Its versions
        exceed this one's: all of them, or (`is_new` is False) those of later writes."""
        ahead = self._revision() + 200
        self.stop_apiserver(crash=True)
        self._processes.pop("etcd").kill()
        shutil.rmtree(self.folder / "etcd")
        self._start_etcd()
        if is_new:
            self._push(ahead)
        self.start_apiserver()
        self._wait_until_made()
        self._push(ahead)

    def _push(self, revision: int) -> None:
        """Write to etcd until its revision is reached, at a key that kube-apiserver does not use."""
        while self._revision() < revision:
            self._etcd("kv/put", {"key": "cHVzaGVk", "value": ""})

    def _revision(self) -> int:
        return int(self._etcd("maintenance/status", {})["header"]["revision"])

    def _etcd(self, path: str, body: Json) -> Json:
        answer = urllib3.request("POST", f"http://{LOOPBACK}:{self._etcd_port.number}/v3/{path}", json=body)
        if answer.status != 200:
            raise RuntimeError(f"etcd: {answer.data!r}")
        found: Json = answer.json()
        return found

    def client(self, credential: Credential | None = None, *, token: str = "") -> RestClient:
        """Return a caller with this identity, closed by stop(); anonymous without credential and token."""
        files = None
        if credential:
            certificate, key = credential.write(self.folder, f"client-{len(self._clients)}")
            files = (str(certificate), str(key))
        client = RestClient(
            self.url, authority=self.authority.certificate, certificate_files=files, token=token
        )
        self._clients.append(client)
        return client

    def admin_kubeconfig(self, server: str = "") -> Path:
        """Write a kubeconfig of the group system:masters; `server` replaces the cloud's own URL."""
        return self.kubeconfig("admin", self.authority.issue_admin(), server)

    def node_kubeconfig(self, node: str, server: str = "") -> Path:
        """Write a kubeconfig with the identity of a node; `server` replaces the cloud's own URL."""
        return self.kubeconfig(f"node-{node}", self.authority.issue_node(node), server)

    def kubeconfig(
        self, name: str, credential: Credential | None = None, server: str = "", token: str = ""
    ) -> Path:
        """Write a kubeconfig `<name>.kubeconfig` in the folder, with this identity and the cloud's CA."""
        return write_kubeconfig(
            self.folder / f"{name}.kubeconfig",
            server or self.url,
            authority=self.authority.certificate,
            credential=credential,
            token=token,
        )

    def token(self, namespace: str, service_account: str, *, seconds: int = 3600) -> str:
        """Return a bound token of a service account, which is created if missing, as no controller does so here."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        try:
            self.admin.post(accounts, {"metadata": {"name": service_account}})
        except RestError as error:
            if error.answer.status != 409:
                raise
        answer = self.admin.post(
            f"{accounts}/{service_account}/token", {"spec": {"expirationSeconds": seconds}}
        )
        return str(answer["status"]["token"])

    def kubectl_command(self, *args: str, kubeconfig: Path | None = None) -> list[str]:
        """Return the command line of the built kubectl (never one on PATH), for tests that run it themselves."""
        program = str(self._programs["kubectl"])
        return [program, f"--kubeconfig={kubeconfig or self.folder / 'admin.kubeconfig'}", *args]

    def kubectl(
        self, *args: str, stdin: str = "", kubeconfig: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl, by default as admin; CalledProcessError has its stderr as a note."""
        done = subprocess.run(
            self.kubectl_command(*args, kubeconfig=kubeconfig),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT,
            check=False,
            # HOME has a discovery cache and a user's preferences (kuberc); neither may affect the test.
            env={**os.environ, "HOME": str(self.folder), "KUBECONFIG": ""},
        )
        if check and done.returncode:
            error = subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
            error.add_note(done.stderr)
            raise error
        return done

    def apply(self, manifests: str | Path | Iterable[Json]) -> str:
        """Run `kubectl apply` on a YAML text, a file or folder, or objects; return kubectl's output. New kinds are then
        served."""
        if isinstance(manifests, Path):
            files = served(manifests) if manifests.is_dir() else [manifests]
            output = self.kubectl("apply", *(f"--filename={file}" for file in files)).stdout
        else:
            listed = {"apiVersion": "v1", "kind": "List"}
            text = manifests if isinstance(manifests, str) else json.dumps({**listed, "items": [*manifests]})
            output = self.kubectl("apply", "-f", "-", stdin=text).stdout
        for name in re.findall(r"^customresourcedefinition\S*/(\S+) (?!unchanged)", output, re.MULTILINE):
            spec = self._wait_for(CRDS, name, partial(is_true, condition="Established"))["spec"]
            stored = next(version["name"] for version in spec["versions"] if version["storage"])
            # kube-apiserver needs some seconds until it serves a new kind; kubectl is retried.
            self.kubectl("get", "--raw", f"/apis/{spec['group']}/{stored}/{spec['names']['plural']}")
        return output

    def audit_mark(self) -> int:
        """Return the current end of the audit log, for `audit(since=…)`."""
        return self._audit_log.stat().st_size

    def audit(self, since: int = 0) -> list[AuditEvent]:
        """Return the requests that reached the server since a mark. A request is logged before it is handled
        (RequestReceived, ResponseStarted of a watch) and just after its response was sent (ResponseComplete): to count
        without waiting, count the stage RequestReceived."""
        with self._audit_log.open("rb") as log:
            return read_audit(log, since)

    def _start_etcd(self) -> None:
        self._run("etcd", self._etcd_flags()).wait_for_line("ready to serve client requests", START_TIMEOUT)

    def _wait_until_made(self) -> None:
        """Wait until the server, which already reports that it is ready, has created its objects."""
        for namespace in ("default", "kube-system", "kube-node-lease"):
            self._wait_for("/api/v1/namespaces", namespace)
        self._wait_for("/api/v1/namespaces/default/services", "kubernetes")

    def _run(self, name: str, flags: Sequence[str]) -> Process:
        process = Process(name, [self._programs[name], *flags], self.folder)
        self._processes[name] = process
        return process

    def _ready(self) -> bool:
        try:
            return self.admin.request("GET", "/readyz").status == 200
        except OSError:
            return False

    def _wait_for(self, collection: str, name: str, condition: Callable[[Json], bool] = bool) -> Json:
        return self.admin.wait_for(collection, name, condition, timeout=START_TIMEOUT)

    def _write_files(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authority_file.write_bytes(self.authority.certificate)
        hosts = [LOOPBACK, "localhost", "kubernetes.default.svc"]
        self.authority.issue_server("kube-apiserver", hosts).write(self.folder, "apiserver")
        self.authority.issue_client("kube-apiserver", [ADMIN_GROUP]).write(self.folder, "kubelet-client")
        self.authority.credential.write(self.folder, "signer")
        (self.folder / "service-account.key").write_bytes(signing_key())
        (self.folder / "audit-policy.yaml").write_text(POLICY)
        self.admin_kubeconfig()

    def _etcd_flags(self) -> list[str]:
        client_url = f"http://{LOOPBACK}:{self._etcd_port.number}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            # Any free port: no peer connects.
            f"--listen-peer-urls=http://{LOOPBACK}:0",
            "--socket-reuse-port=true",
            "--unsafe-no-fsync",
        ]

    def _apiserver_flag_list(self) -> list[str]:
        return [
            f"--etcd-servers=http://{LOOPBACK}:{self._etcd_port.number}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.port}",
            "--permit-port-sharing=true",
            f"--advertise-address={ADVERTISED}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--tls-cert-file={self.folder / 'apiserver.crt'}",
            f"--tls-private-key-file={self.folder / 'apiserver.key'}",
            f"--client-ca-file={self.authority_file}",
            f"--kubelet-client-certificate={self.folder / 'kubelet-client.crt'}",
            f"--kubelet-client-key={self.folder / 'kubelet-client.key'}",
            # The nodes of tests have no DNS names.
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self.folder / 'service-account.key'}",
            f"--service-account-key-file={self.folder / 'service-account.key'}",
            f"--audit-policy-file={self.folder / 'audit-policy.yaml'}",
            f"--audit-log-path={self._audit_log}",
            # No rotation, as marks are positions in one file.
            "--audit-log-maxsize=0",
            *self._apiserver_flags,
        ]

    def _manager_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.folder / 'admin.kubeconfig'}",
            f"--controllers={','.join(self._controllers)}",
            f"--root-ca-file={self.authority_file}",
            f"--service-account-private-key-file={self.folder / 'service-account.key'}",
            # Only a test or the manager approves certificates of nodes.
            f"--cluster-signing-cert-file={self.folder / 'signer.crt'}",
            f"--cluster-signing-key-file={self.folder / 'signer.key'}",
            "--leader-elect=false",
            # No port: no test sends it requests.
            "--secure-port=0",
            *self._manager_flags_given,
        ]
