"""Bounds of the clients at one address of one listener, over all their connections.

That is connections, requests under way, bodies of requests, unread bytes of answers, and scheduling. Each address has a
bound, and so has each listener: pods take nothing that the node's components need.
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
"""Connections from one address to one listener that is not the plain port."""
MAX_REQUESTS = 4_000
"""Open requests from one address to one listener."""
COMMON_HEAD = 2 * 1024
"""Bytes of a request's head, which the hub keeps to the end. One with a token of a service account has some 1,700."""
HEAD_SHARE = 512
"""Bytes beyond that for each of which it counts as one request more."""
MAX_UNREAD = 4 * 1024 * 1024
"""Bytes that all client connections may hold; beyond, addresses that hold more than an even share lose streams."""
STREAM_UNREAD = 64 * 1024
"""Bytes of one request that wait for its client or its server, before the other side must stop."""
FAIR_UNREAD = 1024 * 1024
"""Bytes that the connections from one address may hold whatever others hold."""
MAX_REQUEST_BODY = 3 * 1024 * 1024
"""Bytes of a request's body that the hub collects: as much as kube-apiserver takes."""
MAX_BODIES = 24 * 1024 * 1024
"""Bytes of bodies that the hub holds at one time for one listener."""
MAX_BODIES_OF_ADDRESS = 12 * 1024 * 1024
"""Bytes of these for the clients at one address."""
MAX_ANSWERS = 64 * 1024 * 1024
"""Bytes of servers' answers that the hub collects at one time for one listener."""
MAX_ANSWERS_OF_ADDRESS = 24 * 1024 * 1024
"""Bytes of these for the clients at one address."""
MAX_UNSENT = 24 * 1024 * 1024
"""Bytes of streamed bodies that wait for servers, of all clients of one listener."""
MAX_UNSENT_OF_ADDRESS = 8 * 1024 * 1024
"""Bytes of these for the clients at one address."""
RETRY_AFTER = 1
"""Seconds; a body is held until its request is answered, mostly for milliseconds."""


class ConnectedClient(Protocol):
    """A client's connection."""

    @property
    def sockname(self) -> tuple[Any, ...]:
        """The hub's end: address and port first."""

    @property
    def peername(self) -> tuple[Any, ...]:
        """The client's end."""


class ServedClient(Protocol):
    """A client's connection that speaks HTTP."""

    @property
    def count(self) -> int:
        """The open requests."""

    @property
    def weight(self) -> int:
        """The open requests, each by the weight of its head."""

    @property
    def held(self) -> int:
        """Bytes that the hub holds because the client does not read."""

    def end_least_read(self) -> None:
        """Soon, end the request of which the client leaves most unread, if its address still leaves too much."""


class Upload(Protocol):
    """A request whose body goes to its server as it comes."""

    def abort_upload(self) -> None:
        """End the request: among too many bodies that wait for servers, most waits of this one."""


class HeldBytes:
    """Bytes of one kind that the hub holds for the clients of a listener."""

    def __init__(self) -> None:
        self.size = 0


class AddressBytes(HeldBytes):
    """The unread bytes of answers for the clients at one address."""

    def __init__(self, of_listener: HeldBytes) -> None:
        super().__init__()
        self._of_listener = of_listener

    def try_add(self, more: int, limit: int, limit_of_listener: int) -> bool:
        """Add what fits; else add nothing.

        An address gets at most half of the free bytes, so that three cannot take all.
        """
        left = limit_of_listener - self._of_listener.size - more
        if more > 0 and self.size + more > min(limit, left):
            return False
        self.size += more
        self._of_listener.size += more
        return True


class ListenerClients:
    """The bounds of all clients of one listener. The hub itself never waits for other listeners' clients."""

    def __init__(self) -> None:
        self.bodies, self.answers, self.unsent = HeldBytes(), HeldBytes(), HeldBytes()
        self.scheduler = ClientScheduler()


