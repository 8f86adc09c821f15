"""HTTP of the test cloud: it logs each request, authenticates the caller, applies faults, and responds."""

from __future__ import annotations

import asyncio
import gzip
import uuid
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

from aiohttp import web

from kube.errors import REASONS, StatusError, expired, method_not_supported
from kube.json_type import Json
from kube.requests.request_info import RequestInfo, parse_request
from kube.requests.resource_versions import parse_version
from kube.wire.encoding import Encoding
from kube.wire.negotiation import METADATA_LIST_KIND, Representation
from tests.cloud.scriptable.access import Access, User
from tests.cloud.scriptable.discovery import discovery
from tests.cloud.scriptable.faults import (
    Delay,
    Disconnect,
    ExpiredWatch,
    Faults,
    LostWatch,
    MalformedBody,
    MalformedFrame,
    Refuse,
    Rule,
    ShortWatch,
    Silence,
    StalledWatch,
    TornFrame,
    TruncatedBody,
)
from tests.cloud.scriptable.lists import check_reached, read_list
from tests.cloud.scriptable.object_store import ObjectStore
from tests.cloud.scriptable.presentation import PARTIAL, Presentation, encode_json, encode_status, negotiate
from tests.cloud.scriptable.protobuf import speaks_protobuf
from tests.cloud.scriptable.request_log import LoggedRequest, RequestLog
from tests.cloud.scriptable.resources import Resource, ResourceTable, Trait
from tests.cloud.scriptable.selection import select
from tests.cloud.scriptable.watch import Event, Watcher, WatchSettings
from tests.cloud.scriptable.writes import Write, Writer

MALFORMED = b'{"type":"ADDED","object":}\n'
"""Invalid JSON; as protobuf, a length that no client accepts (0x7b227479 = 2 GB)."""

type Send = Callable[[bytes], Awaitable[None]]


class Ending(Enum):
    """The end of a stream, for the HTTP side to carry out."""

    CLEAN = auto()
    LOST = auto()


