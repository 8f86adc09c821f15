"""The manager's process, `python -m controllers.manager`. Every replica watches the cluster; the leader writes."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import yaml

from controllers.bindings import preview
from controllers.registry import CONTROLLERS
from controllers.runtime import metrics
from controllers.runtime.admin import FleetPage, admin_server
from controllers.runtime.connection import Account, AccountSession, connect, find_account
from controllers.runtime.controller import Context, Controller
from controllers.runtime.informer import Informers
from controllers.runtime.leader_election import LEASE, LeaderElector
from controllers.runtime.unstructured import mapping
from controllers.runtime.write_client import EventRecorder, Gate, WriteClient, refuse_unless_leading
from controllers.settings import Settings, parse_settings
from kube.concurrency.notifier import completes_within
from kube.errors import StatusError
from kube.http.access_review import user_name
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.log_lines import LineFormatter
from kube.requests.request_info import ResourceType

CRDS = ResourceType("apiextensions.k8s.io", "v1", "customresourcedefinitions")
MANIFESTS = Path(__file__).parent / "manifests"

logger = logging.getLogger(__name__)


def manifest(group_resource: str) -> Json | None:
    """Load the shipped CustomResourceDefinition of a resource; None if the project ships none."""
    for name in ("nodepools", "nodelabels", "servicegrids", "configbindings"):
        for document in yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()):
            crd = mapping(document)
            if mapping(crd.get("metadata")).get("name") == group_resource:
                return crd
    return None


async def create_missing_crds(api: WriteClient, informers: Informers, tried: set[str]) -> None:
    """Create, once, the CRD of each kind that the API server does not know; `tried` holds the names.

    An existing CRD of any author is never changed. A manager without the right to create CRDs continues: an
    administrator applies the manifests then.
    """
    for informer in informers:
        name = informer.resource.type.group_resource
        crd = manifest(name) if informer.refused else None
        if crd is None:
            continue
        if name not in tried:
            tried.add(name)
            try:
                await api.create(CRDS, crd)
                logger.info("created the CustomResourceDefinition of %s", name)
            except (StatusError, Unreachable) as error:
                logger.warning(
                    "the CustomResourceDefinition of %s is missing and was not created: %s", name, error
                )
        informer.retry_now()


CRD_CHECK_INTERVAL = 1.0
LAST_CRD_CHECK_INTERVAL = 30.0
"""Seconds between two checks for kinds that the API server does not serve, at first and in the long run."""

LIST_TIMEOUT = 2.0
"""Seconds to wait for one initial list before the next one starts: its kind may be missing."""


class Manager:
    """The controllers of one process, with the informers and the write client that they share."""

    def __init__(
        self, client: Client, writer: Client, settings: Settings, gate: Gate, server: Callable[[], str]
    ) -> None:
        """`server` returns the URL of the API server in use."""
        self._api = WriteClient(writer, gate)
        self._informers = Informers(client)
        context = Context(self._api, self._informers, EventRecorder(self._api, LEASE), settings, server)
        self._controllers: list[Controller] = [
            make(context) for name, make in CONTROLLERS.items() if name in settings.controllers
        ]
        for controller in self._controllers:
            controller.publish()
        for resource in {informer.resource.type.group_resource for informer in self._informers}:
            metrics.OBJECTS.labels(resource).set_function(partial(self._informers.objects, resource))

    def readiness_error(self) -> str:
        """Return the informers that have not synced, with the reason, and the controllers that cannot serve; "" when
        ready.

        A kind that the API server does not serve is no error: its controllers have nothing to do.
        """
        missing = [
            f"{informer.resource.type.group_resource}: {informer.sync_error}"
            for informer in self._informers
            if not informer.has_synced and not informer.missing
        ]
        missing += [error for controller in self._controllers if (error := controller.readiness_error())]
        return "; ".join(missing)

    async def serve(self) -> None:
        """Run the controllers' servers, on every replica, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for controller in self._controllers:
                tasks.create_task(controller.serve(), name=f"serve {controller.name}")

    async def run_informers(self) -> None:
        """List and watch everything that the controllers read, until cancelled.

        The initial lists run one after the other: fourteen at once would double the process's memory for good.
        """
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run(), name=f"informer of {informer.resource.type.group_resource}")
                await completes_within(LIST_TIMEOUT, informer.wait_for_response())

    async def lead(self) -> None:
        """Run the controllers until cancelled."""
        metrics.LEADER.set(1)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._create_crds(), name="crds")
                for controller in self._controllers:
                    tasks.create_task(controller.run(), name=controller.name)
        finally:
            metrics.LEADER.set(0)

    def close(self) -> None:
        for controller in self._controllers:
            controller.queue.close()

    async def _create_crds(self) -> None:
        tried: set[str] = set()
        wait = CRD_CHECK_INTERVAL
        while any(not informer.has_synced for informer in self._informers):
            await create_missing_crds(self._api, self._informers, tried)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LAST_CRD_CHECK_INTERVAL)


async def serve(settings: Settings, account: Account) -> None:
    """Run the manager until cancelled, then release the Lease. ValueError when the account cannot be used."""
    await account.load()
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    async with AccountSession(account) as session:
        client = connect(session, identity)
        own = client.with_headers({}, queue="lease")
        elector = LeaderElector(own, settings.namespace, LEASE, identity, user=partial(user_name, own))
        gate = elector.remaining if settings.leader_elect else lambda: float("inf")
        async with AccountSession(account, refuse_unless_leading(gate)) as writing:
            writer = connect(writing, identity)
            manager = Manager(client, writer, settings, gate, lambda: account.server)
            fleet = FleetPage(client.with_headers({}, queue="fleet"))
            try:
                async with (
                    admin_server(settings.probes, settings.metrics, manager.readiness_error, fleet.answer),
                    asyncio.TaskGroup() as tasks,
                ):
                    tasks.create_task(manager.run_informers(), name="informers")
                    tasks.create_task(manager.serve(), name="serve")
                    work = elector.run(manager.lead) if settings.leader_elect else manager.lead()
                    tasks.create_task(work, name="lead")
            finally:
                manager.close()


async def run(settings: Settings, account: Account) -> None:
    """Run `serve` until SIGTERM or SIGINT."""
    task = asyncio.ensure_future(serve(settings, account))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        logger.info("ended by a signal")


def main(arguments: Sequence[str]) -> int:
    """Run the program; exit status 0 after a signal, 2 if an option or the kubeconfig is unusable."""
    if arguments[:1] == ["render"]:
        return preview.main(arguments[1:])
    settings = parse_settings(arguments, list(CONTROLLERS))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if settings.verbose:  # libraries would log full answers, Secrets among them
        for name in ("controllers", "kube"):
            logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        asyncio.run(run(settings, find_account(settings.kubeconfig)))
    except (ValueError, OSError) as error:
        print(f"manager: {error}", file=sys.stderr)
        return 2
    return 0


def program() -> None:
    """Run the command `edgehub-manager` of an installed wheel."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
