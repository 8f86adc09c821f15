"""The manager's process: `python -m controllers.manager`. Reads the cluster always, writes while it leads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import uuid
from collections.abc import Sequence

from controllers.registry import CONTROLLERS
from controllers.runtime import metrics
from controllers.runtime.admin import admin_server
from controllers.runtime.api import Api, Gate, only_while
from controllers.runtime.connection import connect, find_credentials, open_session
from controllers.runtime.controller import Context, Controller
from controllers.runtime.crds import make_missing_kinds
from controllers.runtime.election import Elector
from controllers.runtime.events import EventRecorder
from controllers.runtime.informer import Informers
from controllers.settings import Settings, parse_settings
from kube.http.client import Client
from kube.http.kubeconfig import Credentials

LEASE = "edgehub-manager"
KINDS_INTERVAL = 1.0
"""Seconds between two looks for kinds that the API server does not know."""

NEXT_LIST = 2.0
"""Seconds after which the next list begins although one is not there yet: its kind may be missing."""

logger = logging.getLogger(__name__)


class Manager:
    """The controllers of one process and what they share."""

    def __init__(self, client: Client, writer: Client, settings: Settings, gate: Gate) -> None:
        self._api = Api(writer, gate)
        self._informers = Informers(client)
        context = Context(self._api, self._informers, EventRecorder(self._api, LEASE), settings)
        self._controllers: list[Controller] = [
            make(context) for name, make in CONTROLLERS.items() if name in settings.controllers
        ]
        for controller in self._controllers:
            metrics.QUEUE_DEPTH.labels(controller.name).set_function(controller.queue.__len__)
            metrics.BUSY.labels(controller.name).set_function(controller.busy)
            metrics.RETRIES.labels(controller.name)
            for result in metrics.RESULTS:
                metrics.WORK.labels(controller.name, result)
        for informer in self._informers:
            metrics.OBJECTS.labels(informer.kind.type.group_resource).set_function(informer.__len__)

    def trouble(self) -> str:
        """What still keeps this process from working well, "" if nothing."""
        missing = [
            f"{informer.kind.type.group_resource}: {informer.trouble}"
            for informer in self._informers
            if not informer.synced.is_set()
        ]
        return "; ".join(missing)

    async def follow(self) -> None:
        """Keep the copies of the cluster, until cancelled.

        They are made one after the other: nine long lists at once would cost, for good, twice the memory.
        """
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run(), name=f"informer of {informer.kind.type.group_resource}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(NEXT_LIST):
                        await informer.answered()

    async def lead(self) -> None:
        """Do the work, until cancelled."""
        metrics.LEADER.set(1)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._make_kinds(), name="kinds")
                for controller in self._controllers:
                    tasks.create_task(controller.run(), name=controller.name)
        finally:
            metrics.LEADER.set(0)

    def close(self) -> None:
        for controller in self._controllers:
            controller.queue.close()

    async def _make_kinds(self) -> None:
        tried: set[str] = set()
        while any(not informer.synced.is_set() for informer in self._informers):
            await make_missing_kinds(self._api, self._informers, tried)
            await asyncio.sleep(KINDS_INTERVAL)


async def serve(settings: Settings, credentials: Credentials) -> None:
    """Run the manager until cancelled; the Lease is given back at the end."""
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    async with open_session(credentials) as session:
        client = connect(session, credentials, identity)
        elector = Elector(client, settings.namespace, LEASE, identity)
        gate = elector.left if settings.leader_elect else lambda: float("inf")
        async with open_session(credentials, only_while(gate)) as writing:
            manager = Manager(client, connect(writing, credentials, identity), settings, gate)
            try:
                async with (
                    admin_server(settings.listen, settings.admin_port, manager.trouble),
                    asyncio.TaskGroup() as tasks,
                ):
                    tasks.create_task(manager.follow(), name="follow")
                    work = elector.run(manager.lead) if settings.leader_elect else manager.lead()
                    tasks.create_task(work, name="lead")
            finally:
                manager.close()


async def run(settings: Settings, credentials: Credentials) -> None:
    """As `serve`, until SIGTERM or SIGINT."""
    task = asyncio.ensure_future(serve(settings, credentials))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        logger.info("ended by a signal")


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 after a signal, 2 when an option or the kubeconfig cannot be used."""
    settings = parse_settings(arguments, list(CONTROLLERS))
    logging.basicConfig(
        level=logging.DEBUG if settings.verbose else logging.INFO,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        credentials = find_credentials(settings.kubeconfig)
        asyncio.run(run(settings, credentials))
    except (ValueError, OSError) as error:
        print(f"manager: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