async def stream_watch(
    send: Send, watcher: Watcher, presentation: Presentation, rules: Sequence[Rule]
) -> Ending:
    """Send frames until the watch or a fault ends the stream."""
    faults = [rule.fault for rule in rules]
    if any(isinstance(fault, ExpiredWatch) for fault in faults):
        await send(presentation.event(Event("ERROR", status=expired("too old resource version, on command"))))
        return Ending.CLEAN
    sent = 0
    events = watcher.events()
    try:
        while True:
            if ending := await _between(send, rules, sent):
                return ending
            event = await anext(events, None)
            if event is None:
                return Ending.CLEAN
            frame = presentation.event(event)
            if TornFrame(sent) in faults:
                await send(frame[: len(frame) // 2])
                return Ending.LOST
            await send(frame)
            sent += 1
    finally:
        await events.aclose()


async def _between(send: Send, rules: Sequence[Rule], sent: int) -> Ending | None:
    """Apply the stream rules after this many frames, before the next."""
    for rule in rules:
        match rule.fault:
            case ShortWatch(after=after) if after == sent:
                return Ending.CLEAN
            case LostWatch(after=after) if after == sent:
                return Ending.LOST
            case StalledWatch(after=after) if after == sent:
                await rule.lifted.wait()
            case MalformedFrame(after=after) if after == sent:
                await send(MALFORMED)
    return None


GZIP_THRESHOLD = 128 * 1024
"""Bytes above which kube-apiserver compresses a body for clients that accept it."""
HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
HUNG_UP = 444
"""The status, only in the request log, of a request whose connection was closed without a response."""
LIST_VERBS = ("list", "watch")
READ_VERBS = ("get", "list")


class Server:
    """The handler of all requests; it has no state of its own."""

    def __init__(
        self,
        store: ObjectStore,
        table: ResourceTable,
        access: Access,
        faults: Faults,
        log: RequestLog,
        watches: WatchSettings,
    ) -> None:
        self._store = store
        self._table = table
        self._access = access
        self._faults = faults
        self._log = log
        self._watches = watches
        self._writer = Writer(store, table, access)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        logged = LoggedRequest(
            request.method,
            request.raw_path.partition("?")[0],
            request.raw_path.partition("?")[2],
            request.headers.get("User-Agent", ""),
            request.headers.get("Accept", ""),
        )
        self._log.add(logged)
        try:
            response = await self._respond(request, logged)
        except StatusError as error:
            response = _refusal(error, request)
        logged.status = logged.status or response.status
        return response

    async def _respond(self, request: web.BaseRequest, logged: LoggedRequest) -> web.StreamResponse:
        info = logged.info = parse_request(request.method, request.raw_path)
        user = self._access.authenticate(request.headers, _common_name(request))
        logged.user = user.name
        rules = self._faults.take(logged)
        if await _befall(request, rules):
            return web.Response(status=HUNG_UP)
        self._access.authorize(user, info)
        if info.subresource == "exec":
            return await _echo(request)
        if info.type is None or (info.type.group, info.type.version) not in self._table.group_versions:
            return self._other(request, info)
        resource = self._resource(info)
        representation = negotiate(
            request.headers.get("Accept"),
            protobuf=speaks_protobuf(resource),
            kinds=frozenset({PARTIAL, METADATA_LIST_KIND}),
        )
        presentation = Presentation(resource, representation)
        if info.verb == "watch":
            return await self._watch(request, logged, resource, presentation, rules)
        if info.verb in READ_VERBS:
            body = self._read(info, resource, presentation)
            return await _finite_response(request, body, presentation.content_type, 200, rules)
        code, value = await self._write(request, info, resource, user)
        body, content_type = presentation.answer(value)
        return await _finite_response(request, body, content_type, code, rules)

    def _read(self, info: RequestInfo, resource: Resource, presentation: Presentation) -> bytes:
        if info.verb == "get":
            check_reached(self._store.storage, _get_version(info.options.resource_version))
            return presentation.stored(self._store.find(resource, info.name, info.namespace))
        selection = select(resource, info.namespace, info.options)
        return presentation.page(read_list(self._store.storage, selection, info.options))

    async def _write(
        self, request: web.BaseRequest, info: RequestInfo, resource: Resource, user: User
    ) -> tuple[int, Json]:
        body = await request.read()
        content_type = request.headers.get("Content-Type", "")
        return self._writer.answer(Write(info, resource, user, content_type, body))

    async def _watch(
        self,
        request: web.BaseRequest,
        logged: LoggedRequest,
        resource: Resource,
        presentation: Presentation,
        rules: Sequence[Rule],
    ) -> web.StreamResponse:
        assert logged.info is not None
        info = logged.info
        selection = select(resource, info.namespace, info.options)
        watcher = Watcher(self._store.storage, selection, info.options, self._watches)
        response = web.StreamResponse(headers=_headers(presentation.watch_content_type))
        try:
            logged.status = 200
            await response.prepare(request)
            if await stream_watch(response.write, watcher, presentation, rules) is Ending.LOST:
                _hang_up(request)
        except ConnectionError:
            pass  # The client has disconnected, so no error can reach it.
        finally:
            watcher.close()
        return response

    def _other(self, request: web.BaseRequest, info: RequestInfo) -> web.Response:
        """Serve the paths that name no resource."""
        path = info.path.rstrip("/") or "/"
        if path in HEALTH_PATHS:
            return web.Response(text="ok")
        document = discovery(self._table, path)
        if document is None:
            if info.type is None and path.startswith("/api/"):
                raise _unknown_resource()
            return web.Response(text="404 page not found", status=404)
        if request.method != "GET":
            raise _method_not_allowed()
        accept = request.headers.get("Accept", "")
        negotiate(accept, protobuf=False)
        return web.Response(body=encode_json(document), headers=_headers(str(Encoding.JSON)))

    def _resource(self, info: RequestInfo) -> Resource:
        """Return the request's resource; StatusError 404 or 405 if kube-apiserver has no such route."""
        assert info.type is not None
        resource = self._table.at(info.type.group, info.type.version, info.type.resource)
        if resource is None or not _has_route(resource, info):
            raise _unknown_resource()
        if info.verb not in _verbs(resource, info):
            raise _method_not_allowed()
        return resource


def _get_version(text: str) -> int:
    """Parse the resourceVersion of a GET; StatusError 500 for an invalid one, like a real server."""
    try:
        return parse_version(text)
    except ValueError as error:
        raise StatusError(500, "", f'resourceVersion: Invalid value: "{text}": {error}') from error


def _has_route(resource: Resource, info: RequestInfo) -> bool:
    """Return True if the path exists for any method."""
    if info.namespace and not resource.namespaced and resource.name != "namespaces":
        return False
    if info.name and info.verb not in LIST_VERBS and resource.namespaced and not info.namespace:
        return False
    match info.subresource:
        case "":
            return True
        case "status":
            return Trait.STATUS in resource.traits
        case "token":
            return resource.name == "serviceaccounts"
        case _:
            return False


def _verbs(resource: Resource, info: RequestInfo) -> tuple[str, ...]:
    """Return the methods that a path allows."""
    if info.method in {"HEAD", "OPTIONS"}:
        return ()
    if info.subresource:
        return ("create",) if info.subresource == "token" else ("get", "patch", "update")
    if Trait.QUESTION in resource.traits:
        return () if info.name else ("create",)
    if info.verb in LIST_VERBS:
        return LIST_VERBS
    if info.name:
        return ("get", "patch", "update", "delete")
    if resource.namespaced and not info.namespace:
        return ()
    return ("create",)


async def _befall(request: web.BaseRequest, rules: Sequence[Rule]) -> bool:
    """Apply the faults for any request; True if the connection is closed. Raises StatusError for a refusal."""
    for rule in rules:
        match rule.fault:
            case Delay(seconds=seconds):
                await asyncio.sleep(seconds)
            case Silence():
                await rule.lifted.wait()
                _hang_up(request)
                return True
            case Disconnect():
                _hang_up(request)
                return True
            case Refuse(code=code, reason=reason, message=message, retry_after=retry_after):
                details = {} if retry_after is None else {"retryAfterSeconds": retry_after}
                raise StatusError(code, reason or REASONS.get(code, ""), message, details, retry_after)
    return False


async def _finite_response(
    request: web.BaseRequest, body: bytes, content_type: str, code: int, rules: Sequence[Rule]
) -> web.StreamResponse:
    """Return a finite answer, compressed if large, with the faults applied."""
    headers = _headers(content_type)
    faults = {type(rule.fault) for rule in rules}
    if MalformedBody in faults:
        body = body[: len(body) // 2]
    encodings = [one.strip() for one in request.headers.get("Accept-Encoding", "").split(",")]
    if len(body) > GZIP_THRESHOLD and "gzip" in encodings:
        body = gzip.compress(body, compresslevel=1)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    if TruncatedBody not in faults:
        return web.Response(body=body, status=code, headers=headers)
    response = web.StreamResponse(status=code, headers=headers)
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    _hang_up(request)
    return response


async def _echo(request: web.BaseRequest) -> web.StreamResponse:
    """Serve an exec over WebSocket whose process prints its input in capitals."""
    socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
    await socket.prepare(request)
    async for message in socket:
        await socket.send_bytes(bytes(message.data).upper())
    return socket


def _refusal(error: StatusError, request: web.BaseRequest) -> web.Response:
    """Return the Status, in the client's preferred encoding if the request names one."""
    try:
        encoding = negotiate(request.headers.get("Accept")).encoding
    except StatusError:
        encoding = Representation(Encoding.JSON).encoding
    headers = _headers(str(encoding))
    retry_after = error.retry_after or error.details.get("retryAfterSeconds")
    if retry_after:
        headers["Retry-After"] = str(retry_after)
    body = encode_status(error, encoding)
    return web.Response(body=body, status=error.code, headers=headers)


def _hang_up(request: web.BaseRequest) -> None:
    """Close the connection after the bytes that are already written."""
    if request.transport is not None:
        request.transport.close()


def _headers(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type, "Cache-Control": "no-cache, private", "Audit-Id": str(uuid.uuid4())}


def _common_name(request: web.BaseRequest) -> str:
    """Return the user name in the client's certificate, "" for none."""
    certificate = request.get_extra_info("peercert") or {}
    names = [
        value for part in certificate.get("subject", ()) for field, value in part if field == "commonName"
    ]
    return names[0] if names else ""


def _unknown_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def _method_not_allowed() -> StatusError:
    return method_not_supported("the server does not allow this method on the requested resource")
