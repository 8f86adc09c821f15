"""The webhook that injects bindings as workloads are written, and answers other controllers' reviews.

All managers serve it; the leader makes its certificate. The webhook is an optimisation: the controller `configbinding`
writes the workloads that it misses. So the API server ignores its failures, and a cluster without a manager accepts
every workload.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import logging
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Container, Iterable
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from aiohttp import web

from controllers.bindings.admission import WorkloadReview, read_review, review_response, untouched
from controllers.bindings.binding import BINDINGS
from controllers.bindings.renderer import Renderer
from controllers.bindings.webhook_certificate import AUTHORITY, CERTIFICATE, KEY, renewed
from controllers.bindings.workloads import AUTOSCALERS
from controllers.cluster.admission_reviews import TooManyValues
from controllers.cluster.node_pools import NODEPOOLS
from controllers.runtime.admin import MAX_HEADERS, count_refused
from controllers.runtime.bounded_server import BoundedServer, listen
from controllers.runtime.controller import Context, Controller, Reviewer
from controllers.runtime.informer import one_object, without_managed_fields
from controllers.runtime.unstructured import mapping, metadata, objects, text
from controllers.runtime.write_client import FIELD_MANAGER
from controllers.settings import WEBHOOK_CONTROLLER
from kube.bounds import reached
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

CONFIGURATION = "edgehub-configbinding"
"""The name of the MutatingWebhookConfiguration."""
REPLACED_BY_POLICIES = frozenset({"autonomy-endpoints.edgehub.io"})
"""Webhooks of that configuration which admission policies replace on newer API servers."""
SECRET = "edgehub-manager-webhook"  # noqa: S105  # the name of one
PATH = "/mutate-workload"
LARGEST_REVIEW = 8 * 1024 * 1024
"""Bytes. The API server accepts objects of 3 MiB, and a review has two of them."""
MAX_HELD = 16 * 1024 * 1024
"""Bytes of all reviews being received. One address gets at most half of the free bytes."""
REVIEW_TIME = 5.0
"""Seconds in which a review must arrive completely; the API server waits 3 s for the answer."""
DISCARDING = 1.0
"""Seconds for which the rest of a refused review is read and discarded."""
CHECK_INTERVAL = 3600.0
"""Seconds between checks of the certificate's age."""
NAME_RETRY = 1.0
"""Seconds between requests for the manager's user name until the API server has answered one."""
NAME_INTERVAL = 60.0
"""Seconds between later requests for the manager's user name: the kubeconfig may get another user."""
DRAIN_TIME = 0.5
"""Seconds for which open connections may still send requests during shutdown. New connections are refused by then."""
SHUTDOWN = 2.0
"""Seconds after that for reviews in progress; the API server waits 3 s for an answer."""
CONFIGURATIONS = ResourceType("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
POLICIES = ResourceType("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies")
SECRETS = ResourceType("", "v1", "secrets")

logger = logging.getLogger(__name__)


class TooLong(ValueError):
    """A review has more than LARGEST_REVIEW bytes."""


class TooManyBytes(ValueError):
    """All reviews in progress together exceed MAX_HELD bytes."""


class WebhookController(Controller):
    """Serves the webhook, and maintains its certificate. Key: the MutatingWebhookConfiguration; without it the webhook
    is not served."""

    name = WEBHOOK_CONTROLLER
    workers = 1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._address = context.settings.webhook
        self._tls = _tls(context.settings.webhook_client_ca)
        self._secret_key = (context.settings.namespace, SECRET)
        self._key = ("", CONFIGURATION)
        self._configurations = self.watch(
            one_object(CONFIGURATIONS, "", CONFIGURATION, without_managed_fields), self._of_any
        )
        self._secrets = self.watch(
            one_object(SECRETS, *self._secret_key, without_managed_fields), self._of_any
        )
        pools = self.follow(NODEPOOLS, optional=True)
        self._renderer = Renderer(self.follow(BINDINGS), self.follow(AUTOSCALERS), pools)
        self._changed = asyncio.Event()
        self._serving = False
        self._own_name = ""
        """The name by which the API server knows this manager; "" until it has answered."""
        self._no_name = ""
        """The reason why the manager's name is unknown."""
        self._pending: dict[int, tuple[str, bytearray]] = {}
        """The reviews received so far with their senders' addresses, by `id`, because two may be equal."""
        self._one = asyncio.Lock()
        self._address_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One lock for each address, so that a client with many reviews waits only for its own."""

    async def reconcile(self, key: Key) -> None:
        """Maintain the Secret and the CA in the configuration; remove webhooks that an admission policy replaces."""
        configuration = self._configurations.get(key)
        if configuration is None:
            return
        data = secret_data(self._secrets.get(self._secret_key))
        wanted = renewed(data, hosts_of(configuration), datetime.datetime.now(datetime.UTC))
        needless = REPLACED_BY_POLICIES if await self._context.informers.serves(POLICIES) else ()
        # First the trust, then the certificate: no replica serves one that the API server does not know.
        if patch := webhooks_patch(configuration, wanted[AUTHORITY], needless):
            await self.patch(self._configurations, key, patch)
        if wanted != data:
            await self.apply(self._secrets, secret(*self._secret_key, wanted))
            logger.info("the webhook's certificate was made")

    async def watch_the_clock(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            self.queue.add(self._key)

    async def serve(self) -> None:
        """Serve the webhook from the first certificate on, and load each new one."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._learn_name(), name="own name of the manager")
            await self._serve()

    async def _serve(self) -> None:
        context = self._tls
        await self._load(context)
        app = web.Application()
        app.add_routes([web.post(PATH, self._review_workload)])
        for path, reviewer in self._context.reviews.items():
            app.add_routes([web.post(path, self._handler(reviewer))])
        # With a linger time, aiohttp would keep the buffers of clients that have left.
        limits = {"max_headers": MAX_HEADERS, "lingering_time": 0.0, "shutdown_timeout": SHUTDOWN}
        server = BoundedServer(app, count_refused, context=context, **limits)
        listening = await listen(self._address.host, self._address.port)
        try:
            await server.start(listening)
            self._serving = True
            while True:
                await self._load(context)
        finally:
            if self._serving:
                self._serving = False
                server.refuse_more()
                for listener in listening:
                    listener.close()
                await asyncio.sleep(DRAIN_TIME)
            await server.finish()

    def readiness_error(self) -> str:
        if not self._configurations.has_synced or self._configurations.get(self._key) is None:
            return ""
        if not self._serving:
            return "the webhook has no certificate yet"
        return "" if self._own_name else f"the webhook does not know the manager's own name: {self._no_name}"

    async def _learn_name(self) -> None:
        """Store the user name by which the API server knows this manager, for any kind of account."""
        while True:
            try:
                self._own_name, self._no_name = await self._context.informers.user_name(), ""
            except (StatusError, Unreachable) as error:
                if str(error) != self._no_name:
                    logger.warning("the API server does not say who the manager is: %s", error)
                self._no_name = str(error)
            await asyncio.sleep(NAME_RETRY if self._no_name else NAME_INTERVAL)

    async def _load(self, context: ssl.SSLContext) -> None:
        """Load the next certificate of the Secret into the TLS context. Open connections keep theirs."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            data = secret_data(self._secrets.get(self._secret_key))
            if not data.get(CERTIFICATE) or not data.get(KEY):
                continue
            try:
                await asyncio.to_thread(_load_pair, context, data[CERTIFICATE], data[KEY])
                return
            except ssl.SSLError as error:
                logger.warning("Secret %s has no certificate with its key: %s", SECRET, error)

    async def _review_workload(self, request: web.Request) -> web.Response:
        if not self._renderer.has_synced:
            return web.Response(status=503, text="the manager has not read the bindings yet\n")
        if not self._own_name:
            # Otherwise it would take the manager's own writes for a user's, and drop the record that restores the
            # original.
            return web.Response(status=503, text="the manager does not know its own name yet\n")
        return await self._review(request, self._inject)

    async def _inject(self, body: bytearray) -> bytes:
        review = await self._renderer.beside(lambda: read_review(body))
        if await self._is_own(review):
            return untouched(review)
        rendering = await self._renderer.admit(review.workload, review.incoming, review.stored)
        return await self._renderer.beside(lambda: review_response(review, rendering))

    async def _is_own(self, review: WorkloadReview) -> bool:
        """Whether a manager writes: this one, or the leader, whose account may differ while accounts change. The field
        manager tells a person who shares the account from the manager."""
        if review.writer == self._own_name:
            return review.field_manager in ("", FIELD_MANAGER)
        if review.field_manager != FIELD_MANAGER:
            return False
        return review.writer == await self._context.informers.user_of_leader(self._context.settings.namespace)

    def _handler(self, reviewer: Reviewer) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(body: bytearray) -> bytes:
            return await self._renderer.beside(lambda: reviewer(body))

        async def handle(request: web.Request) -> web.Response:
            return await self._review(request, answer)

        return handle

    async def _review(
        self, request: web.Request, answer: Callable[[bytearray], Awaitable[bytes]]
    ) -> web.Response:
        address, body = request.remote or "", bytearray()
        self._pending[id(body)] = address, body
        address_lock = self._address_locks.setdefault(address, asyncio.Lock())
        try:
            async with asyncio.timeout(REVIEW_TIME):
                await self._read(request, address, body)
            # Parsed, a review takes many times its bytes.
            async with address_lock, self._one:
                answered = await answer(body)
        except (TooLong, TooManyValues) as error:
            reached("a review that the webhook takes")
            await _discard(request)
            return web.Response(status=413, text=f"{error}\n")
        except TooManyBytes as error:
            reached("reviews under way")
            await _discard(request)
            return web.Response(status=503, text=f"{error}\n")
        except (StatusError, Unreachable) as error:
            return web.Response(status=503, text=f"the manager cannot read who leads: {error}\n")
        except TimeoutError:
            return web.Response(status=408, text=f"the review took more than {REVIEW_TIME:.0f} s\n")
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        finally:
            del self._pending[id(body)]
        return web.Response(body=answered, content_type="application/json")

    async def _read(self, request: web.Request, address: str, body: bytearray) -> None:
        """Append a request's body to `review` as it arrives; raise TooLong or TooManyBytes beyond the bounds."""
        async for chunk in request.content.iter_any():
            if len(body) + len(chunk) > LARGEST_REVIEW:
                raise TooLong(f"the review has more than {LARGEST_REVIEW} bytes")
            own, others = (
                sum(len(held) for sender, held in self._pending.values() if (sender == address) is is_own)
                for is_own in (True, False)
            )
            if own + len(chunk) > (MAX_HELD - others) // 2:
                raise TooManyBytes(
                    f"the manager reads reviews of {MAX_HELD} bytes at a time, half of one sender"
                )
            body += chunk

    def _of_any(self, _key: Key, old: Json | None, new: Json | None) -> Iterable[Key]:
        if old != new:
            self._changed.set()
            return [self._key]
        return []


def _tls(client_ca: Path | None) -> ssl.SSLContext:
    """Make the TLS context of the port, without a certificate yet. ValueError if the client CA's file has no
    certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if client_ca is None:
        return context
    # Python 3.13 demands extensions that many clusters' CA certificates lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(client_ca)
    except OSError as error:
        raise ValueError(f"--webhook-client-ca {client_ca} has no certificate of a CA: {error}") from error
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def _discard(request: web.Request) -> None:
    """Read the rest of a body for a moment: a client that is still sending would not see the answer."""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(DISCARDING):
            async for _ in request.content.iter_any():
                pass


def hosts_of(configuration: Json) -> frozenset[str]:
    """Return the host names at which the API server calls a configuration's webhooks, by Service or by URL."""
    hosts: set[str] = set()
    for webhook in objects(configuration.get("webhooks")):
        client = mapping(webhook.get("clientConfig"))
        service = mapping(client.get("service"))
        if service:
            hosts.add(f"{text(service.get('name'))}.{text(service.get('namespace'))}.svc")
        elif host := urlsplit(text(client.get("url"))).hostname:
            hosts.add(host)
    return frozenset(hosts)


def webhooks_patch(configuration: Json, authority: bytes, needless: Container[str]) -> Json:
    """Return the merge patch that sets the CA of all webhooks of a configuration; {} if nothing differs.

    It removes the webhooks with `needless` names.
    """
    bundle = base64.b64encode(authority).decode()
    webhooks = objects(configuration.get("webhooks"))
    trusting = [
        {**webhook, "clientConfig": {**mapping(webhook.get("clientConfig")), "caBundle": bundle}}
        for webhook in webhooks
        if text(webhook.get("name")) not in needless
    ]
    if trusting == webhooks:
        return {}
    version = metadata(configuration).get("resourceVersion")
    return {"metadata": {"resourceVersion": version}, "webhooks": trusting}


def secret(namespace: str, name: str, data: dict[str, bytes]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"namespace": namespace, "name": name},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def secret_data(obj: Json | None) -> dict[str, bytes]:
    """Decode the data of a Secret; malformed base64 is left out."""
    data: dict[str, bytes] = {}
    for key, value in mapping((obj or {}).get("data")).items():
        try:
            data[key] = base64.b64decode(text(value), validate=True)
        except ValueError:
            continue
    return data


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate through a private temporary file: OpenSSL reads certificates from files only."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(pair)
