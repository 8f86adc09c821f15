"""The load of `scripts/bench --pool links`: bytes on the links of pools, without leaders, with leaders and with a
relay."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import zstandard

from kube.differences.reader import DifferenceReader
from kube.differences.records import Former, event_record, state_records
from kube.json_type import Json
from kube.wire.codec import codec_for
from kube.wire.codec_base import WatchFrame
from kube.wire.encoding import Encoding
from scripts.benchmark.load import ENDPOINT_SLICES, NAMESPACE, SLICES, new_cloud, slice_of
from tests.cloud.real import RealCloud

POOLS, NODES = 10, 100
"""Pools, and nodes of each, in the example of `docs/measured.md`."""
EXAMPLE_ENDPOINTS = 410
"""Endpoints of a slice of about 50 KB in protobuf."""
UPDATES = 1000
GZIP_LEVEL = 4
"""The compression level of kube-apiserver."""
CODEC = codec_for(Encoding.PROTOBUF)


@dataclass(frozen=True, slots=True)
class Traffic:
    """A watch as kube-apiserver sent it: the initial state, and the events that followed."""

    name: str
    state: list[bytes]
    events: list[bytes]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a stream: bytes of the initial state and of the events, and CPU seconds for all events."""

    state: int
    events: int
    written: float
    read: float


def record(cloud: RealCloud, name: str, slices: int, endpoints: int) -> Traffic:
    """Record slices of a real API server, and UPDATES updates, each of which replaces one endpoint with a new pod."""
    chance = random.Random(7)
    made = [new_slice(f"{name}-{number}", endpoints, chance) for number in range(slices)]
    for event in made:
        cloud.admin.post(ENDPOINT_SLICES, event)
    begin = cloud.admin.get(SLICES)["metadata"]["resourceVersion"]
    for number in range(UPDATES):
        obj = made[number % slices]
        obj["endpoints"][chance.randrange(endpoints)] = endpoint_of(name, chance)
        obj["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": _time(number)}
        cloud.admin.put(f"{ENDPOINT_SLICES}/{obj['metadata']['name']}", obj)
    events = watched(cloud, name, resourceVersion=str(begin))
    state = cloud.admin.request("GET", SLICES, headers={"Accept": Encoding.PROTOBUF.value})
    page = CODEC.decode_list(state.body)
    first = [raw for raw in page.items if CODEC.peek(raw).name.startswith(f"{name}-")]
    frames = [CODEC.encode_event("ADDED", page.api_version, page.kind, raw) for raw in first]
    assert (len(frames), len(events)) == (slices, UPDATES)
    return Traffic(f"{slices} slices of {endpoints} endpoints", frames, events)


def watched(
    cloud: RealCloud, name: str, path: str = SLICES, accept: str = Encoding.PROTOBUF, **query: str
) -> list[bytes]:
    """Return the frames of a finished watch, with the given query, of the objects whose names begin with `name`."""
    stream = {**query, "watch": "true", "timeoutSeconds": "3"}
    answer = cloud.admin.request("GET", path, query=stream, headers={"Accept": accept})
    assert answer.status == 200, answer.body[:300]
    frames = CODEC.frames().feed(answer.body)
    return [frame_of(event) for event in frames if CODEC.peek(event.raw).name.startswith(f"{name}-")]


def frame_of(frame: WatchFrame) -> bytes:
    return CODEC.encode_event(frame.type, frame.api_version, frame.kind, frame.raw)


def new_slice(name: str, endpoints: int, chance: random.Random) -> Json:
    return slice_of(name, [endpoint_of(name, chance) for _ in range(endpoints)])


