"""A node whose Jobs really install, upgrade and remove its hub, as a hollow kubelet runs no containers."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import urllib3

from controllers.cluster.jobs import JOB_NAME
from kube.json_type import Json
from tests.cloud.real import RealCloud
from tests.cloud.rest import MERGE_PATCH, is_true
from tests.controllers.nodes.support.converted_nodes import JOBS, JOBS_PODS
from tests.controllers.nodes.support.simulated_node import PODS, failed
from tests.hub.support.job_container import StaticPods, lay_programs, run_container
from tests.hub.support.machine import Machine
from tests.support.worker import Worker

INTERVAL = 2.0
"""Seconds between two renewals of the Lease, and between two polls for Jobs."""


class InstalledNode(Worker):
    """A node whose Jobs run one at a time. A context manager."""

    def __init__(self, machine: Machine, cloud: RealCloud) -> None:
        self.machine, self.static_pods = machine, StaticPods(machine)
        self._client = cloud.client(cloud.authority.issue_admin())
        self._begun: set[str] = set()
        self._jobs = ThreadPoolExecutor(1)
        self._http = urllib3.PoolManager(headers={"User-Agent": "kubelet/v1"}, retries=False, timeout=10)

    def __enter__(self) -> Self:
        lay_programs(self.machine)
        self.static_pods.__enter__()
        return super().__enter__()

    def __exit__(self, *ending: object) -> None:
        super().__exit__(*ending)
        self._jobs.shutdown()
        self.static_pods.__exit__(*ending)

    def _work(self) -> None:
        query = {"labelSelector": JOBS_PODS, "fieldSelector": f"spec.nodeName={self.machine.node}"}
        while not self._ended.wait(INTERVAL):
            self._renew()
            for pod in self._client.get(PODS, **query)["items"]:
                if (name := pod["metadata"]["name"]) not in self._begun:
                    self._begun.add(name)
                    self._jobs.submit(self._run, pod)

    def _renew(self) -> None:
        """Renew the Lease through the hub like kubelet; the hub only relays the hollow kubelet's writes, due to its
        User-Agent."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self.machine.node}"
        try:
            lease = self._http.request("GET", self.machine.url + path)
            if lease.status == 200:
                self._http.request("PUT", self.machine.url + path, json=lease.json())
        except urllib3.exceptions.HTTPError:
            pass  # no hub runs

    def _run(self, pod: Json) -> None:
        """Run a Job, and write its result until the Job controller has it, as kubelet keeps reporting that the pod
        waits."""
        spec = pod["spec"]
        arguments = spec["containers"][0]["args"]
        more: list[str] = []
        if arguments[0] == "upgrade":
            more = ["--healthy", "3"]
        try:
            done = run_container(spec, self.machine, *more)
            is_well, said = not done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            is_well, said = False, repr(error)
        with (self.machine.folder / "jobs.log").open("a") as log:
            print(arguments, said, file=log)
        status: Json = {"status": {"phase": "Succeeded"}} if is_well else failed(said[-2000:])
        job = f"{JOBS}/{pod['metadata']['labels'][JOB_NAME]}"
        path = f"{PODS}/{pod['metadata']['name']}/status"
        while not self._ended.wait(0.5):
            found = self._client.get(job)
            if is_true(found, "Complete") or is_true(found, "Failed"):
                return
            self._client.request("PATCH", path, body=status, headers={"Content-Type": MERGE_PATCH})


def hold_pods(cloud: RealCloud) -> None:
    """Make each Job's pod wait for a missing Secret, so that kubelets start none. An installation restarts the hollow
    kubelet, whose containers would end with it, and the Job would count as failed."""
    api, name = "admissionregistration.k8s.io/v1", "hold-jobs"
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    secret = "Object.spec.volumes{name: 'never', secret: Object.spec.volumes.secret{secretName: 'never'}}"
    mount = "Object.spec.containers.volumeMounts{name: 'never', mountPath: '/never'}"
    patches = [
        f"JSONPatch{{op: 'add', path: '/spec/volumes/-', value: {secret}}}",
        f"JSONPatch{{op: 'add', path: '/spec/containers/0/volumeMounts/-', value: {mount}}}",
    ]
    spec: Json = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [pods],
            "objectSelector": {"matchLabels": {"edgehub.io/job": "node"}},
        },
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{', '.join(patches)}]"}}],
    }
    bound: Json = {"policyName": name}
    kinds = (("MutatingAdmissionPolicy", spec), ("MutatingAdmissionPolicyBinding", bound))
    cloud.apply(
        {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": made} for kind, made in kinds
    )
