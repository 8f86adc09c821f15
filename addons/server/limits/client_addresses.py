"""Bounds of the clients at one address of one listener, over all their connections.

Bounded are connections, open requests, request bodies, unread bytes of answers, and scheduling. Each address and each
listener has its own bounds, so that pods cannot exhaust resources that the node's components need.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Protocol
from weakref import WeakSet, WeakValueDictionary

from addons.server.limits.client_scheduler import ClientScheduler
from kube.errors import StatusError, entity_too_large, too_many_requests

MAX_CONNECTIONS = 256
"""Maximum connections from one address to one listener; the plain port has no such bound."""
MAX_REQUESTS = 4_000
"""Maximum open requests from one address to one listener."""
COMMON_HEAD = 2 * 1024
"""Bytes of a request head that count as one request: the hub holds a head until the request ends. A head with a service
account's token has some 1,700.
"""
HEAD_SHARE = 512
"""Bytes beyond COMMON_HEAD that count as one more request."""
MAX_UNREAD = 4 * 1024 * 1024
"""Bytes that the hub holds for all clients that do not read. Above it, addresses with more than an even share lose
streams.
"""
STREAM_UNREAD = 64 * 1024
"""Bytes buffered for the receiver of one request's body or answer, above which the hub stops reading from the
sender.
"""
FAIR_UNREAD = 1024 * 1024
"""Unread bytes that the connections from one address may always have, whatever other addresses have."""
MAX_REQUEST_BODY = 3 * 1024 * 1024
"""Maximum bytes of a request body that the hub buffers: kube-apiserver's own limit."""
MAX_BODIES = 24 * 1024 * 1024
"""Maximum bytes of request bodies that the hub buffers at a time for one listener."""
MAX_BODIES_OF_ADDRESS = 12 * 1024 * 1024
"""Maximum of these bytes for the clients at one address."""
MAX_ANSWERS = 64 * 1024 * 1024
"""Maximum bytes of servers' answers that the hub buffers at a time for one listener."""
MAX_ANSWERS_OF_ADDRESS = 24 * 1024 * 1024
"""Maximum of these bytes for the clients at one address."""
MAX_UNSENT = 24 * 1024 * 1024
"""Maximum bytes of streamed bodies that wait for servers, for all clients of one listener."""
MAX_UNSENT_OF_ADDRESS = 8 * 1024 * 1024
"""Maximum of these bytes for the clients at one address."""
RETRY_AFTER = 1
"""Seconds after which a refused client may retry; the hub holds most bodies for milliseconds."""


class ConnectedClient(Protocol):
    """A client's connection, for its addresses."""

    @property
    def sockname(self) -> tuple[Any, ...]:
        """The hub's socket address: address and port come first."""

    @property
    def peername(self) -> tuple[Any, ...]:
        """The client's socket address."""


class ServedClient(Protocol):
    """A client's connection that speaks HTTP, for the bounds."""

    @property
    def count(self) -> int:
        """Number of open requests."""

    @property
    def weight(self) -> int:
        """Sum of the weights of the open requests."""

    @property
    def held(self) -> int:
        """Bytes that the hub holds because the client does not read."""

    def bound_unread_soon(self) -> None:
        """Schedule an abort of the request with the most unread bytes, if the address exceeds its share by then."""


class Upload(Protocol):
    """A request whose body is streamed to its server."""

    def abort_upload(self) -> None:
        """Abort the request: the hub buffers too many request bytes for slow servers, and most for this body."""


class HeldBytes:
    """Counter of the bytes of one kind that the hub holds for the clients of a listener."""

    def __init__(self) -> None:
        self.size = 0


class AddressBytes(HeldBytes):
    """Counter of the bytes of one kind that the hub holds for the clients at one address."""

    def __init__(self, of_listener: HeldBytes) -> None:
        super().__init__()
        self._of_listener = of_listener

    def try_add(self, more: int, limit: int, limit_of_listener: int) -> bool:
        """Add `more` bytes and return True, or add nothing and return False if they exceed a bound.

        An address gets at most half of the listener's free bytes, so that a few addresses cannot take all.
        """
        left = limit_of_listener - self._of_listener.size - more
        if more > 0 and self.size + more > min(limit, left):
            return False
        self.size += more
        self._of_listener.size += more
        return True


class ListenerClients:
    """The counters and the scheduler of one listener's clients. Listeners share none of them."""

    def __init__(self) -> None:
        self.bodies, self.answers, self.unsent = HeldBytes(), HeldBytes(), HeldBytes()
        self.scheduler = ClientScheduler()