def endpoint_of(name: str, chance: random.Random) -> Json:
    """Return an endpoint of a new pod, as the EndpointSlice controller writes it."""
    uid = f"{chance.getrandbits(128):032x}"
    pod = "".join(chance.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
    return {
        "addresses": [f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"],
        "nodeName": f"node-{chance.randrange(1000)}",
        "zone": f"zone-{chance.randrange(3)}",
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {
            "kind": "Pod",
            "namespace": NAMESPACE,
            "name": f"{name}-7d9c5b8f64-{pod}",
            "uid": "-".join((uid[:8], uid[8:12], uid[12:16], uid[16:20], uid[20:])),
        },
    }


def _time(second: int) -> str:
    return f"2026-11-22T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def plain(traffic: Traffic) -> Cost:
    """Return the stream as kube-apiserver sends it."""
    return _stream(traffic, lambda frame: frame, lambda packed: packed)


def gzipped(traffic: Traffic) -> Cost:
    """Return the stream in gzip."""
    packer, unpacker = zlib.compressobj(GZIP_LEVEL, wbits=31), zlib.decompressobj(31)
    return _stream(
        traffic, lambda frame: packer.compress(frame) + packer.flush(zlib.Z_SYNC_FLUSH), unpacker.decompress
    )


def zstd_stream(traffic: Traffic) -> Cost:
    """Return the stream in zstd. Compression depends on what one connection has carried, so the sender compresses once
    per reader."""
    packer, unpacker = zstandard.ZstdCompressor(3).compressobj(), zstandard.ZstdDecompressor().decompressobj()
    return _stream(
        traffic,
        lambda frame: packer.compress(frame) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
        unpacker.decompress,
    )


def _stream(traffic: Traffic, pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Cost:
    """Return the bytes of one reader's stream, flushed at each event."""
    state = [pack(frame) for frame in traffic.state]
    written, packed = _timed(pack, traffic.events)
    reader = CODEC.frames()
    for piece in state:
        reader.feed(unpack(piece))
    read, frames = _timed(lambda piece: reader.feed(unpack(piece)), packed)
    assert sum(map(len, frames)) == len(traffic.events)
    return Cost(sum(map(len, state)), sum(map(len, packed)), written, read)


def differences(traffic: Traffic) -> Cost:
    """Return the stream of `kube.differences`, which the sender encodes once for all readers."""
    formers, holder = Held(), Held()
    state = list(state_records(traffic.state))
    for frame in _read(traffic.state):
        formers.take(frame)
    frames = _read(traffic.events)
    events = [(event, formers.former(frame)) for event, frame in zip(traffic.events, frames, strict=True)]
    written, records = _timed(lambda event: event_record(*event), events)
    reader = DifferenceReader(CODEC, holder.held)

    def feed(record: bytes) -> int:
        return sum(holder.take(frame) for frame in reader.feed(record))

    for item in state:
        feed(item)
    read, counts = _timed(feed, records)
    assert sum(counts) == len(traffic.events)
    return Cost(sum(map(len, state)), sum(map(len, records)), written, read)


class Held:
    """The objects that one side of a stream holds."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], tuple[int, bytes]] = {}

    def held(self, namespace: str, name: str) -> tuple[int, bytes] | None:
        return self._objects.get((namespace, name))

    def take(self, frame: WatchFrame) -> int:
        peek = CODEC.peek(frame.raw)
        self._objects[peek.namespace, peek.name] = peek.version, frame.raw
        return 1

    def former(self, frame: WatchFrame) -> Former:
        """Return this side's copy of the frame's object, and replace it with the frame's."""
        peek = CODEC.peek(frame.raw)
        version, raw = self._objects[peek.namespace, peek.name]
        self.take(frame)
        return Former(peek.namespace, peek.name, version, raw)


def _read(frames: Iterable[bytes]) -> Iterator[WatchFrame]:
    return iter(CODEC.frames().feed(b"".join(frames)))


def _timed[T, R](work: Callable[[T], R], items: Iterable[T]) -> tuple[float, list[R]]:
    """Return the CPU seconds of `work` on all items, and its results."""
    began = time.process_time()
    results = [work(item) for item in items]
    return time.process_time() - began, results


def report_codings(traffic: Traffic) -> None:
    print(f"\n{traffic.name}, {len(traffic.events)} updates, recorded from kube-apiserver")
    heads = f"{'state KB':>10}{'events KB':>11}{'B/event':>9}{'of plain':>10}{'write ms':>10}{'read ms':>9}"
    print(f"{'':14}{heads}")
    full = plain(traffic)
    for name, cost in (
        ("plain", full),
        ("gzip", gzipped(traffic)),
        ("zstd", zstd_stream(traffic)),
        ("differences", differences(traffic)),
    ):
        count = len(traffic.events)
        print(
            f"{name:14}{cost.state / 1e3:10.1f}{cost.events / 1e3:11.1f}{cost.events / count:9.0f}"
            f"{cost.events / full.events:10.2%}{cost.written / count * 1e3:10.3f}{cost.read / count * 1e3:9.3f}"
        )


def report_example(traffic: Traffic) -> None:
    """Print the example of `docs/measured.md`: the bytes on one link, times the number of links."""
    size = sum(map(len, traffic.events)) / len(traffic.events)
    full, packed = plain(traffic), differences(traffic)
    heading = f"{len(traffic.events)} updates, {POOLS} pools of {NODES} nodes: MB over all cloud links"
    print(f"\na slice of {size / 1e3:.1f} KB, {heading}")
    for name, cost, links in (
        ("plain", full, POOLS * NODES),
        ("with leaders", full, POOLS),
        ("with a relay", packed, POOLS),
    ):
        total = (cost.state + cost.events) * links
        share = total / ((full.state + full.events) * POOLS * NODES)
        print(f"{name:14}{links:6} links{total / 1e6:12.2f}{share:10.4%}")


def measure_links() -> None:
    with new_cloud() as (cloud, _):
        example = record(cloud, "example", 1, EXAMPLE_ENDPOINTS)
        many = record(cloud, "many", 100, 50)
    report_example(example)
    report_codings(example)
    report_codings(many)
