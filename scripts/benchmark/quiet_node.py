"""A table of `scripts/bench --links`: what each byte of a quiet node is for, with a real kubelet and kube-proxy.

A recorder between hub and kube-apiserver terminates the hub's TLS, connects with the node's certificate, and forwards
the HTTP/2 frames unchanged while it counts them. A TLS record counts with its size on the wire.
"""

from __future__ import annotations

import itertools
import re
import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Self

from hpack import Decoder
from hpack.exceptions import HPACKError

from tests.cloud.build import ensure_binaries
from tests.cloud.hollow import HollowKubelet, HollowProxy
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub
from tests.support.relay import end, exchange

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = 9
"""Bytes of an HTTP/2 frame header."""
RECORD = 22
"""Bytes that a TLS 1.3 record adds: its header, the inner type, the tag."""
TYPES = {
    0: "data",
    1: "headers",
    3: "reset",
    4: "settings",
    6: "ping",
    7: "goaway",
    8: "window",
    9: "headers",
}
REQUEST_LINE = re.compile(rb"([A-Z]+) (\S+) HTTP/1.1\r\n")
UP, DOWN = "up", "down"


class Recorder:
    """Counts bytes by cause and direction, after `start`."""

    def __init__(self, cloud: RealCloud, node: str, folder: Path) -> None:
        authority = cloud.authority
        self._near = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        folder.mkdir(exist_ok=True)
        self._near.load_cert_chain(
            *authority.issue_server("recorder", ["127.0.0.1"]).write(folder, "recorder")
        )
        self._near.verify_mode = ssl.CERT_OPTIONAL
        self._near.load_verify_locations(cloud.authority_file)
        self._near.num_tickets = 1  # as of Go
        self._far = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._far.check_hostname, self._far.verify_mode = False, ssl.CERT_NONE
        self._far.load_cert_chain(*authority.issue_node(node).write(folder, "recorder-node"))
        self._near.set_alpn_protocols(["h2", "http/1.1"])
        self._server = (cloud.host, cloud.port)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._lock = threading.Lock()
        self.counts: Counter[tuple[str, str]] = Counter()
        """Bytes by cause and direction."""
        self.connections = self.requests = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        end(self._socket)

    def start(self) -> None:
        """Start counting."""
        with self._lock:
            self.counts.clear()
            self.connections = self.requests = 0

    def add(self, cause: str, direction: str, size: int) -> None:
        with self._lock:
            self.counts[cause, direction] += size

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, raw: socket.socket) -> None:
        try:
            client = self._near.wrap_socket(raw, server_side=True)
            spoken = client.selected_alpn_protocol() or "http/1.1"
            with self._lock:
                self._far.set_alpn_protocols([spoken])
                server = self._far.wrap_socket(socket.create_connection(self._server))
        except OSError:
            raw.close()
            return
        with self._lock:
            self.connections += 1
        streams: dict[int, str] = {}
        up, down = (Frames(self, direction, streams, spoken) for direction in (UP, DOWN))
        with client, server:
            exchange(client, server, up.read, down.read)


class Frames:
    """The frames of one direction of a connection."""

    def __init__(self, recorder: Recorder, direction: str, streams: dict[int, str], spoken: str) -> None:
        """`streams` has the cause of each stream, by its id; both directions share it."""
        self._recorder, self._direction, self._streams = recorder, direction, streams
        self._left = bytearray()
        self._decoder = Decoder(max_header_list_size=2**20)
        self._is_begun = direction == DOWN
        self._is_http1 = spoken != "h2"

    def read(self, data: bytes) -> None:
        """Parse the content of one TLS record."""
        self._recorder.add("TLS records", self._direction, RECORD)
        if self._is_http1:
            if match := REQUEST_LINE.match(data):
                self._streams[0] = cause_of(match[1].decode(), match[2].decode())
            self._recorder.add(f"relayed {self._streams.get(0, '')}", self._direction, len(data))
            return
        self._left += data
        if not self._is_begun:
            if len(self._left) < len(PREFACE):
                return
            del self._left[: len(PREFACE)]
            self._is_begun = True
        while len(self._left) >= HEAD:
            size = HEAD + int.from_bytes(self._left[:3])
            if len(self._left) < size:
                return
            self._frame(bytes(self._left[:size]))
            del self._left[:size]

    def _frame(self, frame: bytes) -> None:
        type_, flags, stream = TYPES.get(frame[3], "other"), frame[4], int.from_bytes(frame[5:9])
        body = frame[HEAD:]
        if type_ == "headers" and frame[3] == 1:
            body = body[1 : len(body) - body[0]] if flags & 0x8 else body
            fields = self._fields(body[5:] if flags & 0x20 else body)
            if ":path" in fields:
                self._recorder.requests += 1
                self._streams[stream] = cause_of(fields[":method"], fields[":path"])
        cause = self._streams.get(stream, "connection")
        what = type_
        if type_ == "data" and cause.startswith("watch"):
            what = "bookmark" if b"BOOKMARK" in body else "event"
        self._recorder.add(
            f"{cause}: {what}" if stream else f"connection: {type_}", self._direction, len(frame)
        )

    def _fields(self, block: bytes) -> dict[str, str]:
        try:
            return {str(name): str(value) for name, value in self._decoder.decode(block)}
        except HPACKError:
            return {}