class ClientAddress:
    """The counters of the clients at one address of one listener. Its connections and requests hold a reference to
    it.
    """

    def __init__(self, listener: ListenerClients) -> None:
        self.listener = listener
        self.connections = 0
        self.bodies = AddressBytes(listener.bodies)
        """Bytes of request bodies that the hub buffers."""
        self.answers = AddressBytes(listener.answers)
        """Bytes of servers' answers that the hub buffers."""
        self.unsent = AddressBytes(listener.unsent)
        """Bytes of streamed bodies that wait for servers."""
        self._uploads: dict[Upload, int] = {}
        """The unsent bytes of each request that has any."""
        self.served: WeakSet[ServedClient] = WeakSet()
        self._known_capacity = 0
        """Weight of requests that still fits even if no open request ends. Counting all open requests for each new one
        would cost more than some requests."""

    def begin_request(self, target: bytes, fields: Iterable[tuple[bytes, bytes]]) -> int:
        """Count a new request, and return its weight: the number of requests as which its head counts."""
        head = len(target) + sum([len(name) + len(value) for name, value in fields])
        weight = 1 + max(0, head - COMMON_HEAD) // HEAD_SHARE
        self._known_capacity -= weight
        return weight

    @property
    def requests(self) -> int:
        """Number of open requests."""
        return sum(client.count for client in self.served)

    @property
    def has_capacity(self) -> bool:
        """Whether the open requests, the latest one included, are within MAX_REQUESTS."""
        if self._known_capacity < 0:
            self._known_capacity = MAX_REQUESTS - sum(client.weight for client in self.served)
        return self._known_capacity >= 0

    @property
    def unread(self) -> int:
        """Bytes that the hub holds for clients at this address that do not read."""
        return sum(client.held for client in self.served)

    @property
    def exceeds_share(self) -> bool:
        """True if all addresses together exceed MAX_UNREAD, and this one exceeds an even share of it."""
        if self.unread <= FAIR_UNREAD:
            return False
        unread = [address.unread for address in _addresses.values()]
        leaving = sum(1 for count in unread if count)
        return sum(unread) > MAX_UNREAD and self.unread * leaving > MAX_UNREAD

    @property
    def most_unread(self) -> ServedClient:
        """The connection with the most unread bytes, the only one that loses answers."""
        return max(self.served, key=lambda client: client.held)

    def resize_body(self, held: int, wanted: int) -> StatusError | None:
        """Change a request body's counted size from `held` to `wanted` bytes. Return the error if that exceeds a bound,
        else None.
        """
        if wanted > MAX_REQUEST_BODY:
            return entity_too_large(f"limit is {MAX_REQUEST_BODY}")
        if self.bodies.try_add(wanted - held, MAX_BODIES_OF_ADDRESS, MAX_BODIES):
            return None
        return too_many_requests("the hub buffers too many request bodies", RETRY_AFTER)

    def resize_answer(self, held: int, wanted: int) -> bool:
        """Change an answer's counted size from `held` to `wanted` bytes. Return False if that exceeds a bound."""
        return self.answers.try_add(wanted - held, MAX_ANSWERS_OF_ADDRESS, MAX_ANSWERS)

    def resize_unsent(self, upload: Upload, size: int) -> None:
        """Record how many bytes of a body wait for its server. Abort the largest uploads if the sum exceeds a bound."""
        self._count_unsent(upload, size)
        while self.unsent.size > MAX_UNSENT_OF_ADDRESS:
            self._abort_largest_upload()
        while self.listener.unsent.size > MAX_UNSENT:
            of_listener = (address for address in _addresses.values() if address.listener is self.listener)
            max(of_listener, key=lambda address: address.unsent.size)._abort_largest_upload()

    def _abort_largest_upload(self) -> None:
        longest = max(self._uploads, key=self._uploads.__getitem__)
        self._count_unsent(longest, 0)
        longest.abort_upload()

    def _count_unsent(self, upload: Upload, size: int) -> None:
        more = size - self._uploads.pop(upload, 0)
        if size:
            self._uploads[upload] = size
        self.unsent.size += more
        self.listener.unsent.size += more


listeners: defaultdict[int, ListenerClients] = defaultdict(ListenerClients)
"""The counters of each listener, by its port."""
_addresses: WeakValueDictionary[tuple[int, str], ClientAddress] = WeakValueDictionary()


def address_of(client: ConnectedClient) -> ClientAddress:
    """Return the counters for a client's address at its listener. Listeners count separately: pods and components may
    share loopback.
    """
    port, address = 0, ""
    with contextlib.suppress(TypeError, IndexError):
        port, address = client.sockname[1], client.peername[0]
    held = _addresses.get((port, address))
    if held is None:
        held = _addresses[port, address] = ClientAddress(listeners[port])
    return held