class ClientAddress:
    """The clients at one address of one listener. Its connections and requests hold a reference to it."""

    def __init__(self, listener: ListenerClients) -> None:
        self.listener = listener
        self.connections = 0
        self.bodies = AddressBytes(listener.bodies)
        """Bodies of requests that the hub collects."""
        self.answers = AddressBytes(listener.answers)
        """Answers of servers that it collects."""
        self.unsent = AddressBytes(listener.unsent)
        """Streamed bodies that wait for servers."""
        self._uploads: dict[Upload, int] = {}
        """How many of these each has that has any."""
        self.served: WeakSet[ServedClient] = WeakSet()
        self._certain = 0
        """How many more requests fit even if none ends. To count all of them at each request would cost more than some
        requests do."""

    def begin_request(self, target: bytes, fields: Iterable[tuple[bytes, bytes]]) -> int:
        """Note the head of a further request; as how many requests it counts."""
        head = len(target) + sum([len(name) + len(value) for name, value in fields])
        weight = 1 + max(0, head - COMMON_HEAD) // HEAD_SHARE
        self._certain -= weight
        return weight

    @property
    def requests(self) -> int:
        """Open requests."""
        return sum(client.count for client in self.served)

    @property
    def has_capacity(self) -> bool:
        """Whether the address may have its latest request."""
        if self._certain < 0:
            self._certain = MAX_REQUESTS - sum(client.weight for client in self.served)
        return self._certain >= 0

    @property
    def unread(self) -> int:
        """Bytes that the hub holds for clients that do not read."""
        return sum(client.held for client in self.served)

    @property
    def leaves_too_much(self) -> bool:
        """Whether all addresses together leave too much unread, and this one more than an even share of that."""
        if self.unread <= FAIR_UNREAD:
            return False
        unread = [address.unread for address in _addresses.values()]
        leaving = sum(1 for count in unread if count)
        return sum(unread) > MAX_UNREAD and self.unread * leaving > MAX_UNREAD

    @property
    def least_read(self) -> ServedClient:
        """The connection whose client leaves most unread: others at the address lose nothing for it."""
        return max(self.served, key=lambda client: client.held)

    def resize_body(self, held: int, wanted: int) -> StatusError | None:
        """Count `wanted` bytes for a request that held `held`; the reason why it may not have them."""
        if wanted > MAX_REQUEST_BODY:
            return entity_too_large(f"limit is {MAX_REQUEST_BODY}")
        if self.bodies.try_add(wanted - held, MAX_BODIES_OF_ADDRESS, MAX_BODIES):
            return None
        return too_many_requests("the hub holds too many bodies of requests", RETRY_AFTER)

    def resize_answer(self, held: int, wanted: int) -> bool:
        """Count `wanted` bytes of an answer of which `held` were counted; False where it may not have them."""
        return self.answers.try_add(wanted - held, MAX_ANSWERS_OF_ADDRESS, MAX_ANSWERS)

    def hold_unsent(self, upload: Upload, size: int) -> None:
        """Note how much of a body waits for its server. The longest ones end where that is too much."""
        self._count_unsent(upload, size)
        while self.unsent.size > MAX_UNSENT_OF_ADDRESS:
            self._end_longest()
        while self.listener.unsent.size > MAX_UNSENT:
            of_listener = (address for address in _addresses.values() if address.listener is self.listener)
            max(of_listener, key=lambda address: address.unsent.size)._end_longest()

    def _end_longest(self) -> None:
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
"""By port."""
_addresses: WeakValueDictionary[tuple[int, str], ClientAddress] = WeakValueDictionary()


def address_of(client: ConnectedClient) -> ClientAddress:
    """Where a client is, and which listener it uses: components on loopback do not count for pods on it."""
    port, address = 0, ""
    with contextlib.suppress(TypeError, IndexError):
        port, address = client.sockname[1], client.peername[0]
    held = _addresses.get((port, address))
    if held is None:
        held = _addresses[port, address] = ClientAddress(listeners[port])
    return held