def cause_of(method: str, target: str) -> str:
    """Classify a request by its purpose."""
    path, _, query = target.partition("?")
    segments = re.sub(r"^/api/v1/|^/apis/|namespaces/[^/]+/(?=.)", "", path).split("/")
    return f"{'watch' if 'watch=' in query else method} {'/'.join(segments[-3:])}"


NODE = "quiet-1"
OTHERS = 999
"""Other nodes, whose statuses the bench writes, each one every five minutes."""
STATUS_EVERY = 300.0
FIRST = 45.0
"""Seconds from the hub's start until kubelet, kube-proxy and the hub have finished their first reads."""
SETTLING = 120.0
"""Seconds until a small watch has got its first bookmark."""
WINDOW = 600.0
"""Seconds of the measurement: two statuses of the node, and ten bookmarks of each watch."""
DAY = 86400
LEAST = 0.02
"""Megabytes a day. Causes with fewer share one line."""
RULES = {"metadata": {"name": "yurt-hub-cfg"}, "data": {"cache_agents": "hollow-kubelet,hollow-proxy"}}


def measure(cloud: RealCloud, folder: Path) -> None:
    """Print the table. The cloud has no NodeLabels, because no Service has a topology."""
    folder.mkdir()
    cloud.admin.post("/api/v1/namespaces/kube-system/configmaps", RULES)
    for number in range(OTHERS):
        cloud.admin.post("/api/v1/nodes", {"metadata": {"name": f"other-{number}"}})
    ends = threading.Event()
    others = threading.Thread(target=write_statuses, args=(cloud, ends), daemon=True)
    with Recorder(cloud, NODE, folder) as recorder, Link("127.0.0.1", recorder.port) as link:
        server = f"https://{link.host}:{link.port}"
        began = time.monotonic()
        with Hub(folder / "hub", server, node=NODE, kubeconfig=cloud.node_kubeconfig(NODE)) as hub:
            kubeconfig = write_kubeconfig(folder / "kubelet.conf", hub.url)
            programs = ensure_binaries(("kubemark",))
            with (
                HollowKubelet(NODE, kubeconfig, folder, programs) as kubelet,
                HollowProxy(NODE, kubeconfig, folder, programs),
            ):
                kubelet.wait_ready(cloud.admin)
                others.start()
                time.sleep(max(0.0, began + FIRST - time.monotonic()))
                first = link.traffic
                print(f"\n{'a whole node, first 45 s':60}{(first.up + first.down) / 1e3:9.0f} KB")
                time.sleep(SETTLING)
                recorder.start()
                before = link.traffic
                time.sleep(WINDOW)
                after, counts = link.traffic, Counter(recorder.counts)
                ends.set()
                others.join()
    report(counts, after.up - before.up, after.down - before.down)


def write_statuses(cloud: RealCloud, ends: threading.Event) -> None:
    for number in itertools.count():
        if ends.wait(STATUS_EVERY / OTHERS):
            return
        ready = {"type": "Ready", "status": "True", "reason": f"Written{number}"}
        cloud.admin.patch(
            f"/api/v1/nodes/other-{number % OTHERS}/status", {"status": {"conditions": [ready]}}
        )


def report(counts: Counter[tuple[str, str]], up: int, down: int) -> None:
    """Return the causes, largest first, and the sum that the link counted."""
    print(f"\n{'quiet node, with kubelet and kube-proxy':60}{'up':>9}{'down':>9}{'MB a day':>10}")
    causes = Counter[str]()
    for (cause, _), size in counts.items():
        causes[cause] += size
    rest = [0, 0]
    for cause, size in causes.most_common():
        sent, received = counts[cause, UP], counts[cause, DOWN]
        if megabytes(size) < LEAST:
            rest = [rest[0] + sent, rest[1] + received]
        else:
            line(cause.replace(NODE, "…"), sent, received)
    line("the rest", *rest)
    line("all", up, down)


def line(name: str, sent: int, received: int) -> None:
    up, down = megabytes(sent), megabytes(received)
    print(f"{name[:59]:60}{up:9.2f}{down:9.2f}{up + down:10.2f}")


def megabytes(size: int) -> float:
    """Convert bytes to megabytes a day."""
    return size / WINDOW * DAY / 1e6
